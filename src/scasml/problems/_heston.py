"""A call in the Heston model, whose state is a price S and its variance v.

`heston` builds the problem. Its reference is a one-dimensional integral.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._equations.problem import Problem, Reference
from .._support.errors import ArgumentError, number, positive
from ._zoo import Discount, final_time, zoo
from .references.heston_price import ACCURACY, HestonCall

# The largest abs(correlation). If it is closer to 1, sigma is nearly singular, and the integral of
# the reference needs many more nodes.
MAX_CORRELATION = 0.9999


class _Drift(eqx.Module):
    """mu = ((r - q) S, kappa (theta - v^+)), where `growth` is r - q."""

    growth: float = eqx.field(static=True)
    reversion: float = eqx.field(static=True)
    mean_variance: float = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        price, variance = x
        return jnp.stack(
            [
                self.growth * price,
                self.reversion * (self.mean_variance - jnp.maximum(variance, 0.0)),
            ],
        )


class _Diffusion(eqx.Module):
    """sigma = sqrt(v^+) ((S, 0), (rho xi, sqrt(1 - rho^2) xi))."""

    vol_of_variance: float = eqx.field(static=True)
    correlation: float = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        price, variance = x
        is_positive = variance > 0
        # The derivative of `where` is finite only if the branch not taken has a finite derivative.
        root = jnp.where(is_positive, jnp.sqrt(jnp.where(is_positive, variance, 1.0)), 0.0)
        along, across = self.correlation, math.sqrt(1 - self.correlation**2)
        deviation = self.vol_of_variance * root
        return jnp.stack(
            [
                jnp.stack([root * price, jnp.zeros_like(root)]),
                jnp.stack([along * deviation, across * deviation]),
            ]
        )


class _Terminal(eqx.Module):
    """g = (S - K)^+."""

    strike: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return jnp.maximum(x[0] - self.strike, 0.0)


@zoo
def heston(
    spot: float = 100.0,
    variance: float = 0.04,
    reversion: float = 4.0,
    mean_variance: float = 0.25,
    vol_of_variance: float = 1.0,
    correlation: float = -0.5,
    rate: float = 0.01,
    dividend: float = 0.02,
    horizon: float = 1.0,
    strike: float = 100.0,
) -> Problem:
    """Call in the Heston model (Heston 1993), reference by a one-dimensional integral.

    u_t + (r - q) S u_S + kappa (theta - v) u_v - r u
        + (v/2) (S^2 u_SS + 2 rho xi S u_Sv + xi^2 u_vv) = 0
    u(T, S, v) = (S - K)^+

    x = (S, v) and x0 = (`spot`, `variance`). kappa is `reversion`, theta is `mean_variance`, xi is
    `vol_of_variance`, rho is `correlation`, r is the interest rate `rate`, q is `dividend` and K is
    `strike`. The default parameters are those of a test of QuantLib.

    The exact variance is never negative, but discretised paths may be. The coefficients therefore
    use v^+ = max(v, 0) instead of v (full truncation).
    """
    spot = positive("spot", spot, "pass the price S at time 0")
    variance = number("variance", variance, "pass the variance v at time 0")
    if variance < 0:
        raise ArgumentError(
            f"variance must not be negative, got {variance!r}: "
            "pass the variance v at time 0, a volatility squared."
        )
    reversion = positive(
        "reversion", reversion, "pass the speed kappa at which the variance returns to its mean"
    )
    mean_variance = positive(
        "mean_variance", mean_variance, "pass the variance theta that v returns to"
    )
    vol_of_variance = positive(
        "vol_of_variance", vol_of_variance, "pass the volatility xi of the variance"
    )
    correlation = number(
        "correlation", correlation, "pass the correlation rho of price and variance"
    )
    if abs(correlation) > MAX_CORRELATION:
        raise ArgumentError(
            f"correlation must lie within [-{MAX_CORRELATION}, {MAX_CORRELATION}], "
            f"got {correlation!r}: "
            "sigma is not invertible at 1, and nearly so close to it."
        )
    rate = number("rate", rate, "pass the rate of interest r")
    dividend = number("dividend", dividend, "pass the dividend yield q")
    horizon, strike = final_time(horizon), positive("strike", strike, "pass the strike K")
    return Problem(
        dim=2,
        horizon=horizon,
        drift=_Drift(rate - dividend, reversion, mean_variance),
        diffusion=_Diffusion(vol_of_variance, correlation),
        nonlinearity=Discount(rate),
        terminal=_Terminal(strike),
        name="heston",
        reference=Reference(
            HestonCall(
                reversion,
                mean_variance,
                vol_of_variance,
                correlation,
                rate,
                dividend,
                horizon,
                strike,
            ),
            ACCURACY * (spot + strike),
            "Lewis's integral of the characteristic function on a turned ray, "
            "double-exponential rule",
        ),
        x0=np.array([spot, variance]),
    )
