"""Steepness of F over the remaining time: (T - t) |a| in u and (T - t) |b|^2 in z.

Here a = F_u and b = F_z. `steepness_at` returns both at each point. `terminal_slope` returns a
rough gradient, at which F is differentiated if no gradient is estimated.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.base import AbstractEquation, Solution
from .._support.types import Floats
from ..paths import Stepped
from ..paths.coefficients import diffuse_transposed
from .compilation import AbstractProbe
from .executor import AbstractExecutor
from .points import PROBES, Points, stream

# Steps and number of the Euler paths that probe where paths go.
PROBE_STEPS, PROBE_PATHS = 16, 64


def steepness_at(
    executor: AbstractExecutor,
    equation: AbstractEquation,
    t: NDArray[Any],
    x: NDArray[Any],
    u: NDArray[Any],
    slope: NDArray[Any],
) -> tuple[Floats, Floats]:
    """Return the steepness in u and in z at each point, (points,) each.

    To first order, a defect v solves v_t + L v + a v + <b, z> + eps = 0 with the generator L of X
    and the residual eps. Picard iteration is the power series of v in a and b. Its terms behave
    like those of the exponential series in the sum of the two steepnesses. If that sum exceeds 1,
    the first increments do not show how large the later ones are. The linearised equation moves b
    of any size into its paths, and gives paths the factor exp(int a). If that factor spans too many
    orders of magnitude, very few samples determine the mean.

    F is differentiated at `u` (points,) and the gradient `slope` (points, d), which should be close
    to the solution of `equation`. For the equation of a defect, zeros stand for the surrogate.
    """
    columns = (t, x, u.astype(x.dtype), slope.astype(x.dtype))
    return executor.map(_Steepness(equation), *columns)


def terminal_slope(
    executor: AbstractExecutor, equation: AbstractEquation, points: Points
) -> Floats:
    """Return the gradient in x of the mean of g over probe paths, shape (points, d).

    This is a rough estimate of grad u that ignores F, for runs that estimate no gradient.
    """
    found = executor.map(_TerminalSlope(equation), points.t, points.x, points.key)
    return found.astype(np.float64)


class _TerminalSlope(AbstractProbe):
    equation: AbstractEquation

    def __call__(self, t: Array, x: Array, key: Array) -> Array:
        equation = self.equation
        paths = equation.dynamics.exact or Stepped(
            dynamics=equation.dynamics, scheme="euler", steps=PROBE_STEPS
        )
        keys = jax.random.split(stream(key, PROBES), PROBE_PATHS)

        def mean(x: Array) -> Array:
            end = lambda key: paths.jump(key, t, x, equation.horizon - t, False).x
            return jnp.mean(jax.vmap(equation.terminal)(jax.vmap(end)(keys)))

        return jax.grad(mean)(x)


class _Steepness(AbstractProbe):
    equation: AbstractEquation

    def __call__(self, t: Array, x: Array, u: Array, slope: Array) -> tuple[Array, Array]:
        solution = Solution(u, diffuse_transposed(self.equation.diffusion(t, x), slope))
        f = lambda new: self.equation.difference(t, x, new, solution)
        a, b = jax.grad(f)(solution)
        remaining = self.equation.horizon - t
        return remaining * jnp.abs(a), remaining * (b @ b)
