"""Option prices if the interest rate for borrowing is higher than the rate for lending.

`different_rates` builds the problem. Its solution is exact for d = 1 and known at one point for
d = 100.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from ..paths import GeometricBrownian
from ._zoo import dimension, time_to_go, zoo
from .references.black_scholes import PRICE_ROUNDING, call
from .references.one_point import OnePoint

HORIZON = 0.5
DRIFT, VOLATILITY, SPOT, STRIKE = 0.06, 0.2, 100.0, 100.0
LENDING, BORROWING = 0.04, 0.06

# A value by multilevel Picard and four of its standard errors; see docs/design/problems.md.
VALUE, ERROR = 21.1714, 0.002


class _TwoRates(eqx.Module):
    """F = -0.04 u - 0.02 s + 0.02 (s - u)^+, where s = sum z / 0.2 = <x, grad u>.

    The hedge invests the amount s in the assets and borrows (s - u)^+.
    """

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        invested = jnp.sum(z) / VOLATILITY
        borrowed = jnp.maximum(invested - u, 0.0)
        return -LENDING * u - (DRIFT - LENDING) * invested + (BORROWING - LENDING) * borrowed


class _Call(eqx.Module):
    """g = (x - 100)^+."""

    def __call__(self, x: Array) -> Array:
        return jnp.maximum(x[0] - STRIKE, 0.0)


class _Spread(eqx.Module):
    """g = (max_i x_i - 120)^+ - 2 (max_i x_i - 150)^+."""

    def __call__(self, x: Array) -> Array:
        highest = jnp.max(x)
        return jnp.maximum(highest - 120, 0.0) - 2 * jnp.maximum(highest - 150, 0.0)


def _black_scholes(t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """Return the exact price for d = 1.

    The hedge of a call always borrows, so the price is that of Black-Scholes at the borrowing rate.
    """
    tau = time_to_go(t, HORIZON)
    growth = np.exp(BORROWING * tau)
    return call(x[:, 0] * growth, STRIKE, VOLATILITY * np.sqrt(tau)) / growth


def _reference(dim: int) -> Reference | None:
    if dim == 1:
        return Reference(
            _black_scholes, PRICE_ROUNDING, "exact, Black-Scholes at the borrowing rate 0.06"
        )
    if dim == 100:
        source = (
            "multilevel Picard, 21.1714 with standard error 0.0005; "
            "the published 21.299 is 0.6 % high"
        )
        return Reference(OnePoint(VALUE, SPOT), ERROR, source)
    return None


@zoo
def different_rates(dim: int = 100) -> Problem:
    """Different rates for borrowing and lending (Han, Jentzen & E 2018), reference at one point.

    u_t + 0.06 s + (0.2^2/2) sum_i x_i^2 d_ii u - 0.04 u - 0.02 s + 0.02 (s - u)^+ = 0
    u(T, x) = (max_i x_i - 120)^+ - 2 (max_i x_i - 150)^+,    s = <x, grad u>,    T = 1/2

    For d = 1, u(T, x) = (x - 100)^+ and the exact solution is known. For d = 100 the reference is
    known at t = 0, x = x0. x0 = (100, ..., 100). The problem is from PNAS 2018.
    """
    dim = dimension(dim)
    return Problem(
        dim=dim,
        horizon=HORIZON,
        dynamics=GeometricBrownian(DRIFT, VOLATILITY),
        nonlinearity=_TwoRates(),
        terminal=_Call() if dim == 1 else _Spread(),
        name="different_rates",
        reference=_reference(dim),
        x0=np.full(dim, SPOT),
    )
