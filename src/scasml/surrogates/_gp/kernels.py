"""Covariances of derivatives of a Gaussian process with an isotropic kernel.

The kernel is k(y, y') = phi(|y - y'|^2) with y = (t, x). This module computes covariances between
observations of a function v: v, Lap v, v_t or D v = sum_i d_i v at a point. It also computes the
observations of a fitted function, which is a weighted sum of covariances.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # jax.Array or np.ndarray
# Matrices are computed in blocks of rows, which bounds the memory.
ROWS_PER_BLOCK = 128
SIGNS = (1.0, 1.0, -1.0, -1.0)  # (-1)^(order of the operator) of each observation


class Observation(IntEnum):
    """Indices into the last axis of arrays (..., 4): v, Lap v, v_t and D v = sum_i d_i v.

    An observation of a function v at a point is one of these four numbers.
    """

    VALUE = 0
    LAPLACIAN = 1
    TIME = 2
    SUM = 3


class Gaussian(NamedTuple):
    """The kernel phi(s) = exp(-s / (2 width^2)) of the squared distance s."""

    width: Any

    @property
    def exponent(self) -> Any:
        """The factor c in phi(s) = exp(c s)."""
        return -0.5 / self.width**2

    def derivatives(self, s: Array) -> tuple[Array, ...]:
        """Return phi(s) and its first four derivatives in s, each with the shape of s."""
        c = self.exponent
        phi = jnp.exp(c * s)
        return tuple(c**n * phi for n in range(5))

    def variances(self, dim: int) -> Array:
        """Return the prior variances of the four observations at one point, shape (4,)."""
        table = products_at_zero(self, dim)
        return np.array([SIGNS[a] * table[a][a] for a in range(4)])


class Points(NamedTuple):
    """Points y = (t, x), with the scaled times t of shape (n,) and x of shape (n, d).

    The caller scales t such that one width of the kernel fits both t and x.
    """

    t: Any
    x: Any


def differences(left: Points, right: Points) -> tuple[Array, Array, Array]:
    """Return tau, p and q, each (n, m), of all pairs of n points `left` and m points `right`.

    With y - y' = (tau, delta), p is sum_i delta_i and q is |delta|^2.
    """
    square = lambda x: (x * x).sum(-1)
    q = square(left.x)[:, None] + square(right.x)[None] - 2 * left.x @ right.x.T
    p = left.x.sum(-1)[:, None] - right.x.sum(-1)[None]
    # Rounding can make q negative, because the square was expanded.
    return left.t[:, None] - right.t[None], p, jnp.maximum(q, 0.0)


def operator_products(
    phi: tuple[Array, ...], dim: int, tau: Array, p: Array, q: Array
) -> list[list[Array]]:
    """Return the 4 x 4 table of A B phi for any two operators A, B among 1, Lap, d/dt and D.

    `phi` holds phi and its first four derivatives at s = tau^2 + q, as `Gaussian.derivatives`
    returns them. Each entry has the shape of `tau`, `p` and `q`; see `differences`.

    The kernel depends on y - y' only, so a derivative in y' is minus the derivative in y. Let A and
    B be the operators of two observations. The covariance of A v at y and B v at y' is
    (-1)^(order of B) (A B phi)(y - y'), with phi as a function of y - y'. To obtain it, the caller
    multiplies by the sign of B. The entries follow from the chain rule with d_i s = 2 delta_i: they
    are sums of derivatives of phi times polynomials in tau, p and q.
    """
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


def products_at_zero(kernel: Gaussian, dim: int) -> list[list[float]]:
    """Return the table of `operator_products` for a pair of equal points, as floats."""
    zero = np.zeros(1)
    return [
        [float(entry[0]) for entry in row]
        for row in operator_products(kernel.derivatives(zero), dim, zero, zero, zero)
    ]


def combination_covariance(
    kernel: Gaussian,
    dim: int,
    difference: tuple[Array, Array, Array],
    left: Array,
    right: Array,
) -> Array:
    """Return the covariance of two linear combinations of observations, one at y and one at y'.

    `difference` is (tau, p, q) of y - y'. The combination at y has the coefficients `left`, and the
    one at y' has the coefficients `right`. Both have shape (..., 4), and their leading axes
    broadcast against the axes of tau, p and q.
    """
    tau, p, q = difference
    table = operator_products(kernel.derivatives(q + tau * tau), dim, tau, p, q)
    rows = [sum(SIGNS[b] * right[..., b] * table[a][b] for b in range(4)) for a in range(4)]
    return sum(left[..., a] * rows[a] for a in range(4))


@jax.jit
def covariance(kernel: Gaussian, left: Points, right: Points, a: Array, b: Array) -> Array:
    """Return the (n, m) covariances of linear combinations of observations, one at each point.

    The coefficients are `a` (n, 4) at the points `left` and `b` (m, 4) at the points `right`.
    """

    def row(point: tuple[Array, Array, Array]) -> Array:
        t, x, coefficients = point
        difference = (each[0] for each in differences(Points(t[None], x[None]), right))
        return combination_covariance(
            kernel, right.x.shape[1], tuple(difference), coefficients[None], b
        )

    return jax.lax.map(row, (left.t, left.x, a), batch_size=ROWS_PER_BLOCK)


def polynomial_coefficients(kernel: Gaussian, dim: int, weights: Array) -> tuple[Array, ...]:
    """Return alpha, beta, gamma, epsilon, each (m,), of a function with the weights (m, 4).

    The function is v(y) = sum_j sum_b weights[j, b] K_b(y, y_j), where K_b(y, y_j) is the
    covariance of the value at y and observation b at y_j. All derivatives of a Gaussian kernel are
    multiples of phi. With (tau, p, q) of y - y_j therefore
    v(y) = sum_j phi(|y - y_j|^2) (alpha_j + beta_j q + gamma_j tau + epsilon_j p).
    """
    c = kernel.exponent
    w, w_lap, w_time, w_sum = weights.T
    return w + 2 * dim * c * w_lap, 4 * c**2 * w_lap, -2 * c * w_time, -2 * c * w_sum


@jax.jit
def observations(kernel: Gaussian, left: Points, right: Points, weights: Array) -> Array:
    """Return the four observations (n, 4), at the points `left`, of a function.

    The function has the weights `weights` (m, 4) at the points `right`; see
    `polynomial_coefficients`. Let m_ij = phi (alpha_j + beta_j q + gamma_j tau + epsilon_j p), so
    that v(y_i) = sum_j m_ij. By the product rule, each observation at y_i is a sum over j of phi
    and m_ij, multiplied by tau, p or q. Because tau = t_i - t_j and p = p_i - p_j, most of these
    sums are products of a matrix (n, m) and vectors over j. A small number of passes over the pairs
    of points suffices.
    """
    t, x, dim, c = right.t, right.x, right.x.shape[1], kernel.exponent
    sum_x = x.sum(1)
    alpha, beta, gamma, epsilon = polynomial_coefficients(kernel, dim, weights)
    # alpha + gamma tau + epsilon p = (t_i, p_i, 1) @ linear_part
    linear_part = jnp.stack([gamma, epsilon, alpha - gamma * t - epsilon * sum_x])
    vectors_for_m = jnp.stack([jnp.ones_like(t), t, sum_x], 1)
    vectors_for_phi = jnp.stack([beta, beta * sum_x, gamma, epsilon, epsilon * sum_x], 1)

    def block(points: tuple[Array, Array]) -> Array:
        t_i, x_i = points
        p_i = x_i.sum(1)
        tau, _, q = differences(Points(t_i, x_i), right)
        phi = jnp.exp(c * (q + tau * tau))
        m = phi * (jnp.stack([t_i, p_i, jnp.ones_like(t_i)], 1) @ linear_part + beta[None] * q)
        # Sums over j of m, m t_j and m p_j; then of phi times each of `vectors_for_phi`.
        m_sum, m_t, m_p = (m @ vectors_for_m).T
        phi_beta, phi_beta_p, phi_gamma, phi_epsilon, phi_epsilon_p = (phi @ vectors_for_phi).T
        laplacian = (
            2 * dim * (c * m_sum + phi_beta)
            + 4 * c**2 * jnp.sum(q * m, 1)
            + 8 * c * (q * phi) @ beta
            + 4 * c * (p_i * phi_epsilon - phi_epsilon_p)
        )
        by_time = 2 * c * (t_i * m_sum - m_t) + phi_gamma
        by_sum = 2 * c * (p_i * m_sum - m_p) + 2 * (p_i * phi_beta - phi_beta_p) + dim * phi_epsilon
        return jnp.stack([m_sum, laplacian, by_time, by_sum], 1)

    count = len(left.t)
    blocks = -(-count // ROWS_PER_BLOCK)
    padding = blocks * ROWS_PER_BLOCK - count
    in_blocks = lambda a: jnp.pad(a, ((0, padding),) + ((0, 0),) * (a.ndim - 1)).reshape(
        blocks, ROWS_PER_BLOCK, *a.shape[1:]
    )
    return jax.lax.map(block, (in_blocks(left.t), in_blocks(left.x))).reshape(-1, 4)[:count]


class Terms(NamedTuple):
    """The terms phi_j m_j of a function v = sum_j phi_j m_j at one point, each array of shape (n,).

    Here m = alpha + beta q + gamma tau + epsilon p, without phi; see `polynomial_coefficients`.
    """

    phi: Array
    m: Array
    beta: Array
    gamma: Array
    epsilon: Array
    tau: Array


def terms_at(kernel: Gaussian, points: Points, weights: Array, t: Array, x: Array) -> Terms:
    """Return the terms at one point (t, x) of the function with weights (n, 4) at `points`.

    `t` is a scaled time. The squared distances |x|^2 - 2 <x, x_j> + |x_j|^2 need one product of a
    matrix and a vector.
    """
    q = jnp.sum(x * x) - 2 * points.x @ x + jnp.sum(points.x * points.x, 1)
    p = jnp.sum(x) - jnp.sum(points.x, 1)
    tau = t - points.t
    alpha, beta, gamma, epsilon = polynomial_coefficients(kernel, x.size, weights)
    phi = kernel.derivatives(q + tau * tau)[0]
    return Terms(phi, alpha + beta * q + gamma * tau + epsilon * p, beta, gamma, epsilon, tau)
