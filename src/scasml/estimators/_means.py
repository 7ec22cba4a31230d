"""Means over many samples, a tile of them at a time, with their derivative in x or their gradient weights."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

# Samples evaluated side by side: enough to fill the vector units, few enough to stay in cache; and where their number is data.
TILE, SMALL_TILE = 128, 32


class Sample(NamedTuple):
    """One sample of a term: f, the weight w of its time, the gradient weight of its path if wanted, and what F(U_l) is of f."""

    value: Array
    w: Array
    weight: Array | None
    new: Array | None


class Term(NamedTuple):
    """A term of U: u, its slope in x if that came by path derivative, and its z if that came by weights. One of the two is zero."""

    u: Array
    slope: Array
    z: Array
    size: Array  # the mean absolute value of its samples
    new: Array  # of a level, the F(U_l) it adds
    old: Array  # and the F(U_{l-1}) it takes off

    @classmethod
    def zero(cls, x: Array) -> "Term":
        nothing = jnp.zeros((), x.dtype)
        return cls(nothing, jnp.zeros_like(x), jnp.zeros_like(x), nothing, nothing, nothing)


class Plan(NamedTuple):
    """How a mean is taken."""

    samples: int | Array  # data, if an array: one program for all numbers
    nodes: int = 1  # of a sample; their sum counts
    width: int = 1  # how many numbers a sample itself holds side by side
    z: bool = False
    weighted: bool = False  # whether z comes by weights
    centre: Array | None = (
        None  # what is taken off before weighing, if `uncentred`; else it is the mean of the other samples of a tile
    )
    uncentred: bool = False


def mean(
    f: Callable[[Array, Array], Sample],
    x: Array,
    plan: Plan,
    counted: Callable[[Array], Array] | None = None,
) -> Term:
    """The mean over samples of the sum over nodes of w f(i, x); `counted` is how often each sample counts."""
    samples, nodes = plan.samples, plan.nodes
    count = samples * nodes
    # Two at least: of loops over tiles of one sample, nested and differentiated, XLA made programs that end in a segmentation fault.
    most = max(2, (TILE if isinstance(count, int) else SMALL_TILE) // plan.width)
    tile = tile_size(count, most) if isinstance(count, int) else most

    def block(start: Array) -> tuple[_Sums, Array | None]:
        """The sums over a tile of u and what goes with it, and of its z or slope."""
        indices = start + jnp.arange(tile)
        times = (
            jnp.ones(tile, x.dtype)
            if counted is None
            else counted(indices // nodes).astype(x.dtype)
        )
        here = (indices < count) & (times != 0)

        def total(x: Array) -> tuple[Array, tuple[_Sums, Array | None]]:
            value, w, weight, part = jax.vmap(f, (0, None))(indices, x)
            value, w = (jnp.where(here, a, 0) for a in (value, w * times))
            new = jnp.zeros((), x.dtype) if part is None else jnp.sum(w * part)
            sums = _Sums(jnp.sum(w * value), jnp.sum(jnp.abs(w * value)), new)
            if weight is None:
                return sums.u, (sums, None)
            # The mean of a weight is 0, so whatever does not depend on its path may be taken off.
            if plan.uncentred:
                deviation = value if plan.centre is None else value - plan.centre
            else:
                deviation = value - mean_of_others(value, here)
            return sums.u, (sums, jnp.einsum("i,id->d", w * deviation, weight))

        if plan.z and not plan.weighted:
            (_, (sums, _)), slope = jax.value_and_grad(total, has_aux=True)(x)
            return sums, slope
        return total(x)[1]

    nothing = (
        _Sums(*(jnp.zeros((), x.dtype) for _ in _Sums._fields)),
        jnp.zeros_like(x) if plan.z else None,
    )
    if not isinstance(count, int):
        add = lambda k, sums: jax.tree.map(jnp.add, sums, block(k * tile))
        sums = jax.lax.fori_loop(0, (count + tile - 1) // tile, add, nothing)
    elif tile >= count:
        sums = block(jnp.asarray(0))
    else:
        # The gradient is taken inside each tile, so nothing of a tile outlives it; `checkpoint`
        # keeps that true when an outer level differentiates through this loop.
        step = jax.checkpoint(lambda sums, start: (jax.tree.map(jnp.add, sums, block(start)), None))
        sums, _ = jax.lax.scan(step, nothing, jnp.arange(0, count, tile))
    (u, size, new), part = jax.tree.map(lambda a: a / jnp.maximum(samples, 1).astype(x.dtype), sums)
    zero = jnp.zeros_like(x)
    return Term(
        u,
        part if plan.z and not plan.weighted else zero,
        part if plan.weighted else zero,
        size,
        new,
        new - u,
    )


class _Sums(NamedTuple):
    u: Array
    size: Array
    new: Array


def sum_of(terms: list[Term]) -> Term:
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *terms)


def mean_of_others(values: Array, present: Array) -> Array:
    """For each value the mean of those of the others that are present; 0 if it is alone."""
    values = jnp.where(present, values, 0)
    others = jnp.sum(present) - 1
    return (jnp.sum(values) - values) / jnp.maximum(others, 1)


def tile_size(count: int, most: int) -> int:
    """A tile of at most about `most` samples that divides `count`, or nearly: a last tile that is not full is masked."""
    if count <= most:
        return count
    divisors = [k for k in range(1, most + 1) if count % k == 0]
    return (
        divisors[-1]
        if divisors[-1] > 1 and 4 * divisors[-1] >= most
        else math.ceil(count / math.ceil(count / most))
    )
