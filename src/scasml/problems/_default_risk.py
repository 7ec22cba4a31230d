"""The price of a claim whose issuer may default. The default intensity depends on the price.

`default_risk` builds the problem. Its solution is known at one point only.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._equations.problem import Problem, Reference
from ..paths import GeometricBrownian
from ._zoo import dimension, zoo
from .references.one_point import OnePoint

HORIZON = 1.0
RATE, VOLATILITY, SPOT = 0.02, 0.2, 100.0
LOSS = 1 / 3  # the fraction of the claim that a default destroys
# The default intensity is HIGH for u < HIGH_BELOW and LOW for u > LOW_ABOVE, and linear between.
HIGH, LOW = 0.2, 0.02
HIGH_BELOW, LOW_ABOVE = 50.0, 70.0

# The midpoint and the half width of the union of two intervals; see docs/design/problems.md.
VALUE, ERROR = 57.2975, 0.0095


class _Default(eqx.Module):
    """F = -(Q(u)/3 + 0.02) u, where Q(u) is 0.2 - 0.009 (u - 50), clipped to [0.02, 0.2]."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        slope = (LOW - HIGH) / (LOW_ABOVE - HIGH_BELOW)
        intensity = jnp.clip(HIGH + slope * (u - HIGH_BELOW), LOW, HIGH)
        return -(LOSS * intensity + RATE) * u


class _Terminal(eqx.Module):
    """g = min_i x_i."""

    def __call__(self, x: Array) -> Array:
        return jnp.min(x)


@zoo
def default_risk(dim: int = 100) -> Problem:
    """Black-Scholes with default risk (E, Han & Jentzen, CMS 2017), reference at one point.

    u_t + 0.02 <x, grad u> + (0.2^2/2) sum_i x_i^2 d_ii u - (Q(u)/3 + 0.02) u = 0
    u(T, x) = min_i x_i,    T = 1

    Q is 0.2 for u below 50, 0.02 for u above 70, and linear between. x0 = (100, ..., 100). The
    reference is known at t = 0, x = x0 for d = 100. The problem is also in PNAS 2018.
    """
    dim = dimension(dim)
    known = Reference(
        OnePoint(VALUE, SPOT),
        ERROR,
        "two multilevel Picard runs of 4 and 5 levels, the middle of their intervals of two "
        "standard errors; published 57.300",
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
