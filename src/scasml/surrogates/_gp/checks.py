"""Checks of the arguments of `gp` that depend on the problem.

`constant_coefficients` refuses problems that the Gaussian process does not support, and
`kernel_widths` checks the option `width` and fills in its default.
"""

import math
from typing import Any

import jax
import numpy as np

from ..._equations.problem import Problem, require_problem
from ..._support.errors import ArgumentError, brief, positive
from ..._support.precision import use_dtype
from ...paths import Gaussian

SUPPORTED = (
    "gp takes problems with one number for sigma, one for mu, and F of sum z: "
    "train another surrogate"
)


def constant_coefficients(problem: Any) -> tuple[float, float]:
    """Return sigma and mu of a problem in which each of them is one number.

    Raises `ArgumentError` for any other problem, and if F does not depend on z through sum z alone.
    """
    require_problem(problem)
    dynamics = problem.dynamics
    if not isinstance(dynamics, Gaussian):
        raise ArgumentError(
            f"problem {problem.name!r} has coefficients that vary, {type(dynamics).__name__}: "
            f"{SUPPORTED}."
        )
    sigma, mu = np.asarray(dynamics.sigma), np.asarray(dynamics.mu)
    number = float(sigma.flat[0])
    if not np.array_equal(
        sigma, number * np.eye(problem.dim) if sigma.ndim == 2 else np.full(sigma.shape, number)
    ):
        raise ArgumentError(
            f"problem {problem.name!r} has a sigma of many numbers, {brief(sigma)}: {SUPPORTED}."
        )
    if np.ptp(mu) > 0:
        raise ArgumentError(
            f"problem {problem.name!r} has a mu of many numbers, {brief(mu)}: {SUPPORTED}."
        )
    if problem.uses_z and not _depends_on_sum(problem):
        raise ArgumentError(
            f"problem {problem.name!r} has an F of more than the sum of z: {SUPPORTED}."
        )
    return number, float(mu.flat[0])


def _depends_on_sum(problem: Problem) -> bool:
    """Whether F, at random points, is the same if every entry of z is replaced by their mean."""
    rng, trials = np.random.default_rng(0), 8
    t, u = problem.horizon * rng.uniform(size=trials), rng.normal(size=trials)
    x = problem.x0 + rng.normal(size=(trials, problem.dim))
    z = rng.normal(size=(trials, problem.dim))
    means = np.broadcast_to(z.mean(1, keepdims=True), z.shape)
    with use_dtype(np.dtype(np.float64)):
        at_z, at_means = (
            np.asarray(jax.jit(jax.vmap(problem.nonlinearity))(t, x, u, y)) for y in (z, means)
        )
    return bool(np.allclose(at_z, at_means, rtol=1e-9, atol=1e-9, equal_nan=True))


def kernel_widths(width: Any, preset: str, problem: Problem, sigma: float) -> tuple[float, float]:
    """Return the width of the kernel in t and the width in x.

    `width` and `preset` are the options of `gp`. Raises `ArgumentError` for an invalid width.
    """
    if width is None:
        in_x = abs(sigma) * math.sqrt(problem.dim)
        return (in_x, in_x) if preset == "paper" else (problem.horizon / 2, in_x)
    remedy = "pass the width of the kernel, or one in t and one in x"
    if not isinstance(width, tuple | list):
        both = positive("width", width, remedy)
        return both, both
    if len(width) != 2:
        raise ArgumentError(f"width must be one number or two, got {brief(width)}: {remedy}.")
    return positive("width", width[0], remedy), positive("width", width[1], remedy)
