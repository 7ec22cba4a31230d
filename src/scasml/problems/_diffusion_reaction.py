"""A diffusion-reaction equation whose reaction is zero at an oscillating solution u*.

`diffusion_reaction` builds the problem. u* also solves the heat equation, so it is the solution.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.domain import Ball
from .._equations.problem import Problem, Reference
from .._support.errors import positive
from ._zoo import ROUNDING, dimension, zoo

HORIZON = 1.0
MEAN = 1.6


class _Reaction(eqx.Module):
    """F = min(1, (u - u*)^2), where u* = 1.6 + sin(l sum x) exp(l^2 d (t - T)/2).

    `frequency` is l and `rate` is l^2 d/2.
    """

    frequency: float = eqx.field(static=True)
    rate: float = eqx.field(static=True)

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        solution = MEAN + jnp.sin(self.frequency * jnp.sum(x)) * jnp.exp(self.rate * (t - HORIZON))
        return jnp.minimum(1.0, jnp.square(u - solution))


class _Terminal(eqx.Module):
    """g = 1.6 + sin(l sum x)."""

    frequency: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return MEAN + jnp.sin(self.frequency * jnp.sum(x))


@dataclass(frozen=True)
class _Oscillation:
    """The exact solution u* = 1.6 + sin(l sum x) exp(l^2 d (t - T)/2)."""

    frequency: float
    rate: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        return MEAN + np.sin(self.frequency * np.sum(x, axis=-1)) * np.exp(
            self.rate * (t - HORIZON)
        )


@zoo
def diffusion_reaction(dim: int = 100, frequency: float = 0.1) -> Problem:
    """Oscillating diffusion-reaction (Gobet & Turkedjiev 2017), exact solution u*.

    u_t + 1/2 Lap u + min(1, (u - u*)^2) = 0,    u(1, x) = 1.6 + sin(l sum x)
    u* = 1.6 + sin(l sum x) exp(l^2 d (t - 1)/2)

    l is `frequency`. It is 0.1 in the SCaSML paper and d^-1/2 in Gobet & Turkedjiev.
    """
    dim = dimension(dim)
    frequency = positive("frequency", frequency, "pass the l of sin(l sum x)")
    rate = frequency**2 * dim / 2
    return Problem(
        dim=dim,
        horizon=HORIZON,
        diffusion=1.0,
        nonlinearity=_Reaction(frequency, rate),
        terminal=_Terminal(frequency),
        name="diffusion_reaction",
        domain=Ball(1.0),
        reference=Reference(
            _Oscillation(frequency, rate), ROUNDING, "exact, u = u* (Gobet & Turkedjiev 2017)"
        ),
    )
