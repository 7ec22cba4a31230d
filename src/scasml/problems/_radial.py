"""The Allen-Cahn and sine-Gordon equations with g = 1/(2 + 0.4 |x|^2).

`allen_cahn` and `sine_gordon` build the problems. Their solutions depend on t and |x| only, so the
references solve an equation with one space variable.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Nonlinearity, Problem, Reference
from .._support.errors import positive
from ._zoo import dimension, final_time, zoo
from .references.radial import CURVATURE, OFFSET, Radial, Rate, accuracy

SOURCE = "reduction to the radius, Chebyshev collocation in space, DOP853 in time"


class _AllenCahn(eqx.Module):
    """F = u - u^3."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return u - u**3


class _SineGordon(eqx.Module):
    """F = sin u."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return jnp.sin(u)


class _Terminal(eqx.Module):
    """g = 1/(2 + 0.4 |x|^2)."""

    def __call__(self, x: Array) -> Array:
        return 1 / (OFFSET + CURVATURE * jnp.sum(jnp.square(x)))


def _allen_cahn_rate(u: NDArray[Any]) -> NDArray[Any]:
    """Return F(u)/u = 1 - u^2."""
    return 1 - np.square(u)


def _sine_gordon_rate(u: NDArray[Any]) -> NDArray[Any]:
    """Return F(u)/u = sin(u)/u, which is 1 at u = 0."""
    return np.sinc(u / np.pi)


@zoo
def allen_cahn(dim: int = 100, horizon: float = 0.3, sigma: float = math.sqrt(2.0)) -> Problem:
    """Allen-Cahn (Han, Jentzen & E, PNAS 2018), reference by radial reduction.

    u_t + (sigma^2/2) Lap u + u - u^3 = 0,    u(T, x) = 1/(2 + 0.4 |x|^2)
    """
    sigma = positive("sigma", sigma, "pass the diffusion coefficient")
    return _build("allen_cahn", dim, horizon, sigma, _AllenCahn(), _allen_cahn_rate)


@zoo
def sine_gordon(dim: int = 100, horizon: float = 0.3) -> Problem:
    """Sine-Gordon (Beck et al. 2021, deep splitting), reference by radial reduction.

    u_t + Lap u + sin u = 0,    u(T, x) = 1/(2 + 0.4 |x|^2)

    The problem is from Beck, Becker, Cheridito, Jentzen & Neufeld (2021).
    """
    return _build("sine_gordon", dim, horizon, math.sqrt(2.0), _SineGordon(), _sine_gordon_rate)


def _build(
    name: str, dim: int, horizon: float, sigma: float, nonlinearity: Nonlinearity, rate: Rate
) -> Problem:
    """Return the problem with this F, whose ratio F(u)/u is `rate`."""
    dim, horizon = dimension(dim), final_time(horizon)
    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=sigma,
        nonlinearity=nonlinearity,
        terminal=_Terminal(),
        name=name,
        reference=Reference(Radial(rate, dim, horizon, sigma), accuracy(horizon), SOURCE),
    )
