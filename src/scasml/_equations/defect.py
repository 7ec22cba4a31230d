"""The law of defect: (law, surrogate) -> law. Exact; nothing is linearised or dropped.

    eps(t, x)      = uh_t + <mu, grad uh> + 1/2 Tr(sigma sigma^T Hess uh) + F(t, x, uh, zh)
    gb(x)          = g(x) - uh(T, x)
    Fb(t, x, v, z) = F(t, x, uh + v, zh + z) - F(t, x, uh, zh) + eps(t, x)

The defect u - uh solves the law with Fb and gb. Here z is already sigma^T grad of the defect.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._support.tracing import same_function
from ..paths import AbstractDynamics
from ..paths.coefficients import diffuse_transposed
from ..surrogates.wrapping import AbstractSurrogate, wrap
from .generator import Generator, Hutchinson
from .problem import AbstractEquation, Problem, Solution


class Defect(AbstractEquation):
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
        self, equation: AbstractEquation, surrogate: Any, hutchinson: Hutchinson | None = None
    ):
        self.equation, self.surrogate = equation, wrap(surrogate, equation)
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
        """eps. Only the trace may be estimated from `key`: it enters linearly, F does not."""
        trace_key, key = jax.random.split(key)
        u, z, moved = self.generator(t, x, trace_key)
        return moved + self.equation.nonlinearity(t, x, u, z, key)

    def nonlinearity(self, t: Array, x: Array, u: Array, z: Array, key: PRNGKeyArray) -> Array:
        zero = Solution(jnp.zeros_like(u), jnp.zeros_like(z))
        return self.difference(t, x, Solution(u, z), zero) + self.source(t, x, key)

    def difference(self, t: Array, x: Array, new: Solution, old: Solution) -> Array:
        uh, zh = self._surrogate(t, x)
        return self.equation.difference(
            t, x, Solution(uh + new.u, zh + new.z), Solution(uh + old.u, zh + old.z)
        )

    def heading(self, t: Array, x: Array) -> Array:
        """Of the surrogate."""
        return diffuse_transposed(self.diffusion(t, x), jax.grad(self.surrogate, argnums=1)(t, x))

    def _surrogate(self, t: Array, x: Array) -> Solution:
        if not self.uses_z:
            return Solution(self.surrogate(t, x), jnp.zeros_like(x))
        value, gradient = jax.value_and_grad(self.surrogate, argnums=1)(t, x)
        return Solution(value, diffuse_transposed(self.diffusion(t, x), gradient))
