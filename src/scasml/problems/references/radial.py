"""u_t + (sigma^2/2) Lap u + u r(u) = 0, u(T, x) = 1/(2 + a |x|^2), a = 0.4, solved at every (t, x) in every dimension.

With tau = T - t, c = 2 + a sigma^2 d tau and eta = c/(c + a |x|^2) in (0, 1], which brings infinity to eta = 0, put

    u = Y / (c + a |x|^2) = (eta/c) Y(zeta, eta),    zeta = ln(c/2)

Without reaction and for d = infinity Y is 1; in general it is smooth and of order 1 everywhere, so u comes out with
small *relative* error. The PDE turns into

    Y_zeta = (2/d) (1 - eta) eta (eta^2 Y)_eta_eta - eta Y_eta + c/(a sigma^2 d) r(eta Y/c) Y,    Y(0, .) = 1

which degenerates at eta = 0 and flows out at eta = 1: there are no boundary conditions to give.
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

OFFSET, CURVATURE = 2.0, 0.4
ACCURACY = 3e-11

# Degrees tried until the last Chebyshev coefficients fall below _RESOLVED; few dozen do unless a sharp front has formed.
_DEGREES = (32, 64, 128)
_RESOLVED = 1e-11

# The tolerance rules the steps and not the values in between; so many steps at least make those as good.
_STEPS = 200

# Points evaluated at a time, to bound memory.
_BLOCK = 4096

Rate = Callable[[NDArray[Any]], NDArray[Any]]
Coefficients = Callable[[NDArray[Any]], NDArray[Any]]


def accuracy(horizon: float) -> float:
    """How far the solution may be off. F' <= 1 in both equations, so an error made at T grows by exp(T) at most."""
    return ACCURACY * math.exp(horizon)


@dataclass(frozen=True)
class Radial:
    """u(t, x) by the equation above; it is solved when first asked for, then remembered."""

    rate: Rate
    dim: int
    horizon: float
    sigma: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        c = OFFSET + CURVATURE * self.sigma**2 * self.dim * time_to_go(t, self.horizon)
        denominator = c + CURVATURE * np.sum(np.square(x), axis=-1)
        coefficients = _solve(self.rate, self.dim, self.horizon, self.sigma)
        chunks = [slice(start, start + _BLOCK) for start in range(0, c.size, _BLOCK)]
        parts = [
            _evaluate(coefficients, np.log(c[i] / OFFSET), c[i] / denominator[i]) for i in chunks
        ]
        return np.concatenate([np.empty(0), *parts]) / denominator


def _evaluate(coefficients: Coefficients, zeta: NDArray[Any], eta: NDArray[Any]) -> NDArray[Any]:
    # Points often share a time; the solution in time is looked up once for each.
    times, index = np.unique(zeta, return_inverse=True)
    table = coefficients(times)
    return np.einsum("bk,kb->b", chebvander(2 * eta - 1, len(table) - 1), table[:, index])


@functools.lru_cache(maxsize=16)
def _solve(rate: Rate, dim: int, horizon: float, sigma: float) -> Coefficients:
    """zeta (B,) -> Chebyshev coefficients of Y(zeta, .) on [0, 1], (degree + 1, B)."""
    tail = np.inf
    for degree in _DEGREES:
        coefficients, tail = _collocate(rate, dim, horizon, sigma, degree)
        if tail < _RESOLVED:
            return coefficients
    raise ArgumentError(
        f"horizon={horizon:g} with dim={dim} and sigma={sigma:g} gives a solution that {_DEGREES[-1]} Chebyshev modes do not "
        f"resolve (tail {tail:.0e}), so there is no reference value: shorten the horizon."
    )


def _collocate(
    rate: Rate, dim: int, horizon: float, sigma: float, degree: int
) -> tuple[Coefficients, float]:
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

    # The degeneracies keep the spectrum within O(degree^2): an explicit method of high order, whose dense output
    # is of high order too, beats an implicit one here.
    final = np.log1p(growth * horizon / OFFSET)
    solved = solve_ivp(
        slope,
        (0.0, final),
        np.ones(degree + 1),
        "DOP853",
        dense_output=True,
        max_step=final / _STEPS,
        rtol=3e-14,
        atol=1e-14,
    )
    history = np.abs(transform @ solved.y)
    return lambda zeta: transform @ solved.sol(np.clip(zeta, 0.0, final)), float(
        history[-4:].max() / history.max()
    )
