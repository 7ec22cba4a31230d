"""Hamilton-Jacobi-Bellman equations of linear-quadratic-Gaussian control, with an exact one-dimensional integral."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.domain import Ball
from .._equations.problem import Problem, Reference
from .._support.errors import whole
from ._zoo import constructor, dimension, final_time
from .references.log_quadratic import ACCURACY, Chain, Identity, LogQuadratic, chain_coefficients

SOURCE = "Hopf-Cole and 1/(1+q) = int_0^inf exp(-s(1+q)) ds: a one-dimensional integral, double-exponential rule"


class _Hamiltonian(eqx.Module):
    """F = -|z|^2/2, which is -|grad u|^2."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return -0.5 * jnp.sum(jnp.square(z))


class _Terminal(eqx.Module):
    """g = ln((1 + |x|^2)/2)."""

    def __call__(self, x: Array) -> Array:
        return jnp.log1p(jnp.sum(jnp.square(x))) - math.log(2.0)


class _ChainTerminal(eqx.Module):
    """g = ln((1 + sum_{i<d} [c1_i (x_i - x_{i+1})^2 + c2_i x_{i+1}^2])/2)."""

    c1: NDArray[np.float64]
    c2: NDArray[np.float64]

    def __call__(self, x: Array) -> Array:
        c1, c2 = jnp.asarray(self.c1, x.dtype), jnp.asarray(self.c2, x.dtype)
        ahead = x[1:]
        return jnp.log1p(
            jnp.sum(c1 * jnp.square(x[:-1] - ahead) + c2 * jnp.square(ahead))
        ) - math.log(2.0)


@constructor
def hjb(dim: int = 100, horizon: float = 1.0) -> Problem:
    """HJB-LQG (Han, Jentzen & E, PNAS 2018), reference by an exact one-dimensional integral.

    u_t + Lap u - |grad u|^2 = 0,    u(T, x) = ln((1 + |x|^2)/2)
    """
    dim, horizon = dimension(dim), final_time(horizon)
    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=np.sqrt(2.0),
        nonlinearity=_Hamiltonian(),
        terminal=_Terminal(),
        name="hjb",
        domain=Ball(1.0),
        reference=Reference(LogQuadratic(Identity(dim), horizon), ACCURACY, SOURCE),
    )


@constructor
def lqg(dim: int = 100, horizon: float = 0.5, seed: int = 0) -> Problem:
    """LQG control with random coefficients (SCaSML paper), reference by an exact one-dimensional integral.

    u_t + Lap u - |grad u|^2 = 0
    u(T, x) = ln((1 + sum_{i<d} [c1_i (x_i - x_{i+1})^2 + c2_i x_{i+1}^2])/2)

    c1 and c2 are one draw from U[1/2, 3/2]^(d-1) each, made from `seed`: g is one function. (The paper's
    text has T = 1/2, its public code T = 1 and fresh coefficients for every point.)
    """
    dim, horizon = dimension(dim, at_least=2), final_time(horizon)
    seed = whole("seed", seed, 0, "pass the seed of the coefficients c1 and c2")
    c1, c2 = chain_coefficients(dim, seed)
    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=np.sqrt(2.0),
        nonlinearity=_Hamiltonian(),
        terminal=_ChainTerminal(c1, c2),
        name="lqg",
        domain=Ball(1.0),
        reference=Reference(LogQuadratic(Chain(dim, seed), horizon), ACCURACY, SOURCE),
    )
