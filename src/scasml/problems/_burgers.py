"""Two Burgers equations with a logistic travelling wave, u = 1 / (1 + exp(-(t + k sum x)))."""

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
from ._zoo import ROUNDING, constructor, dimension

BURGERS_PAPER = math.sqrt(2.0)
"""sigma0 in the text of the SCaSML paper."""

BURGERS_TABLE = 0.25
"""sigma0 in the paper's public code; its Table 1 was made with this one."""


class _Convection(eqx.Module):
    """F = scale (u - shift) sum z."""

    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True)

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return self.scale * (u - self.shift) * jnp.sum(z)


class _Terminal(eqx.Module):
    """g = logistic(T + slope sum x)."""

    horizon: float = eqx.field(static=True)
    slope: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return jax.nn.sigmoid(self.horizon + self.slope * jnp.sum(x))


@dataclass(frozen=True)
class _Wave:
    """u = logistic(t + slope sum x)."""

    slope: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        return expit(t + self.slope * np.sum(x, axis=-1))


@constructor
def burgers(
    dim: int = 20,
    sigma0: float = BURGERS_TABLE,
    drift_in: Literal["paths", "nonlinearity"] = "paths",
) -> Problem:
    """Viscous Burgers (E, Hutzenthaler, Jentzen & Kruse, JSC 2019; SCaSML paper), exact solution u = logistic(t + sum x).

    u_t - (1/d + sigma0^2/2) sum_i d_i u + (sigma0^2/2) Lap u + sigma0^2 u sum_i d_i u = 0,    T = 1/2

    The SCaSML paper's text has sigma0 = sqrt 2 (`BURGERS_PAPER`); its public code and Table 1 have 0.25 (`BURGERS_TABLE`).

    `drift_in` says who carries the linear convection: "paths" makes it the drift of the diffusion,
    as the SCaSML paper does, "nonlinearity" leaves the paths driftless and puts it into F.
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
        nonlinearity=_Convection(sigma0, 0.0 if in_paths else speed / sigma0**2),
        terminal=_Terminal(horizon, 1.0),
        name="burgers",
        domain=Box(-0.5, 0.5),
        reference=Reference(
            _Wave(1.0),
            ROUNDING,
            "exact, u = logistic(t + sum x) (E, Hutzenthaler, Jentzen & Kruse 2019)",
        ),
    )


@constructor
def burgers_type(dim: int = 50) -> Problem:
    """Burgers-type equation (E, Han & Jentzen, CMS 2017), exact solution u = logistic(t + sum x / d).

    u_t + (d^2/2) Lap u + (u - (2 + d)/(2 d)) sum z = 0,    z = d grad u,    T = 0.2
    """
    dim = dimension(dim)
    horizon = 0.2
    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=float(dim),
        nonlinearity=_Convection(1.0, (2 + dim) / (2 * dim)),
        terminal=_Terminal(horizon, 1 / dim),
        name="burgers_type",
        reference=Reference(
            _Wave(1 / dim), ROUNDING, "exact, u = logistic(t + sum x / d) (E, Han & Jentzen 2017)"
        ),
    )
