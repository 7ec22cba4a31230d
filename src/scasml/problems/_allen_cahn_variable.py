"""Allen-Cahn where the noise depends on the state, with a source that makes sin(t + sum x / sqrt d) the solution."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from ._zoo import ROUNDING, constructor, dimension

HORIZON = 0.5
AMPLITUDE = 0.3


class _Diffusion(eqx.Module):
    """sigma_i = 1 + 0.3 sin x_i, a diagonal."""

    def __call__(self, t: Array, x: Array) -> Array:
        return 1 + AMPLITUDE * jnp.sin(x)


class _Reaction(eqx.Module):
    """F = u - u^3 + f,    f = -(u*_t + 1/2 sum_i sigma_i^2 d_ii u* + u* - u*^3),    u* = sin(phase).

    d_ii u* = -sin(phase)/d, so the second term is the mean of sigma_i^2 times -sin(phase)/2.
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


@constructor
def allen_cahn_variable(dim: int = 20) -> Problem:
    """Allen-Cahn with state-dependent noise, manufactured to have the exact solution u = sin(t + sum x / sqrt d).

    u_t + 1/2 sum_i (1 + 0.3 sin x_i)^2 d_ii u + u - u^3 + f(t, x) = 0,    u(T, x) = sin(T + sum x / sqrt d),    T = 1/2

    f is what makes it so. x0 = (1, ..., 1)/sqrt d, where u = sin 1.
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
