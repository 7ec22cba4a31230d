"""Collocation points: where training makes the residual small.

They lie in the domain where answers are wanted and along paths that start there. A problem and a
domain come in; points (t, x) go out.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.domain import AbstractDomain, Box, Queries
from .._equations.problem import Problem
from ..paths import AbstractPathLaw, Stepped

# Euler steps of a path whose law cannot be sampled exactly. A correction needs more steps, but an
# inaccurate path is enough to find where paths go.
ROUGH_PATH_STEPS = 8


def domain_of(problem: Problem) -> AbstractDomain:
    """Return the domain of the problem, or the point x0 at time 0 if the problem has none."""
    return problem.domain or Queries(np.zeros(1), problem.x0[None])


def paths_of(problem: Problem) -> AbstractPathLaw:
    """Return the exact path law of the problem, or an approximation by Euler steps."""
    return problem.dynamics.exact or Stepped(
        dynamics=problem.dynamics, scheme="euler", steps=ROUGH_PATH_STEPS
    )


def collocation_points(
    problem: Problem, domain: AbstractDomain, key: PRNGKeyArray, count: int, along_paths: float
) -> tuple[Array, Array]:
    """Draw `count` points, as t of shape (count,) and x of shape (count, d).

    The fraction `along_paths` of them, which come first, lie on paths that start at points of the
    domain, at times uniform between the start and T. The others are points of the domain itself.
    """
    paths = paths_of(problem)

    def draw(key: PRNGKeyArray, i: Array) -> tuple[Array, Array]:
        key_query, key_time, key_path = jax.random.split(key, 3)
        s, x = domain.draw(key_query, problem.dim, problem.horizon)
        fraction = jnp.where(i < along_paths * count, jax.random.uniform(key_time), 0)
        duration = fraction * (problem.horizon - s)
        end = paths.jump(key_path, s, x, duration, False).x
        return s + duration, jnp.where(fraction > 0, end, x)

    return jax.vmap(draw)(jax.random.split(key, count), jnp.arange(count))


def boundary(
    problem: Problem, domain: AbstractDomain, count: int, seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw t (count,) and x (count, d), at uniform times and uniformly on the faces of a box.

    For any other domain the arrays have length 0, since the SCaSML paper uses a ball as a sample of
    the whole space, which has no boundary.
    """
    rng = np.random.default_rng([seed, 2])
    if not isinstance(domain, Box):
        count = 0
    t = rng.uniform(0, problem.horizon, count)
    x = np.empty((count, problem.dim))
    if isinstance(domain, Box):
        low, high = (
            np.broadcast_to(np.asarray(side), (problem.dim,)) for side in (domain.low, domain.high)
        )
        x = rng.uniform(low, high, (count, problem.dim))
        face, side = rng.integers(problem.dim, size=count), rng.integers(2, size=count)
        x[np.arange(count), face] = np.where(side == 1, high[face], low[face])
    return t, x


def moments(x: Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the mean (d,) and the standard deviation (d,) of each coordinate of x (n, d).

    The standard deviation of a constant coordinate is replaced by 1.
    """
    points = np.asarray(x, np.float64)
    deviation = points.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    return points.mean(0).astype(np.float32), deviation.astype(np.float32)
