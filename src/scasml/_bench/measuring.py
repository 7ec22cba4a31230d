"""What several benchmarks use: CPU time, peak memory, random points, relative errors, a network."""

import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from .. import Problem
from .._equations.domain import AbstractDomain
from ..surrogates.collocation import domain_of

FLOAT32 = np.dtype(np.float32)


def cpu_seconds(sides: dict[str, Callable[[], Any]], rounds: int = 9) -> dict[str, float]:
    """Return the median CPU time in seconds of each side, a function without arguments.

    After a warm-up, every round runs every side once. If the machine has other work, it slows all
    sides alike, and ratios of these times remain meaningful.
    """
    for side in sides.values():
        jax.block_until_ready(side())
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.process_time()
            jax.block_until_ready(side())
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_gigabytes() -> float:
    """Return the peak resident memory of this process, in GB (1e9 bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024  # of `ru_maxrss`, in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def uniform_points(
    problem: Problem, domain: AbstractDomain | None, count: int, seed: int = 7
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw points of a domain, by default that of the problem: t (count,) and x (count, d)."""
    domain = domain or domain_of(problem)
    draw = jax.jit(jax.vmap(lambda key: domain.draw(key, problem.dim, problem.horizon)))
    t, x = draw(jax.random.split(jax.random.key(seed), count))
    return np.asarray(t), np.asarray(x)


def relative_error(values: Any, exact: Any) -> float:
    """Return the relative L2 error of values (points,) from the exact values (points,)."""
    return float(np.linalg.norm(values - exact) / np.linalg.norm(exact))


def tanh_network(dim: int) -> eqx.nn.MLP:
    """Return an untrained network with five layers of 50 tanh units, called with (t, x) joined."""
    return eqx.nn.MLP(dim + 1, 1, 50, 5, activation=jnp.tanh, key=jax.random.key(0))
