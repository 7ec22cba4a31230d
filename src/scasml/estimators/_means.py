"""Means over samples, computed in tiles, with their derivative in x or with gradient weights.

`mean` takes a function that computes one `Sample` of a term of a Picard iterate, and returns the
`Term`: the mean of the samples, its slope or z, and statistics of the samples.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

# Samples computed side by side: enough to fill the vector units, few enough to stay in cache. The
# second number applies if the number of samples is data.
TILE, DYNAMIC_TILE = 128, 32


class Sample(NamedTuple):
    """One sample of a term."""

    value: Array  # the integrand f
    w: Array  # the weight of its time
    weight: Array | None  # the gradient weight of its path, (d,), if requested
    new: Array | None  # the part F(U_l) - F(0) of f, where it is needed


class Term(NamedTuple):
    """A term of a Picard iterate.

    `slope` is its derivative in x, if that is a path derivative. `z` is its z, if that uses
    weights. One of the two is zero.
    """

    u: Array
    slope: Array
    z: Array
    size: Array  # mean absolute value of the samples
    new: Array  # mean of the F(U_l) that a level adds
    old: Array  # mean of the F(U_{l-1}) that a level subtracts

    @classmethod
    def zero(cls, x: Array) -> "Term":
        scalar = jnp.zeros((), x.dtype)
        return cls(scalar, jnp.zeros_like(x), jnp.zeros_like(x), scalar, scalar, scalar)


class MeanPlan(NamedTuple):
    """How a mean is computed."""

    samples: int | Array  # an array is data: one program serves all numbers
    nodes: int = 1  # quadrature nodes of a sample, which are summed
    width: int = 1  # samples that one sample computes side by side inside itself
    z: bool = False  # whether z or a slope is requested
    weighted: bool = False  # whether z uses weights
    # With `uncentred` this value is subtracted before weighting. Otherwise the mean of the other
    # samples of the tile is subtracted.
    centre: Array | None = None
    uncentred: bool = False


def mean(
    f: Callable[[Array, Array], Sample],
    x: Array,
    plan: MeanPlan,
    multiplicity: Callable[[Array], Array] | None = None,
) -> Term:
    """Return the mean over samples of the sum over nodes of w f(i, x).

    `f` maps an index and x to a `Sample`. `multiplicity` maps sample numbers to how often each
    sample counts; None counts every sample once.
    """
    samples, nodes = plan.samples, plan.nodes
    count = samples * nodes
    # At least two: XLA compiled nested, differentiated loops over tiles of one sample to programs
    # that end in a segmentation fault.
    largest = max(2, (TILE if isinstance(count, int) else DYNAMIC_TILE) // plan.width)
    tile = tile_size(count, largest) if isinstance(count, int) else largest

    def block(start: Array) -> tuple[_Sums, Array | None]:
        """Return the sums over one tile, and the sum of its z or its slope."""
        indices = start + jnp.arange(tile)
        times = jnp.ones(tile, x.dtype)
        if multiplicity is not None:
            times = multiplicity(indices // nodes).astype(x.dtype)
        valid = (indices < count) & (times != 0)

        def total(x: Array) -> tuple[Array, tuple[_Sums, Array | None]]:
            value, w, weight, part = jax.vmap(f, (0, None))(indices, x)
            value, w = (jnp.where(valid, a, 0) for a in (value, w * times))
            new = jnp.zeros((), x.dtype) if part is None else jnp.sum(w * part)
            sums = _Sums(jnp.sum(w * value), jnp.sum(jnp.abs(w * value)), new)
            if weight is None:
                return sums.u, (sums, None)
            # The mean of a weight is zero, so anything independent of its path may be subtracted.
            if plan.uncentred:
                deviation = value if plan.centre is None else value - plan.centre
            else:
                deviation = value - mean_of_others(value, valid)
            return sums.u, (sums, jnp.einsum("i,id->d", w * deviation, weight))

        if plan.z and not plan.weighted:
            (_, (sums, _)), slope = jax.value_and_grad(total, has_aux=True)(x)
            return sums, slope
        return total(x)[1]

    zero = _Sums(*(jnp.zeros((), x.dtype) for _ in _Sums._fields))
    start = zero, jnp.zeros_like(x) if plan.z else None
    if not isinstance(count, int):
        add = lambda k, sums: jax.tree.map(jnp.add, sums, block(k * tile))
        sums = jax.lax.fori_loop(0, (count + tile - 1) // tile, add, start)
    elif tile >= count:
        sums = block(jnp.asarray(0))
    else:
        # The gradient is taken inside each tile, so that no intermediate result of a tile outlives
        # it. `checkpoint` keeps that true when an outer level differentiates through this loop.
        step = jax.checkpoint(lambda sums, at: (jax.tree.map(jnp.add, sums, block(at)), None))
        sums, _ = jax.lax.scan(step, start, jnp.arange(0, count, tile))
    (u, size, new), part = jax.tree.map(lambda a: a / jnp.maximum(samples, 1).astype(x.dtype), sums)
    no_slope = jnp.zeros_like(x)
    slope = part if plan.z and not plan.weighted else no_slope
    return Term(u, slope, part if plan.weighted else no_slope, size, new, new - u)


class _Sums(NamedTuple):
    u: Array
    size: Array
    new: Array


def sum_of(terms: list[Term]) -> Term:
    """Return the sum of terms, component by component."""
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *terms)


def mean_of_others(values: Array, valid: Array) -> Array:
    """Return, for each value, the mean of the other valid values; 0 if there is no other."""
    values = jnp.where(valid, values, 0)
    others = jnp.sum(valid) - 1
    return (jnp.sum(values) - values) / jnp.maximum(others, 1)


def tile_size(count: int, largest: int) -> int:
    """Return a tile size of at most about `largest` that divides `count`, or nearly.

    A last tile that is not full is masked.
    """
    if count <= largest:
        return count
    divisors = [k for k in range(1, largest + 1) if count % k == 0]
    if divisors[-1] > 1 and 4 * divisors[-1] >= largest:
        return divisors[-1]
    return math.ceil(count / math.ceil(count / largest))
