"""The smoothed g: an estimate of E g(X_T) from a small number of fixed draws.

`SmoothedTerminal` takes a problem and draws, and is a surrogate. `choose_draws` returns the draws
for training. `smoothed_terminal` returns a smoothed g for use without training.
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
from .._equations.surrogate import AbstractSurrogate
from ..paths.coefficients import Coefficient, diffuse, diffuse_transposed
from .collocation import collocation_points, paths_of
from .wrapping import wrap

# The number K of draws of a smoothed g, unless it is 0.
DRAWS = 4
# Number of points at which the residuals of the smoothed g and of g(x) are compared.
RESIDUAL_POINTS = 256
# Number of paths at whose ends the slopes of g are evaluated.
SLOPE_PATHS = 64
# The Gauss-Hermite rule is used if the components of the slopes along the main direction have more
# than this fraction of the sum of squares of the slopes.
MAIN_DIRECTION_FRACTION = 0.5
# Iterations that find the main direction.
POWER_ITERATIONS = 32

# Smallest T - t, as a fraction of T, at which derivatives are evaluated. Closer to T the rounding
# of t to float32 dominates T - t, and at T - t = 0 the derivative u_t would be wrong.
SMALLEST_REMAINING_TIME = 2.0**-20


class SmoothedTerminal(AbstractSurrogate):
    """The smoothed g of a problem for K draws, as a surrogate.

        s(t, x) = sum_k w_k/2 sum_{+-} g(x + mu tau +- sigma sqrt(tau) xi_k),    tau = T - t

    The draws xi_k, k = 1, ..., K, are orthogonal and of norm sqrt(d), the weights w_k are 1/K
    unless they are given, and mu and sigma are taken at (t, x). At T the smoothed g is exactly g.
    Before T its error is that of a mean over 2K points of a sphere. With K = 0 draws it is g(x)
    itself.
    """

    problem: Problem
    draws: Coefficient  # xi, of shape (K, d)
    weights: Coefficient | None = None  # w, of shape (K,)

    def __call__(self, t: Array, x: Array) -> Array:
        equation = self.problem
        if len(self.draws) == 0:
            return equation.terminal(x)
        remaining = jnp.asarray(equation.horizon, t.dtype) - t
        smallest = SMALLEST_REMAINING_TIME * equation.horizon
        tau = remaining + jax.lax.stop_gradient(jnp.maximum(smallest - remaining, 0))
        middle, sigma = x + equation.drift(t, x) * tau, equation.diffusion(t, x)
        g_at = lambda xi: equation.terminal(middle + jnp.sqrt(tau) * diffuse(sigma, xi))
        draws = jnp.asarray(self.draws, x.dtype)
        values = jnp.mean(jax.vmap(lambda xi: jax.vmap(g_at)(jnp.stack([xi, -xi])))(draws), 1)
        value = (
            jnp.mean(values)
            if self.weights is None
            else jnp.asarray(self.weights, x.dtype) @ values
        )
        # At T the value is g, and the derivatives are those at the smallest remaining time.
        return value + jax.lax.stop_gradient(
            jnp.where(remaining > 0, 0, equation.terminal(x) - value)
        )

    @property
    def terminal_function(self) -> Terminal:
        return self.problem.terminal_fn

    @property
    def form(self) -> None:
        return None


def smoothed_terminal(problem: Problem) -> SmoothedTerminal:
    """Return the smoothed g with the Gauss-Hermite rule along the main direction of g.

    If g varies mostly along one direction, as the payoff of a basket does, the nodes and weights of
    the rule are put along that direction. The mean along it is then almost exact, and only the mean
    over the other directions is inaccurate.

    The main direction is the dominant direction of the slopes sigma^T grad g at the ends of paths
    from x0. If no direction dominates, or if a slope is not finite, all draws have equal weights.
    """
    draws = directions(problem.dim, DRAWS, 0)
    paths = paths_of(problem)
    noise = np.random.default_rng(0).normal(size=(SLOPE_PATHS, paths.steps, problem.dim))
    slopes = np.asarray(_slopes(problem, jnp.asarray(noise, jnp.result_type(float))), np.float64)
    if not np.isfinite(slopes).all():
        return SmoothedTerminal(problem, draws)
    axis = _main_direction(slopes)
    if np.sum((slopes @ axis) ** 2) <= MAIN_DIRECTION_FRACTION * np.sum(slopes**2):
        return SmoothedTerminal(problem, draws)
    # Fewer than DRAWS directions are repeated, so that each node of the rule has one.
    return SmoothedTerminal(
        problem, *gauss_hermite_draws(axis, np.resize(draws, (DRAWS, problem.dim)))
    )


def _main_direction(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the first right singular vector (d,) of the rows (n, d), by power iteration.

    A decomposition by LAPACK is avoided because it waits for threads of its own.
    """
    axis = rows[np.argmax(np.sum(rows**2, 1))]
    for _ in range(POWER_ITERATIONS):
        size = np.linalg.norm(axis)
        axis = (axis / size if size > 0 else axis) @ rows.T @ rows
    return axis / max(np.linalg.norm(axis), np.finfo(axis.dtype).tiny)


def gauss_hermite_draws(
    axis: NDArray[Any], draws: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Replace the components of draws (K, d) along the unit vector `axis` by Gauss-Hermite nodes.

    `axis` has shape (d,). The rule has 2K - 1 nodes: 0 and K - 1 pairs of opposite nodes. One
    draw gets the node 0, as does its mirror image. Each other draw and its mirror image get one
    pair. The part orthogonal to `axis` is scaled to the norm sqrt(d - 1). Returns new draws (K, d)
    and their weights (K,).
    """
    count, dim = draws.shape
    nodes, weights = (a[count - 1 :] for a in np.polynomial.hermite_e.hermegauss(2 * count - 1))
    weights = np.where(nodes > 0.0, 2 * weights, weights)
    rest = draws - np.outer(draws @ axis, axis)
    size = np.linalg.norm(rest, axis=1, keepdims=True)
    rest = np.sqrt(dim - 1) * rest / np.where(size > 0, size, 1.0)  # 0 in one dimension
    weights = weights / np.sum(weights)
    return (np.outer(nodes, axis) + rest).astype(np.float32), weights.astype(np.float32)


@eqx.filter_jit
def _slopes(problem: Problem, noise: Array) -> Array:
    """Return sigma^T grad g (n, d) at the ends of n paths from x0.

    `noise` (n, steps, d) holds the normal numbers of the paths.
    """
    x0 = jnp.asarray(problem.x0, noise.dtype)
    initial, final = jnp.zeros((), noise.dtype), jnp.asarray(problem.horizon, noise.dtype)

    def slope(noise: Array) -> Array:
        x = paths_of(problem).move(noise, initial, x0, final, False).x
        return diffuse_transposed(problem.diffusion(final, x), jax.grad(problem.terminal)(x))

    return jax.lax.map(slope, noise)


def choose_draws(problem: Problem, domain: AbstractDomain, seed: int) -> NDArray[Any] | None:
    """Return the draws (K, d), with K = 0 or DRAWS, whose smoothed g has the smaller residual.

    The mean square residual is taken at points of the domain and along paths from it. The smoothed
    g is better if the Laplacian of g(x) is much larger than that of u. g(x), which is K = 0, may be
    closer to u if F cancels much of the drift term <mu, grad u>. Returns None if g may have kinks
    or discontinuities: a kink adds a measure to the Laplacian, which the residual at points does
    not contain.
    """
    if terminal_may_be_rough(problem):
        return None
    candidates = [directions(problem.dim, count, seed) for count in (0, DRAWS)]
    squares = _mean_square_residuals(problem, domain, jax.random.key(seed), candidates)
    return candidates[int(np.argmin(np.nan_to_num(squares, nan=np.inf)))]


@eqx.filter_jit
def _mean_square_residuals(
    problem: Problem, domain: AbstractDomain, key: PRNGKeyArray, candidates: Sequence[Coefficient]
) -> Array:
    """Return, for each candidate for the draws, the mean square residual of the smoothed g."""
    t, x = collocation_points(problem, domain, key, RESIDUAL_POINTS, 0.5)

    def mean_square(draws: Coefficient) -> Array:
        generator = Generator(problem, wrap(SmoothedTerminal(problem, draws), problem))

        def residual(t: Array, x: Array) -> Array:
            u, z, generated = generator(t, x, key)
            return generated + problem.nonlinearity(t, x, u, z)

        return jnp.mean(jax.vmap(residual)(t, x) ** 2)

    return jnp.stack([mean_square(draws) for draws in candidates])


def directions(dim: int, count: int, seed: int) -> NDArray[Any]:
    """Return min(count, dim) random orthogonal vectors of norm sqrt(dim), one in each row."""
    normals = np.random.default_rng([seed, 1]).normal(size=(dim, min(count, dim)))
    return (np.sqrt(dim) * np.linalg.qr(normals)[0].T).astype(np.float32)
