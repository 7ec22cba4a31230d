"""Linear convection-diffusion with a linear solution.

`convection_diffusion` builds the problem.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.domain import Box
from .._equations.problem import Problem, Reference
from ._zoo import ROUNDING, dimension, zoo

HORIZON = 0.5


class _Terminal(eqx.Module):
    """g = sum x + T."""

    horizon: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return jnp.sum(x) + self.horizon


def _exact(t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    return np.sum(x, axis=-1) + t


@zoo
def convection_diffusion(dim: int = 10) -> Problem:
    """Linear convection-diffusion of the SCaSML paper, exact solution u = sum x + t.

    u_t - (1/d) sum_i d_i u + Lap u = 0,    u(T, x) = sum x + T,    T = 1/2
    """
    dim = dimension(dim)
    return Problem(
        dim=dim,
        horizon=HORIZON,
        drift=-1 / dim,
        diffusion=np.sqrt(2.0),
        terminal=_Terminal(HORIZON),
        name="convection_diffusion",
        domain=Box(0.0, 0.5),
        reference=Reference(_exact, ROUNDING, "exact, u = sum x + t (SCaSML paper)"),
    )
