"""A positive factor phi with v = phi w, which takes the potential out of paths.

`Factor` computes log phi, and the drift and potential of the equation that w solves.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._equations.base import AbstractEquation, Solution
from .._equations.defect import Defect
from .._equations.generator import has_forward_mode
from .._equations.ito import apply_ito
from .._equations.ito_process import Ito
from .._support.jaxprs import inputs_read
from .._support.tracing import abstract_point
from ..paths.coefficients import columns, diffuse


class Factor(eqx.Module):
    """The factor phi = sqrt(s^2 + delta^2), where s is the mean component of grad uh.

    Every positive phi is exact. If F and the coefficients do not depend on x along (1, ..., 1), the
    slope of the solution in that direction solves the linearised equation. The slope s of a good
    surrogate then nearly solves it, and w has nearly no potential.
    """

    equation: Defect
    delta: Array

    def log(self, t: Array, x: Array) -> Array:
        """Return log phi."""
        direction = jnp.full_like(x, 1 / x.shape[0])
        slope = jax.jvp(lambda x: self.equation.surrogate(t, x), (x,), (direction,))[1]
        return 0.5 * jnp.log(slope**2 + self.delta**2)

    def tilted(self, t: Array, x: Array, drift: Array, potential: Array) -> tuple[Array, Array]:
        """Return the additional drift and the potential of w from those of v.

        With L = log phi, the drift v of the linearised equation gains sigma sigma^T grad L. The
        potential a gains L_t + <mu + v, grad L> + 1/2 Tr(sigma sigma^T Hess L)
        + 1/2 |sigma^T grad L|^2.
        """
        sigma = jnp.asarray(self.equation.dynamics.diffusion(t, x), x.dtype)
        clock = Ito(t, None, jnp.ones_like(t))
        state = Ito(x, columns(sigma, len(x)), self.equation.dynamics.drift(t, x) + drift)
        _, z, change = apply_ito(self.log, clock, state)
        return drift + diffuse(sigma, z), potential + change + 0.5 * z @ z


def has_factor(equation: AbstractEquation) -> bool:
    """Return whether the equation is that of a defect whose surrogate has forward mode."""
    return isinstance(equation, Defect) and has_forward_mode(equation.surrogate, equation.dim)


def factor_suits(equation: AbstractEquation) -> bool:
    """Return whether a factor may help: sigma is constant, and F does not depend on x."""
    if not has_factor(equation) or equation.dynamics.constant_diffusion is None:
        return False
    assert isinstance(equation, Defect)
    f = lambda t, x, u, z: equation.equation.difference(t, x, Solution(u, z), Solution.zero(t, x))
    scalar, vector = abstract_point(equation.dim)
    _, reads_x, _, _ = inputs_read(jax.make_jaxpr(f)(scalar, vector, scalar, vector).jaxpr)
    return not reads_x


def factor_of(equation: AbstractEquation, delta: float, t: Array, x: Array) -> Factor | None:
    """Return the factor for a query (t, x), or None where `delta` is 0.

    `delta` is relative to phi at the query. Only the equation of a defect has a factor.
    """
    if delta == 0 or not has_factor(equation):
        return None
    assert isinstance(equation, Defect)
    tiny = jnp.asarray(jnp.finfo(x.dtype).tiny ** 0.25, x.dtype)
    size = jnp.exp(Factor(equation, tiny).log(t, x))
    return Factor(equation, jax.lax.stop_gradient(delta * size))
