"""Solutions of u_t + (sigma^2/2) Lap u + u r(u) = 0 with u(T, x) = 1/(2 + a |x|^2), a = 0.4.

`Radial` maps t (B,) and x (B, d) to u (B,) in any dimension d.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebpts2, chebvander
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from ..._support.errors import ArgumentError
from .._zoo import time_to_go

# g = 1/(OFFSET + CURVATURE |x|^2).
OFFSET, CURVATURE = 2.0, 0.4

# Bound on the error of the method. `accuracy` adds its growth in time.
ACCURACY = 3e-11

# Y is resolved if its last Chebyshev coefficients are below this fraction of the largest one.
RESOLVED = 1e-11

# Smallest number of time steps. The tolerance of the solver controls the error at the steps only.
# With this number of steps the interpolation between them is as accurate.
MIN_TIME_STEPS = 200

# Number of points that are evaluated at once, which bounds the memory.
BLOCK_POINTS = 4096

Rate = Callable[[NDArray[Any]], NDArray[Any]]
Coefficients = Callable[[NDArray[Any]], NDArray[Any]]


def accuracy(horizon: float) -> float:
    """Return a bound on the error of u for the final time T = `horizon`.

    Both equations have F' <= 1, so an error grows at most by the factor exp(T) from T to 0.
    """
    return ACCURACY * math.exp(horizon)


@dataclass(frozen=True)
class Radial:
    """u(t, x) by an equation in one space dimension.

    Let tau = T - t, c = 2 + a sigma^2 d tau, zeta = ln(c/2) and eta = c/(c + a |x|^2). eta lies in
    (0, 1], and |x| = infinity corresponds to eta = 0. Substitute

        u = Y / (c + a |x|^2) = (eta/c) Y(zeta, eta)

    Without reaction and in the limit d = infinity, Y is 1. In general Y is smooth and of order 1
    everywhere, so the *relative* error of u is small. The PDE becomes

        Y_zeta = (2/d) (1 - eta) eta (eta^2 Y)_eta_eta - eta Y_eta + c/(a sigma^2 d) r(eta Y/c) Y
        Y(0, .) = 1

    It needs no boundary conditions: it degenerates at eta = 0, and eta = 1 is an outflow boundary.

    The first call solves the equation, and later calls use the cached solution. `rate` is the
    function r(u) = F(u)/u. `degrees` are degrees of the Chebyshev expansion of Y, tried in this
    order until one resolves Y. The first one suffices unless the solution has a sharp front.
    """

    rate: Rate
    dim: int
    horizon: float
    sigma: float
    degrees: tuple[int, ...] = (32, 64, 128)

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        c = OFFSET + CURVATURE * self.sigma**2 * self.dim * time_to_go(t, self.horizon)
        denominator = c + CURVATURE * np.sum(np.square(x), axis=-1)
        coefficients = _solve(self.rate, self.dim, self.horizon, self.sigma, self.degrees)
        blocks = [slice(start, start + BLOCK_POINTS) for start in range(0, c.size, BLOCK_POINTS)]
        values = [
            _evaluate(coefficients, np.log(c[i] / OFFSET), c[i] / denominator[i]) for i in blocks
        ]
        return np.concatenate([np.empty(0), *values]) / denominator


def _evaluate(coefficients: Coefficients, zeta: NDArray[Any], eta: NDArray[Any]) -> NDArray[Any]:
    """Return Y(zeta, eta) at points (B,)."""
    # Many points often have the same time, so the interpolation in time is evaluated once for each.
    times, index = np.unique(zeta, return_inverse=True)
    table = coefficients(times)
    return np.einsum("bk,kb->b", chebvander(2 * eta - 1, len(table) - 1), table[:, index])


@functools.lru_cache(maxsize=16)
def _solve(
    rate: Rate, dim: int, horizon: float, sigma: float, degrees: tuple[int, ...]
) -> Coefficients:
    """Return a function that maps zeta (B,) to the Chebyshev coefficients of Y(zeta, .) on [0, 1].

    The coefficients have shape (degree + 1, B). Raises `ArgumentError` if no degree resolves Y.
    """
    tail = np.inf
    for degree in degrees:
        coefficients, tail = _collocate(rate, dim, horizon, sigma, degree)
        if tail < RESOLVED:
            return coefficients
    raise ArgumentError(
        f"horizon={horizon:g} with dim={dim} and sigma={sigma:g} gives a solution that "
        f"{degrees[-1]} Chebyshev modes do not resolve (tail {tail:.0e}), so there is no "
        "reference value: shorten the horizon."
    )


def _collocate(
    rate: Rate, dim: int, horizon: float, sigma: float, degree: int
) -> tuple[Coefficients, float]:
    """Solve for Y by Chebyshev collocation of this degree.

    Returns the coefficients as a function of zeta, and the size of the last four coefficients
    relative to the largest coefficient.
    """
    nodes = chebpts2(degree + 1)
    eta = (1 + nodes) / 2
    transform = np.linalg.inv(chebvander(nodes, degree))
    derivative = 2 * chebvander(nodes, degree - 1) @ chebder(transform)
    spread = (2 / dim) * ((1 - eta) * eta)[:, None] * (derivative @ derivative) * eta**2
    linear = spread - eta[:, None] * derivative
    growth = CURVATURE * sigma**2 * dim

    def slope(zeta: float, y: NDArray[Any]) -> NDArray[Any]:
        c = OFFSET * np.exp(zeta)
        return linear @ y + (c / growth) * rate(eta * y / c) * y

    # The equation degenerates at the boundary, so the eigenvalues of `linear` grow with degree^2
    # only. An explicit method of high order, with dense output of high order, is faster than an
    # implicit one.
    final = np.log1p(growth * horizon / OFFSET)
    solved = solve_ivp(
        slope,
        (0.0, final),
        np.ones(degree + 1),
        "DOP853",
        dense_output=True,
        max_step=final / MIN_TIME_STEPS,
        rtol=3e-14,
        atol=1e-14,
    )
    history = np.abs(transform @ solved.y)
    return lambda zeta: transform @ solved.sol(np.clip(zeta, 0.0, final)), float(
        history[-4:].max() / history.max()
    )
