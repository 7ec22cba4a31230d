"""A terminal condition that is built in: g where paths end, at the end times of a few fixed paths.

    base(t, x) = 1/(2K) sum_k sum_{+-} g(x + mu tau +- sigma sqrt(tau) xi_k),    tau = T - t

with orthogonal xi_k of norm sqrt(d), mu and sigma at (t, x). At T it is g, exactly. Before T it is a crude estimate of
E g(X_T), whose error is that of 2K points of a sphere. So is g(x) itself, K = 0, yet its Laplacian may be large where that of u
is not: for the HJB equation in 100 dimensions g(x) starts 100 % off, base 3 %. And where F holds back what mu carries away, as for
Burgers' waves, g(x) is the better one: 11 % off and base 72 %. The residuals tell.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from ..coefficients import Coefficient, diffuse
from ..domain import AbstractDomain
from ..generator import Generator
from ..problem import Problem, Terminal
from ..roughness import terminal_may_be_rough
from ..surrogate import AbstractSurrogate, wrap
from .collocation import collocation

DRAWS = 4
# Residuals that tell which to build in.
POINTS = 256

# Of T: what is closer to the end than float32 can tell is as close as this, or u_t would be that of no time left.
NEAR = 2.0**-20


class Base(AbstractSurrogate):
    problem: Problem
    draws: Coefficient  # xi, (K, d)

    def __call__(self, t: Array, x: Array) -> Array:
        law = self.problem
        if len(self.draws) == 0:
            return law.terminal(x)
        left = jnp.asarray(law.horizon, t.dtype) - t
        tau = left + jax.lax.stop_gradient(jnp.maximum(NEAR * law.horizon - left, 0))
        middle, sigma = x + law.drift(t, x) * tau, law.diffusion(t, x)
        one = lambda xi: law.terminal(middle + jnp.sqrt(tau) * diffuse(sigma, xi))
        draws = jnp.asarray(self.draws, x.dtype)
        value = jnp.mean(jax.vmap(one)(jnp.concatenate([draws, -draws])))
        # At the end the value is g; the derivatives are those from just before it.
        return value + jax.lax.stop_gradient(jnp.where(left > 0, 0, law.terminal(x) - value))

    @property
    def ends_in(self) -> Terminal:
        return self.problem.terminal_fn

    @property
    def form(self) -> None:
        return None


def built_in(problem: Problem, domain: AbstractDomain, seed: int) -> NDArray[Any] | None:
    """The draws of the base whose residual is the smallest where a correction would ask for it; None if g may have kinks.

    The Laplacian of a kink is a mass that no residual at a point can see.
    """
    if terminal_may_be_rough(problem):
        return None
    candidates = [directions(problem.dim, count, seed) for count in (0, DRAWS)]
    squares = _residuals(problem, domain, jax.random.key(seed), candidates)
    return candidates[int(np.argmin(np.nan_to_num(squares, nan=np.inf)))]


@eqx.filter_jit
def _residuals(problem: Problem, domain: AbstractDomain, key: PRNGKeyArray, candidates: Sequence[Coefficient]) -> Array:
    """Their mean squares."""
    t, x = collocation(problem, domain, key, POINTS, 0.5)

    def square(draws: Coefficient) -> Array:
        generator = Generator(problem, wrap(Base(problem, draws), problem))

        def residual(t: Array, x: Array) -> Array:
            u, z, moved = generator(t, x, key)
            return moved + problem.nonlinearity(t, x, u, z)

        return jnp.mean(jax.vmap(residual)(t, x) ** 2)

    return jnp.stack([square(draws) for draws in candidates])


def directions(dim: int, count: int, seed: int) -> NDArray[Any]:
    """Orthogonal, of norm sqrt(d), as many of them as there can be."""
    normals = np.random.default_rng([seed, 1]).normal(size=(dim, min(count, dim)))
    return (np.sqrt(dim) * np.linalg.qr(normals)[0].T).astype(np.float32)
