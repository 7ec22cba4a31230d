"""The viscous Burgers equation, whose solution is a logistic travelling wave.

`burgers` builds the problem. `Convection`, `LogisticTerminal` and `LogisticWave` also serve
`burgers_type`.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from scipy.special import expit

from .._equations.domain import Box
from .._equations.problem import Problem, Reference
from .._support.errors import ArgumentError, positive
from ._zoo import ROUNDING, dimension, zoo

BURGERS_PAPER = math.sqrt(2.0)
"""sigma0 in the text of the SCaSML paper."""

BURGERS_TABLE = 0.25
"""sigma0 in the public code of the SCaSML paper, which produced its Table 1."""


class Convection(eqx.Module):
    """F = scale (u - shift) sum z."""

    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True)

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return self.scale * (u - self.shift) * jnp.sum(z)


class LogisticTerminal(eqx.Module):
    """g = logistic(T + slope sum x)."""

    horizon: float = eqx.field(static=True)
    slope: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return jax.nn.sigmoid(self.horizon + self.slope * jnp.sum(x))


@dataclass(frozen=True)
class LogisticWave:
    """The exact solution u = logistic(t + slope sum x)."""

    slope: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        return expit(t + self.slope * np.sum(x, axis=-1))


@zoo
def burgers(
    dim: int = 20,
    sigma0: float = BURGERS_TABLE,
    drift_in: Literal["paths", "nonlinearity"] = "paths",
) -> Problem:
    """Viscous Burgers equation (SCaSML paper), exact solution u = logistic(t + sum x).

    u_t - (1/d + sigma0^2/2) sum_i d_i u + (sigma0^2/2) Lap u + sigma0^2 u sum_i d_i u = 0
    T = 1/2

    The equation is from E, Hutzenthaler, Jentzen & Kruse (JSC 2019). The text of the SCaSML paper
    has sigma0 = sqrt 2 (`BURGERS_PAPER`). Its public code and its Table 1 have 0.25
    (`BURGERS_TABLE`).

    `drift_in` says where the linear convection goes. With "paths" it is the drift of the paths, as
    in the SCaSML paper. With "nonlinearity" it is a term of F, and the paths have no drift.
    """
    dim = dimension(dim)
    sigma0 = positive(
        "sigma0", sigma0, "pass the diffusion coefficient, such as BURGERS_PAPER or BURGERS_TABLE"
    )
    if drift_in not in ("paths", "nonlinearity"):
        raise ArgumentError(
            f'drift_in must be "paths" or "nonlinearity", got {drift_in!r}: pick one of the two.'
        )
    horizon, speed = 0.5, 1 / dim + sigma0**2 / 2
    # z = sigma0 grad u, so speed * sum_i d_i u = sigma0 * (speed / sigma0^2) * sum z.
    in_paths = drift_in == "paths"
    return Problem(
        dim=dim,
        horizon=horizon,
        drift=-speed if in_paths else 0.0,
        diffusion=sigma0,
        nonlinearity=Convection(sigma0, 0.0 if in_paths else speed / sigma0**2),
        terminal=LogisticTerminal(horizon, 1.0),
        name="burgers",
        domain=Box(-0.5, 0.5),
        reference=Reference(
            LogisticWave(1.0),
            ROUNDING,
            "exact, u = logistic(t + sum x) (E, Hutzenthaler, Jentzen & Kruse 2019)",
        ),
    )
