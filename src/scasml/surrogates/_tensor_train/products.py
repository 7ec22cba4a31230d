"""The product of matrices that defines a tensor train, and its basis polynomials.

`matrices` takes a point (t, y) and returns one r x r matrix per variable: the time and each
coordinate. The value of the train is the first entry of their product. `left_products` and
`right_products` multiply the matrices from either end.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

# The Hermite polynomials are exact for |y| up to here and bounded beyond. Coordinates are scaled so
# that the states of paths seen in training lie within this range.
POLYNOMIAL_RANGE = 3.5


def matrices(v: Array, clock: Array, cores: Array, horizon: float, zero_at_end: bool) -> Array:
    """Return the d + 1 matrices at v = (t, y) (d + 1,), as an array of shape (d + 1, r, r).

    `clock` (q, r) is the core of time, for q basis functions. `cores` (d, p, r, r) are the cores of
    the coordinates, for p basis functions each. The first row of the matrix of time comes from
    `clock`, and its other rows are zero. `horizon` and `zero_at_end` are those of `legendre`.
    """
    first = legendre(v[0], horizon, len(clock), zero_at_end) @ clock
    rest = jnp.einsum("im,imab->iab", hermite(v[1:], cores.shape[1]), cores)
    return jnp.concatenate([jnp.pad(first[None], ((0, len(first) - 1), (0, 0)))[None], rest])


def left_products(factors: Array) -> tuple[Array, Array]:
    """Multiply the row e_1 = (1, 0, ..., 0) by the matrices `factors` (n, r, r), one by one.

    Returns the row before the multiplication by each matrix, shape (n, r), and the row after all of
    them, shape (r,). The first entry of the latter is the value of the train.
    """
    first = jnp.eye(1, factors.shape[1], dtype=factors.dtype)[0]
    step = lambda row, m: (jnp.sum(row[:, None] * m, 0), row)
    last, rows = jax.lax.scan(step, first, factors)
    return rows, last


def right_products(factors: Array) -> Array:
    """Return, for each of the matrices (n, r, r), the product of all later ones and e_1, (n, r).

    The product of no matrices and the column e_1 is e_1, which is the last of the n results.
    """
    first = jnp.eye(1, factors.shape[1], dtype=factors.dtype)[0]
    step = lambda column, m: (jnp.sum(m * column[None, :], 1), column)
    return jax.lax.scan(step, first, factors, reverse=True)[1]


def jet(f: Callable[[Array], Array], y: Array) -> tuple[Array, Array, Array]:
    """Return f(y) and its first two derivatives, each with the shape of f(y).

    Either y is a scalar, or y is a vector and f(y)[i] depends on y[i] only.
    """
    one = jnp.ones_like(y)
    (value, slope), (_, curvature) = jax.jvp(lambda y: jax.jvp(f, (y,), (one,)), (y,), (one,))
    return value, slope, curvature


def hermite(y: Array, count: int) -> Array:
    """Return the first `count` Hermite polynomials of y, on a new last axis.

    They are orthonormal for the standard normal distribution. Any |y| above `POLYNOMIAL_RANGE` is
    first mapped below `POLYNOMIAL_RANGE` + 1 by a twice differentiable function, so that no
    polynomial grows without bound.
    """
    inside = jnp.clip(y, -POLYNOMIAL_RANGE, POLYNOMIAL_RANGE)
    beyond = y - inside
    y = inside + beyond / jnp.sqrt(1 + jnp.square(beyond))
    h = [jnp.ones_like(y), y]
    for n in range(1, count - 1):
        h.append((y * h[n] - math.sqrt(n) * h[n - 1]) / math.sqrt(n + 1))
    return jnp.stack(h[:count], -1)


def legendre(t: Array, horizon: float, count: int, zero_at_end: bool) -> Array:
    """Return the first `count` Legendre polynomials of the scalar t, shape (count,).

    They are orthonormal for the uniform distribution on [0, T], where T is `horizon`. With
    `zero_at_end` each of them is multiplied by (T - t)/T.
    """
    s = 2 * t / horizon - 1
    p = [jnp.ones_like(s), s]
    for n in range(1, count - 1):
        p.append(((2 * n + 1) * s * p[n] - n * p[n - 1]) / (n + 1))
    psi = jnp.stack([math.sqrt(2 * n + 1) * f for n, f in enumerate(p[:count])])
    return psi * ((jnp.asarray(horizon, t.dtype) - t) / horizon) if zero_at_end else psi
