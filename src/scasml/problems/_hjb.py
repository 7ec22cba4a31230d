"""The Hamilton-Jacobi-Bellman equation of linear-quadratic-Gaussian (LQG) control.

`hjb` builds the problem. Its reference is an exact one-dimensional integral.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._equations.domain import Ball
from .._equations.problem import Problem, Reference
from ._zoo import QuadraticHamiltonian, dimension, final_time, zoo
from .references.log_quadratic import ACCURACY, SOURCE, Identity, LogQuadratic


class _Terminal(eqx.Module):
    """g = ln((1 + |x|^2)/2)."""

    def __call__(self, x: Array) -> Array:
        return jnp.log1p(jnp.sum(jnp.square(x))) - math.log(2.0)


@zoo
def hjb(dim: int = 100, horizon: float = 1.0) -> Problem:
    """HJB-LQG (Han, Jentzen & E, PNAS 2018), reference by an exact one-dimensional integral.

    u_t + Lap u - |grad u|^2 = 0,    u(T, x) = ln((1 + |x|^2)/2)
    """
    dim, horizon = dimension(dim), final_time(horizon)
    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=np.sqrt(2.0),
        nonlinearity=QuadraticHamiltonian(),
        terminal=_Terminal(),
        name="hjb",
        domain=Ball(1.0),
        reference=Reference(LogQuadratic(Identity(dim), horizon), ACCURACY, SOURCE),
    )
