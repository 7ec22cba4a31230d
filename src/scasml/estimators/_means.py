"""Means over samples, computed in tiles, with their derivative in x or with gradient weights.

`mean` takes a function that computes one `Sample` of a term of a Picard iterate. It returns the
`Term`: the mean of the samples, its derivative in x or its z, and statistics of the samples.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

# Samples of a tile, which are computed side by side: enough to fill the vector units, few enough to
# stay in cache. The second number applies if the number of samples is data.
TILE, DYNAMIC_TILE = 128, 32


class Sample(NamedTuple):
    """One sample of a term, at one node."""

    value: Array  # f: g(X_T), or D_l of `Iterates`
    w: Array  # its time weight; 1 for the terminal term
    weight: Array | None  # the gradient weight of its path, (d,), if z uses weights
    new: Array | None  # F(U_l) - F(0), a part of f, where it is needed


class Term(NamedTuple):
    """A term of a Picard iterate.

    `slope` (d,) is its derivative in x by path derivatives. `z` (d,) is its z by gradient weights.
    In a single term, at most one of the two is not zero; a sum of terms may have both.
    """

    u: Array  # mean of w f, a scalar
    slope: Array
    z: Array
    size: Array  # mean of |w f|
    new: Array  # mean of w (F(U_l) - F(0)), which level l adds; 0 if not computed
    old: Array  # new - u: mean of w (F(U_{l-1}) - F(0)), which level l subtracts

    @classmethod
    def zero(cls, x: Array) -> "Term":
        scalar = jnp.zeros((), x.dtype)
        return cls(scalar, jnp.zeros_like(x), jnp.zeros_like(x), scalar, scalar, scalar)


class MeanPlan(NamedTuple):
    """How a mean is computed."""

    samples: int | Array  # an array is data: one program serves all numbers
    nodes: int = 1  # quadrature nodes of a sample, which are summed
    width: int = 1  # inner samples that one sample computes side by side
    z: bool = False  # whether a slope or z is requested
    weighted: bool = False  # whether z uses gradient weights
    # What is subtracted from f before it is multiplied by the gradient weight: with `uncentred` the
    # scalar `centre` (None is 0), otherwise the mean of the other samples of the tile.
    centre: Array | None = None
    uncentred: bool = False


def mean(
    f: Callable[[Array, Array], Sample],
    x: Array,
    plan: MeanPlan,
    multiplicity: Callable[[Array], Array] | None = None,
) -> Term:
    """Return the mean over samples of the sum over nodes of w f, with its slope or its z.

    With m samples, gradient weights W and c as in `MeanPlan`,

        u = 1/m sum w f,    slope = du/dx for fixed draws,    z = 1/m sum w (f - c) W

    where the sums run over all samples and nodes.

    **Arguments:**

    - `f`: maps an index and x (d,) to a `Sample`. Index i is node i % nodes of sample i // nodes.
    - `x`: the state (d,) at which the paths begin.
    - `plan`: the numbers of samples and nodes, and the method of z.
    - `multiplicity`: maps sample numbers (k,) to factors (k,) of w. None is 1 for every sample.
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
            # The mean of a gradient weight is zero, so f minus anything that is independent of the
            # path has the same mean.
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
        # The slope is taken inside each tile, so that no intermediate result of a tile outlives it.
        # `checkpoint` ensures this also where an outer level differentiates through this loop.
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
    """Return, for each of the values (k,), the mean of the other valid ones; 0 if there is none."""
    values = jnp.where(valid, values, 0)
    others = jnp.sum(valid) - 1
    return (jnp.sum(values) - values) / jnp.maximum(others, 1)


def tile_size(count: int, largest: int) -> int:
    """Return a tile size of at most `largest` for `count` samples.

    It divides `count` if a divisor of at least a quarter of `largest` exists. Otherwise the last
    tile is not full, and `mean` masks it.
    """
    if count <= largest:
        return count
    divisors = [k for k in range(1, largest + 1) if count % k == 0]
    if divisors[-1] > 1 and 4 * divisors[-1] >= largest:
        return divisors[-1]
    return math.ceil(count / math.ceil(count / largest))
