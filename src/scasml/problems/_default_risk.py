"""The price of a claim whose issuer may default, the sooner the less the claim is worth."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._equations.problem import Problem, Reference
from ..paths import GeometricBrownian
from ._zoo import constructor, dimension
from .references.one_point import OnePoint

HORIZON = 1.0
RATE, VOLATILITY, SPOT = 0.02, 0.2, 100.0
LOSS = 1 / 3  # the share of the claim that a default destroys
HIGH, LOW = 0.2, 0.02  # intensity of default for u below 50, and above 70; linear between
HIGH_BELOW, LOW_ABOVE = 50.0, 70.0

# Two runs of an independent multilevel Picard, 57.294 +- 0.003 (4 levels) and 57.299 +- 0.004 (5 levels), standard errors:
# the middle of, and half-way across, the two intervals of two standard errors, [57.288, 57.300] and [57.291, 57.307].
VALUE, ERROR = 57.2975, 0.0095


class _Default(eqx.Module):
    """F = -(Q(u)/3 + 0.02) u,    Q(u) = 0.2 - 0.009 (u - 50) kept within [0.02, 0.2]."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        slope = (LOW - HIGH) / (LOW_ABOVE - HIGH_BELOW)
        intensity = jnp.clip(HIGH + slope * (u - HIGH_BELOW), LOW, HIGH)
        return -(LOSS * intensity + RATE) * u


class _Terminal(eqx.Module):
    """g = min_i x_i."""

    def __call__(self, x: Array) -> Array:
        return jnp.min(x)


@constructor
def default_risk(dim: int = 100) -> Problem:
    """Nonlinear Black-Scholes with default risk (E, Han & Jentzen, CMS 2017; PNAS 2018), reference at t = 0, x = x0, d = 100.

    u_t + 0.02 <x, grad u> + (0.2^2/2) sum_i x_i^2 d_ii u - (Q(u)/3 + 0.02) u = 0,    u(T, x) = min_i x_i,    T = 1

    Q is 0.2 for u below 50, 0.02 for u above 70, and linear between. x0 = (100, ..., 100).
    """
    dim = dimension(dim)
    known = Reference(
        OnePoint(VALUE, SPOT),
        ERROR,
        "two multilevel Picard runs of 4 and 5 levels, the middle of their intervals of two standard errors; published 57.300",
    )
    return Problem(
        dim=dim,
        horizon=HORIZON,
        dynamics=GeometricBrownian(RATE, VOLATILITY),
        nonlinearity=_Default(),
        terminal=_Terminal(),
        name="default_risk",
        reference=known if dim == 100 else None,
        x0=np.full(dim, SPOT),
    )
