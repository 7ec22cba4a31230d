"""The equation that the defect u - uh of a surrogate uh solves, without approximation.

An equation and a surrogate come in, the equation of the defect v = u - uh comes out.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._support.errors import ArgumentTypeError, brief
from .._support.tracing import same_function
from ..paths import AbstractDynamics
from ..paths.coefficients import diffuse_transposed
from .base import AbstractEquation, Solution, require_equation
from .generator import Generator, Hutchinson
from .problem import Problem
from .surrogate import AbstractSurrogate


class Defect(AbstractEquation):
    """The equation of the defect v = u - uh.

    It has the residual eps, the terminal condition gb and the nonlinearity Fb, with
    zh = sigma^T grad uh and z = sigma^T grad v:

        eps(t, x)      = uh_t + <mu, grad uh> + 1/2 Tr(sigma sigma^T Hess uh) + F(t, x, uh, zh)
        gb(x)          = g(x) - uh(T, x)
        Fb(t, x, v, z) = F(t, x, uh + v, zh + z) - F(t, x, uh, zh) + eps(t, x)

    `surrogate` must be an `AbstractSurrogate`, such as the result of `scasml.surrogates.wrap`;
    anything else raises ArgumentTypeError. With `hutchinson`, the trace in the residual eps is
    estimated from random columns of sigma.
    """

    equation: AbstractEquation
    surrogate: AbstractSurrogate
    generator: Generator
    dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    dynamics: AbstractDynamics
    uses_u: bool = eqx.field(static=True)
    uses_z: bool = eqx.field(static=True)
    zero_terminal: bool = eqx.field(static=True)

    def __init__(
        self,
        equation: AbstractEquation,
        surrogate: AbstractSurrogate,
        hutchinson: Hutchinson | None = None,
    ):
        require_equation(equation)
        if not isinstance(surrogate, AbstractSurrogate):
            raise ArgumentTypeError(
                "surrogate must be made by scasml.surrogates.wrap for Defect, "
                f"got {brief(surrogate)}: wrap it first."
            )
        self.equation, self.surrogate = equation, surrogate
        self.generator = Generator(equation, self.surrogate, hutchinson)
        self.dim, self.horizon = equation.dim, equation.horizon
        self.dynamics = equation.dynamics
        self.uses_u, self.uses_z = equation.uses_u, equation.uses_z
        self.zero_terminal = isinstance(equation, Problem) and same_function(
            self.surrogate.terminal_function, equation.terminal_fn
        )

    def terminal(self, x: Array) -> Array:
        return self.equation.terminal(x) - self.surrogate(jnp.asarray(self.horizon, x.dtype), x)

    def source(self, t: Array, x: Array, key: PRNGKeyArray) -> Array:
        """Return the residual eps.

        With `hutchinson`, the trace is drawn from `key`; uh and zh are exact. eps is linear in the
        trace, so its mean is right. F is not linear in its arguments u and z.
        """
        trace_key, key = jax.random.split(key)
        u, z, parabolic = self.generator(t, x, trace_key)
        return parabolic + self.equation.nonlinearity(t, x, u, z, key)

    def nonlinearity(self, t: Array, x: Array, u: Array, z: Array, key: PRNGKeyArray) -> Array:
        return self.difference(t, x, Solution(u, z), Solution.zero(t, x)) + self.source(t, x, key)

    def difference(self, t: Array, x: Array, new: Solution, old: Solution) -> Array:
        uh, zh = self._surrogate(t, x)
        return self.equation.difference(
            t, x, Solution(uh + new.u, zh + new.z), Solution(uh + old.u, zh + old.z)
        )

    def heading(self, t: Array, x: Array) -> Array:
        """Return zh = sigma^T grad uh."""
        return diffuse_transposed(self.diffusion(t, x), jax.grad(self.surrogate, argnums=1)(t, x))

    def _surrogate(self, t: Array, x: Array) -> Solution:
        """Return uh and zh. If F does not depend on z, return 0 for zh to save the gradient."""
        if not self.uses_z:
            return Solution(self.surrogate(t, x), jnp.zeros_like(x))
        value, gradient = jax.value_and_grad(self.surrogate, argnums=1)(t, x)
        return Solution(value, diffuse_transposed(self.diffusion(t, x), gradient))
