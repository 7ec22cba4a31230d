"""Where a residual is made small: in the query domain, and where paths from there go."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.domain import AbstractDomain, Box, Queries
from .._equations.problem import Problem
from ..paths import AbstractPathLaw, Stepped

# A correction simulates these paths with as many steps as it needs; to know where they go a few will do.
STEPS = 8


def domain_of(problem: Problem) -> AbstractDomain:
    return problem.domain or Queries(np.zeros(1), problem.x0[None])


def paths_of(problem: Problem) -> AbstractPathLaw:
    return problem.dynamics.exact or Stepped(dynamics=problem.dynamics, scheme="euler", steps=STEPS)


def collocation_points(
    problem: Problem, domain: AbstractDomain, key: PRNGKeyArray, count: int, along_paths: float
) -> tuple[Array, Array]:
    """`count` points (t, x): a share of them along paths from queries, to a uniform time; the others queries themselves."""
    paths = paths_of(problem)

    def one(key: PRNGKeyArray, i: Array) -> tuple[Array, Array]:
        key_query, key_time, key_path = jax.random.split(key, 3)
        s, x = domain.draw(key_query, problem.dim, problem.horizon)
        share = jnp.where(i < along_paths * count, jax.random.uniform(key_time), 0)
        duration = share * (problem.horizon - s)
        return s + duration, jnp.where(share > 0, paths.jump(key_path, s, x, duration, False).x, x)

    return jax.vmap(one)(jax.random.split(key, count), jnp.arange(count))


def boundary(
    problem: Problem, domain: AbstractDomain, count: int, seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Points of the faces of a box, at uniform times. A ball of the paper is all space, with none."""
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
    """Mean and standard deviation of every coordinate; 1 for one that does not vary."""
    points = np.asarray(x, np.float64)
    deviation = points.std(0)
    return points.mean(0).astype(np.float32), np.where(deviation > 0, deviation, 1.0).astype(
        np.float32
    )
