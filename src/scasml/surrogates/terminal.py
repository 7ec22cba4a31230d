"""A terminal condition that is built in: g where paths end, at the end times of a few fixed paths.

    base(t, x) = sum_k w_k/2 sum_{+-} g(x + mu tau +- sigma sqrt(tau) xi_k),    tau = T - t

with orthogonal xi_k of norm sqrt(d) and w_k = 1/K, mu and sigma at (t, x). At T it is g, exactly. Before T it is a crude estimate of
E g(X_T), whose error is that of 2K points of a sphere. So is g(x) itself, K = 0, yet its Laplacian may be large where that of u
is not: for the HJB equation in 100 dimensions g(x) starts 100 % off, base 3 %. And where F holds back what mu carries away, as for
Burgers' waves, g(x) is the better one: 11 % off and base 72 %. The residuals tell.

Where g varies mostly along one direction, as the payoff of a basket does, xi_k may have the nodes of Gauss and Hermite along that one, and w_k their
weights: then only the rest is crude, and of a g of one direction there is none.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.domain import AbstractDomain
from .._equations.generator import Generator
from .._equations.problem import Problem, Terminal
from .._equations.smoothness import terminal_may_be_rough
from ..paths.coefficients import Coefficient, diffuse, diffuse_transposed
from .collocation import collocation_points, paths_of
from .wrapping import AbstractSurrogate, wrap

DRAWS = 4
# Residuals that tell which to build in.
POINTS = 256
# Slopes that tell which direction g varies along; and of their squares, from what share on the nodes lie along the first.
SLOPES, LEADING = 64, 0.5
# Each leaves of the other directions their share of the first, squared.
POWERS = 32

# Of T: what is closer to the end than float32 can tell is as close as this, or u_t would be that of no time left.
NEAR = 2.0**-20


class Base(AbstractSurrogate):
    problem: Problem
    draws: Coefficient  # xi, (K, d)
    weights: Coefficient | None = None  # w, (K,); None: equal

    def __call__(self, t: Array, x: Array) -> Array:
        equation = self.problem
        if len(self.draws) == 0:
            return equation.terminal(x)
        left = jnp.asarray(equation.horizon, t.dtype) - t
        tau = left + jax.lax.stop_gradient(jnp.maximum(NEAR * equation.horizon - left, 0))
        middle, sigma = x + equation.drift(t, x) * tau, equation.diffusion(t, x)
        one = lambda xi: equation.terminal(middle + jnp.sqrt(tau) * diffuse(sigma, xi))
        draws = jnp.asarray(self.draws, x.dtype)
        values = jnp.mean(jax.vmap(lambda xi: jax.vmap(one)(jnp.stack([xi, -xi])))(draws), 1)
        value = (
            jnp.mean(values)
            if self.weights is None
            else jnp.asarray(self.weights, x.dtype) @ values
        )
        # At the end the value is g; the derivatives are those from just before it.
        return value + jax.lax.stop_gradient(jnp.where(left > 0, 0, equation.terminal(x) - value))

    @property
    def terminal_function(self) -> Terminal:
        return self.problem.terminal_fn

    @property
    def form(self) -> None:
        return None


def turned(problem: Problem) -> Base:
    """With the nodes along the direction that g varies along most, where paths from x0 end, if there is one."""
    draws = directions(problem.dim, DRAWS, 0)
    paths = paths_of(problem)
    noise = np.random.default_rng(0).normal(size=(SLOPES, paths.steps, problem.dim))
    slopes = np.asarray(_slopes(problem, jnp.asarray(noise, jnp.result_type(float))), np.float64)
    if not np.isfinite(slopes).all():
        return Base(problem, draws)
    axis = _leading(slopes)
    if np.sum((slopes @ axis) ** 2) <= LEADING * np.sum(slopes**2):
        return Base(problem, draws)
    # As many as there are nodes, in however few dimensions.
    return Base(problem, *along(axis, np.resize(draws, (DRAWS, problem.dim))))


def _leading(rows: NDArray[Any]) -> NDArray[Any]:
    """The unit vector that they lie along most, by power iteration from the longest of them: a decomposition of LAPACK's waits for threads of its own."""
    axis = rows[np.argmax(np.sum(rows**2, 1))]
    for _ in range(POWERS):
        size = np.linalg.norm(axis)
        axis = (axis / size if size > 0 else axis) @ rows.T @ rows
    return axis / max(np.linalg.norm(axis), np.finfo(axis.dtype).tiny)


def along(axis: NDArray[Any], draws: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draws whose part along the axis is a node of Gauss and Hermite, the rest as it was; and their weights.

    The rule has 2K - 1 nodes: 0, which a draw and its mirror image share, and K - 1 pairs.
    """
    count, dim = draws.shape
    nodes, weights = (a[count - 1 :] for a in np.polynomial.hermite_e.hermegauss(2 * count - 1))
    weights = np.where(nodes > 0.0, 2 * weights, weights)
    rest = draws - np.outer(draws @ axis, axis)
    size = np.linalg.norm(rest, axis=1, keepdims=True)
    rest = np.sqrt(dim - 1) * rest / np.where(size > 0, size, 1.0)  # none, in one dimension
    return (np.outer(nodes, axis) + rest).astype(np.float32), (weights / np.sum(weights)).astype(
        np.float32
    )


@eqx.filter_jit
def _slopes(problem: Problem, noise: Array) -> Array:
    """sigma^T grad g where these paths from x0 end."""
    x0 = jnp.asarray(problem.x0, noise.dtype)
    start, final = jnp.zeros((), noise.dtype), jnp.asarray(problem.horizon, noise.dtype)

    def slope(noise: Array) -> Array:
        x = paths_of(problem).move(noise, start, x0, final, False).x
        return diffuse_transposed(problem.diffusion(final, x), jax.grad(problem.terminal)(x))

    return jax.lax.map(slope, noise)


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
def _residuals(
    problem: Problem, domain: AbstractDomain, key: PRNGKeyArray, candidates: Sequence[Coefficient]
) -> Array:
    """Their mean squares."""
    t, x = collocation_points(problem, domain, key, POINTS, 0.5)

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
