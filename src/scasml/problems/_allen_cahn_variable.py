"""The Allen-Cahn equation with a diffusion that depends on x.

`allen_cahn_variable` builds the problem. A source term makes u = sin(t + sum x / sqrt d) its
solution.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from ._zoo import ROUNDING, dimension, zoo

HORIZON = 0.5
AMPLITUDE = 0.3


class _Diffusion(eqx.Module):
    """The diagonal of sigma: sigma_i = 1 + 0.3 sin x_i."""

    def __call__(self, t: Array, x: Array) -> Array:
        return 1 + AMPLITUDE * jnp.sin(x)


class _Reaction(eqx.Module):
    """F = u - u^3 + f,    f = -(u*_t + 1/2 sum_i sigma_i^2 d_ii u* + u* - u*^3).

    Here u* = sin(phase) is the solution, with phase = t + sum x / sqrt d. Since
    d_ii u* = -sin(phase)/d, the second term of f is the mean of sigma_i^2 times -sin(phase)/2.
    """

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        phase = t + jnp.sum(x) / math.sqrt(x.size)
        sine = jnp.sin(phase)
        half = 0.5 * jnp.mean(jnp.square(1 + AMPLITUDE * jnp.sin(x)))
        return u - u**3 - jnp.cos(phase) + (half - 1) * sine + sine**3


class _Terminal(eqx.Module):
    """g = sin(T + sum x / sqrt d)."""

    def __call__(self, x: Array) -> Array:
        return jnp.sin(HORIZON + jnp.sum(x) / math.sqrt(x.size))


def _exact(t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    return np.sin(t + np.sum(x, axis=-1) / np.sqrt(x.shape[-1]))


@zoo
def allen_cahn_variable(dim: int = 20) -> Problem:
    """Allen-Cahn with diffusion that depends on x, exact solution u = sin(t + sum x / sqrt d).

    u_t + 1/2 sum_i (1 + 0.3 sin x_i)^2 d_ii u + u - u^3 + f(t, x) = 0
    u(T, x) = sin(T + sum x / sqrt d),    T = 1/2

    The source f is chosen such that this is the solution. x0 = (1, ..., 1)/sqrt d, where
    u(0, x0) = sin 1.
    """
    dim = dimension(dim)
    return Problem(
        dim=dim,
        horizon=HORIZON,
        diffusion=_Diffusion(),
        nonlinearity=_Reaction(),
        terminal=_Terminal(),
        name="allen_cahn_variable",
        reference=Reference(_exact, ROUNDING, "exact, u = sin(t + sum x / sqrt d), manufactured"),
        x0=np.full(dim, 1 / math.sqrt(dim)),
    )
