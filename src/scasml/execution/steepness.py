"""How steep F is over the time that is left: in u, (T - t) |a|, and in z, (T - t) |b|^2, with a = F_u and b = F_z.

To first order a defect v solves a linear law, v_t + L v + a v + <b, z> + eps = 0. Picard's iteration is the power series in a and b of
its solution, whose terms go by the sum of the two as those of an exponential do. Where it is larger than 1 the first increments say nothing
of the sum: for Burgers' equation in 20 dimensions with sigma0 = sqrt 2 it is 3 to 19, and the defect was 10 times the second increment and
200 times the first. The linearised law has b in its paths, for whatever b, and e^{int a} on them: where that spans too many orders, what
counts happens on paths that no sample sees.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import AbstractEquation, Solution
from ..paths.coefficients import diffuse_transposed
from . import at_points
from .moments import Floats


def steepness_at(
    equation: AbstractEquation,
    t: NDArray[Any],
    x: NDArray[Any],
    u: NDArray[Any],
    slope: NDArray[Any],
) -> tuple[Floats, Floats]:
    """In u and in z at each point, at the solution (u, slope) of the law; that of a law of defect is 0 at the surrogate."""
    return at_points(_Steepness(equation), t, x, u.astype(x.dtype), slope.astype(x.dtype))


class _Steepness(eqx.Module):
    equation: AbstractEquation

    def __call__(self, t: Array, x: Array, u: Array, slope: Array) -> tuple[Array, Array]:
        here = Solution(u, diffuse_transposed(self.equation.diffusion(t, x), slope))
        a, b = jax.grad(lambda new: self.equation.difference(t, x, new, here))(here)
        left = self.equation.horizon - t
        return left * jnp.abs(a), left * (b @ b)
