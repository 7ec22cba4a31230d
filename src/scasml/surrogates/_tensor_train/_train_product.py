"""A product of matrices of polynomials, one for the time and one for every coordinate; its derivatives along each of them."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

REACH = 3.5  # of y where the paths go: phi is a polynomial there, and levels off beyond


def matrices(v: Array, clock: Array, cores: Array, final: float, anchored: bool) -> Array:
    """The d + 1 matrices at v = (t, y); that of time has one row that is not 0."""
    first = legendre(v[0], final, len(clock), anchored) @ clock
    rest = jnp.einsum("im,imab->iab", hermite(v[1:], cores.shape[1]), cores)
    return jnp.concatenate([jnp.pad(first[None], ((0, len(first) - 1), (0, 0)))[None], rest])


def lefts(each: Array) -> tuple[Array, Array]:
    """What stands left of each matrix, and the whole product: rows that begin at (1, 0, ..., 0)."""
    begin = jnp.eye(1, each.shape[1], dtype=each.dtype)[0]
    end, rows = jax.lax.scan(lambda row, m: (jnp.sum(row[:, None] * m, 0), row), begin, each)
    return rows, end


def rights(each: Array) -> Array:
    begin = jnp.eye(1, each.shape[1], dtype=each.dtype)[0]
    step = lambda column, m: (jnp.sum(m * column[None, :], 1), column)
    return jax.lax.scan(step, begin, each, reverse=True)[1]


def jet(f: Callable[[Array], Array], y: Array) -> tuple[Array, Array, Array]:
    """f and its first two derivatives, entry by entry."""
    one = jnp.ones_like(y)
    (value, slope), (_, curve) = jax.jvp(lambda y: jax.jvp(f, (y,), (one,)), (y,), (one,))
    return value, slope, curve


def hermite(y: Array, count: int) -> Array:
    """The first Hermite polynomials, orthonormal for the normal law, of y held within REACH + 1 by a C^2 function."""
    inside = jnp.clip(y, -REACH, REACH)
    beyond = y - inside
    y = inside + beyond / jnp.sqrt(1 + jnp.square(beyond))
    h = [jnp.ones_like(y), y]
    for n in range(1, count - 1):
        h.append((y * h[n] - math.sqrt(n) * h[n - 1]) / math.sqrt(n + 1))
    return jnp.stack(h[:count], -1)


def legendre(t: Array, final: float, count: int, anchored: bool) -> Array:
    """The first Legendre polynomials, orthonormal on [0, T]; times (T - t)/T if they are to end at 0."""
    s = 2 * t / final - 1
    p = [jnp.ones_like(s), s]
    for n in range(1, count - 1):
        p.append(((2 * n + 1) * s * p[n] - n * p[n - 1]) / (n + 1))
    psi = jnp.stack([math.sqrt(2 * n + 1) * f for n, f in enumerate(p[:count])])
    return psi * ((jnp.asarray(final, t.dtype) - t) / final) if anchored else psi
