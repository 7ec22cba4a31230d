"""An equation whose first order in u and z is moved into the paths, without approximation.

An equation comes in, a `LinearisedEquation` comes out. Its nonlinearity has no first order in u and
z. Its method `tilt` returns the first order, as an additional drift and a potential of the paths.
"""

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from ..paths import AbstractDynamics
from ..paths.coefficients import diffuse
from .base import AbstractEquation, Solution


class LinearisedEquation(AbstractEquation):
    """The equation with F(t, x, 0, 0) + R in the place of F.

    With a = F_u and b = F_z at (t, x, 0, 0), the solution v and z = sigma^T grad v satisfy

        F(t, x, v, z) = F(t, x, 0, 0) + a v + <b, z> + R(t, x, v, z)

        v_t + <mu + sigma b, grad v> + 1/2 Tr(sigma sigma^T Hess v) + a v
            + F(t, x, 0, 0) + R(t, x, v, z) = 0

    The paths have the additional drift sigma b, and each path carries the factor exp(int a dt) of
    the potential a. For the defect of a surrogate, a and b are the derivatives at the surrogate,
    and R is of second order in its error.

    `tilt` returns the first order of F as a drift and a potential. `dynamics` is that of the
    original equation, so it does not contain them. `LevelPaths` of `Linearised` takes both.
    """

    equation: AbstractEquation
    dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    dynamics: AbstractDynamics
    uses_u: bool = eqx.field(static=True)
    uses_z: bool = eqx.field(static=True)
    zero_terminal: bool = eqx.field(static=True)

    def __init__(self, equation: AbstractEquation):
        self.equation, self.dynamics = equation, equation.dynamics
        self.dim, self.horizon = equation.dim, equation.horizon
        self.uses_u, self.uses_z = equation.uses_u, equation.uses_z
        self.zero_terminal = equation.zero_terminal

    def terminal(self, x: Array) -> Array:
        return self.equation.terminal(x)

    def source(self, t: Array, x: Array, key: PRNGKeyArray) -> Array:
        return self.equation.source(t, x, key)

    def nonlinearity(self, t: Array, x: Array, u: Array, z: Array, key: PRNGKeyArray) -> Array:
        return self.difference(t, x, Solution(u, z), Solution.zero(t, x)) + self.source(t, x, key)

    def difference(self, t: Array, x: Array, new: Solution, old: Solution) -> Array:
        """Return R(t, x, new) - R(t, x, old)."""
        a, b = self._slopes(t, x)
        return self.equation.difference(t, x, new, old) - a * (new.u - old.u) - b @ (new.z - old.z)

    def heading(self, t: Array, x: Array) -> Array:
        return self.equation.heading(t, x)

    def tilt(self, t: Array, x: Array) -> tuple[Array, Array]:
        """Return the additional drift sigma b, (d,), and the potential a, a scalar."""
        a, b = self._slopes(t, x)
        return diffuse(self.diffusion(t, x), b), a

    def _slopes(self, t: Array, x: Array) -> Solution:
        """Return a = F_u, a scalar, and b = F_z, (d,), at (t, x, 0, 0), as a `Solution`."""
        zero = Solution.zero(t, x)
        return jax.grad(lambda new: self.equation.difference(t, x, new, zero))(zero)
