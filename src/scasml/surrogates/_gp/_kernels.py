"""Isotropic kernels phi(|y - y'|^2) on y = (t, x), and every pair of the four measurements u, Lap u, u_t, sum_i d_i u.

A kernel of y - y' = (tau, delta) turns a derivative at y' into minus the derivative at y, so a pair of measurements
is one operator on phi, a polynomial in tau, p = sum_i delta_i and q = |delta|^2 times derivatives of phi.
Matrices are made some rows at a time: a pair of points costs 10 to 15 ns, most of it the exponential.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # jax.Array or np.ndarray
ROWS = 128
VALUE, LAPLACIAN, TIME, SUM = range(4)  # the columns of a table of measurements
SIGNS = (1.0, 1.0, -1.0, -1.0)  # of each at y': that of its order


class Gaussian(NamedTuple):
    """phi(s) = exp(-s / (2 width^2))."""

    width: Any

    def derivatives(self, s: Array) -> tuple[Array, ...]:
        """phi and its first four derivatives."""
        rate = -0.5 / self.width**2
        phi = jnp.exp(rate * s)
        return tuple(rate**n * phi for n in range(5))

    def variances(self, dim: int) -> Array:
        """Of the four measurements at one point."""
        table = at_one_point(self, dim)
        return np.array([SIGNS[a] * table[a][a] for a in range(4)])


class Points(NamedTuple):
    """(n,) and (n, d)."""

    t: Any
    x: Any


def offsets(left: Points, right: Points) -> tuple[Array, Array, Array]:
    """tau, p and q between every two points."""
    square = lambda x: (x * x).sum(-1)
    q = square(left.x)[:, None] + square(right.x)[None] - 2 * left.x @ right.x.T
    total = left.x.sum(-1)[:, None] - right.x.sum(-1)[None]
    return left.t[:, None] - right.t[None], total, jnp.maximum(q, 0.0)


def pairs(phi: tuple[Array, ...], dim: int, tau: Array, p: Array, q: Array) -> list[list[Array]]:
    """The product of any two of 1, Lap, d/dt and D = sum_i d_i, applied to phi; the sign of the second is left to the caller."""
    f0, f1, f2, f3, f4 = phi
    d = dim
    lap = 2 * d * f1 + 4 * q * f2
    time, total = 2 * tau * f1, 2 * p * f1
    lap_lap = (4 * d * d + 8 * d) * f2 + (16 * d + 32) * q * f3 + 16 * q * q * f4
    lap_time = tau * (4 * d * f2 + 8 * q * f3)
    lap_total = p * ((4 * d + 8) * f2 + 8 * q * f3)
    time_time, time_total = 2 * f1 + 4 * tau * tau * f2, 4 * tau * p * f2
    total_total = 2 * d * f1 + 4 * p * p * f2
    return [
        [f0, lap, time, total],
        [lap, lap_lap, lap_time, lap_total],
        [time, lap_time, time_time, time_total],
        [total, lap_total, time_total, total_total],
    ]


def combined(
    kernel: Gaussian, dim: int, offset: tuple[Array, Array, Array], left: Array, right: Array
) -> Array:
    """The covariance of two linear combinations of the four, with coefficients (..., 4) that broadcast against the offsets."""
    tau, p, q = offset
    table = pairs(kernel.derivatives(q + tau * tau), dim, tau, p, q)
    rows = [sum(SIGNS[b] * right[..., b] * table[a][b] for b in range(4)) for a in range(4)]
    return sum(left[..., a] * rows[a] for a in range(4))


@jax.jit
def covariance(kernel: Gaussian, left: Points, right: Points, a: Array, b: Array) -> Array:
    """(n, m), for one combination at each point: (n, 4) and (m, 4)."""

    def row(point: tuple[Array, Array, Array]) -> Array:
        t, x, coefficients = point
        between = (each[0] for each in offsets(Points(t[None], x[None]), right))
        return combined(kernel, right.x.shape[1], tuple(between), coefficients[None], b)

    return jax.lax.map(row, (left.t, left.x, a), batch_size=ROWS)


@jax.jit
def measured(kernel: Gaussian, left: Points, right: Points, weights: Array) -> Array:
    """(n, 4), the measurements at `left` of the function whose weights (m, 4) belong to the measurements at `right`.

    The function is sum_j phi m for m = alpha + beta q + gamma tau + epsilon p, and each measurement of it a few sums over j, in
    which tau = t_i - t_j and p = P_i - P_j come apart: what is left are products of matrices, and few passes over the pairs.
    """
    t, x, dim, rate = right.t, right.x, right.x.shape[1], -0.5 / kernel.width**2
    total = x.sum(1)
    alpha, beta, gamma, epsilon = quadratic(kernel.width, dim, weights)
    of_point = jnp.stack([gamma, epsilon, alpha - gamma * t - epsilon * total])
    with_m = jnp.stack([jnp.ones_like(t), t, total], 1)
    alone = jnp.stack([beta, beta * total, gamma, epsilon, epsilon * total], 1)

    def rows(points: tuple[Array, Array]) -> Array:
        t_i, x_i = points
        p_i = x_i.sum(1)
        tau, _, q = offsets(Points(t_i, x_i), right)
        phi = jnp.exp(rate * (q + tau * tau))
        m = phi * (jnp.stack([t_i, p_i, jnp.ones_like(t_i)], 1) @ of_point + beta[None] * q)
        one, time, place = (m @ with_m).T
        beta_one, beta_place, gamma_one, epsilon_one, epsilon_place = (phi @ alone).T
        laplacian = (
            2 * dim * (rate * one + beta_one)
            + 4 * rate**2 * jnp.sum(q * m, 1)
            + 8 * rate * (q * phi) @ beta
            + 4 * rate * (p_i * epsilon_one - epsilon_place)
        )
        in_time = 2 * rate * (t_i * one - time) + gamma_one
        in_sum = (
            2 * rate * (p_i * one - place) + 2 * (p_i * beta_one - beta_place) + dim * epsilon_one
        )
        return jnp.stack([one, laplacian, in_time, in_sum], 1)

    count = len(left.t)
    blocks = -(-count // ROWS)
    cut = lambda a: jnp.pad(a, ((0, blocks * ROWS - count),) + ((0, 0),) * (a.ndim - 1)).reshape(
        blocks, ROWS, *a.shape[1:]
    )
    return jax.lax.map(rows, (cut(left.t), cut(left.x))).reshape(-1, 4)[:count]


def quadratic(width: float, dim: int, weights: Array) -> tuple[Array, ...]:
    """alpha, beta, gamma, epsilon: weights (m, 4) on a Gaussian kernel make the function sum_j phi (alpha + beta q + gamma tau + epsilon p)."""
    rate = -0.5 / width**2
    w, w_lap, w_time, w_sum = weights.T
    return w + 2 * dim * rate * w_lap, 4 * rate**2 * w_lap, -2 * rate * w_time, -2 * rate * w_sum


class Terms(NamedTuple):
    """Of a function sum phi m, at one point; m = alpha + beta q + gamma tau + epsilon p."""

    phi: Array
    m: Array
    beta: Array
    gamma: Array
    epsilon: Array
    tau: Array


def terms(width: float, points: Points, weights: Array, t: Array, x: Array) -> Terms:
    """By |x - x'|^2 = |x|^2 - 2 <x, x'> + |x'|^2: one product with the points."""
    q = jnp.sum(x * x) - 2 * points.x @ x + jnp.sum(points.x * points.x, 1)
    p = jnp.sum(x) - jnp.sum(points.x, 1)
    tau = t - points.t
    alpha, beta, gamma, epsilon = quadratic(width, x.size, weights)
    phi = Gaussian(width).derivatives(q + tau * tau)[0]
    return Terms(phi, alpha + beta * q + gamma * tau + epsilon * p, beta, gamma, epsilon, tau)


def at_one_point(kernel: Gaussian, dim: int) -> list[list[Array]]:
    zero = np.zeros(1)
    return [
        [float(entry[0]) for entry in row]
        for row in pairs(kernel.derivatives(zero), dim, zero, zero, zero)
    ]
