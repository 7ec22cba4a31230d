"""The Hamilton-Jacobi-Bellman equation of LQG control with random coefficients in g.

`lqg` builds the problem. Its reference is an exact one-dimensional integral.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.domain import Ball
from .._equations.problem import Problem, Reference
from .._support.errors import whole
from ._zoo import QuadraticHamiltonian, dimension, final_time, zoo
from .references.log_quadratic import ACCURACY, SOURCE, Chain, LogQuadratic, chain_coefficients


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


@zoo
def lqg(dim: int = 100, horizon: float = 0.5, seed: int = 0) -> Problem:
    """LQG control with random coefficients (SCaSML paper), reference by an exact 1-d integral.

    u_t + Lap u - |grad u|^2 = 0
    u(T, x) = ln((1 + sum_{i<d} [c1_i (x_i - x_{i+1})^2 + c2_i x_{i+1}^2])/2)

    c1 and c2 are drawn once each from U[1/2, 3/2]^(d-1) with `seed`, so g is a fixed function. The
    text of the SCaSML paper has T = 1/2. Its public code has T = 1 and draws new coefficients for
    every point.
    """
    dim, horizon = dimension(dim, at_least=2), final_time(horizon)
    seed = whole("seed", seed, 0, "pass the seed of the coefficients c1 and c2")
    c1, c2 = chain_coefficients(dim, seed)
    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=np.sqrt(2.0),
        nonlinearity=QuadraticHamiltonian(),
        terminal=_ChainTerminal(c1, c2),
        name="lqg",
        domain=Ball(1.0),
        reference=Reference(LogQuadratic(Chain(dim, seed), horizon), ACCURACY, SOURCE),
    )
