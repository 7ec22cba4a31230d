"""The law with its first order moved into the paths: law -> law. Exact; what is left of F is of second order.

    F(t, x, v, z) = F(t, x, 0, 0) + a v + <b, z> + R(t, x, v, z),    a = F_u and b = F_z at (t, x, 0, 0)

    v_t + <mu + sigma b, grad v> + 1/2 Tr(sigma sigma^T Hess v) + a v + F(t, x, 0, 0) + R(t, x, v, z) = 0

So paths drift by sigma b more, and grow by e^{int a}. Of a law of defect a and b are those at the surrogate, and R is of the
second order in its error.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._support.tracing import cached_by_structure
from ..paths import AbstractDynamics
from ..paths.coefficients import diffuse
from .problem import AbstractEquation, Solution


class LinearisedEquation(AbstractEquation):
    equation: AbstractEquation
    dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    dynamics: AbstractDynamics  # without the tilt
    uses_u: bool = eqx.field(static=True)
    uses_z: bool = eqx.field(static=True)
    zero_terminal: bool = eqx.field(static=True)

    def __init__(self, equation: AbstractEquation):
        self.equation, self.dynamics = equation, equation.dynamics
        self.dim, self.horizon = equation.dim, equation.horizon
        self.uses_u, self.uses_z, self.zero_terminal = (
            equation.uses_u,
            equation.uses_z,
            equation.zero_terminal,
        )

    def terminal(self, x: Array) -> Array:
        return self.equation.terminal(x)

    def source(self, t: Array, x: Array, key: PRNGKeyArray) -> Array:
        return self.equation.source(t, x, key)

    def nonlinearity(self, t: Array, x: Array, u: Array, z: Array, key: PRNGKeyArray) -> Array:
        return self.difference(t, x, Solution(u, z), _nothing(t, x)) + self.source(t, x, key)

    def difference(self, t: Array, x: Array, new: Solution, old: Solution) -> Array:
        """R(new) - R(old)."""
        a, b = self._slopes(t, x)
        return self.equation.difference(t, x, new, old) - a * (new.u - old.u) - b @ (new.z - old.z)

    def heading(self, t: Array, x: Array) -> Array:
        return self.equation.heading(t, x)

    def tilt(self, t: Array, x: Array) -> tuple[Array, Array]:
        """sigma b and a."""
        a, b = self._slopes(t, x)
        return diffuse(self.diffusion(t, x), b), a

    def _slopes(self, t: Array, x: Array) -> Solution:
        nothing = _nothing(t, x)
        return jax.grad(lambda new: self.equation.difference(t, x, new, nothing))(nothing)


def _nothing(t: Array, x: Array) -> Solution:
    return Solution(jnp.zeros_like(t), jnp.zeros_like(x))


@cached_by_structure
def is_affine(equation: AbstractEquation) -> bool:
    """Whether R is zero: the code of the slopes of F in u and z reads neither. F = u * u / u counts as curved."""
    scalar, vector = (
        jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in ((), (equation.dim,))
    )

    def slopes(t: Array, x: Array, u: Array, z: Array) -> Solution:
        return jax.grad(lambda new: equation.difference(t, x, new, _nothing(t, x)))(Solution(u, z))

    jaxpr = jax.make_jaxpr(slopes)(scalar, vector, scalar, vector).jaxpr
    read = {id(v) for v in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if any(id(v) in read for v in equation.outvars):
            read |= {id(v) for v in equation.invars}
    return not any(id(v) in read for v in jaxpr.invars[2:])
