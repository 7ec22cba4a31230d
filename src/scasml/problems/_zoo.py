"""What every constructor of the zoo shares: its cache, the refusal of bad parameters, and the clock of a reference."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from .._equations.problem import Problem
from .._support.errors import ArgumentError, listing, positive, whole

Parameters = ParamSpec("Parameters")

# Closed forms are exact; this allows for the float64 rounding of a sum over a thousand coordinates.
ROUNDING = 1e-12


def constructor(build: Callable[Parameters, Problem]) -> Callable[Parameters, Problem]:
    """Remember the problems built: equal parameters, however they are passed, give the very same Problem."""
    # typed: 10.0 is no dimension, yet it hashes like 10.
    signature = inspect.signature(build)

    @functools.lru_cache(maxsize=64, typed=True)
    def remembered(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Problem:
        problem = build(*args, **kwargs)
        # Its birth certificate: a surrogate on disk names the problem it was trained for.
        object.__setattr__(
            problem, "parameters", tuple(signature.bind(*args, **kwargs).arguments.items())
        )
        return problem

    @functools.wraps(build)
    def construct(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Problem:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            hash((bound.args, *bound.kwargs.values()))
        except TypeError:
            return build(*bound.args, **bound.kwargs)  # it will say in words what is wrong
        return remembered(*bound.args, **bound.kwargs)

    return construct


def dimension(dim: Any, at_least: int = 1) -> int:
    return whole("dim", dim, at_least, "pass the number of space dimensions")


def final_time(horizon: Any) -> float:
    return positive("horizon", horizon, "pass the final time T")


def time_to_go(t: NDArray[Any], horizon: float) -> NDArray[Any]:
    """T - t, for references that exist on [0, T] only."""
    # A final time that has been through float32 may land beyond T by a rounding.
    slack = 1e-6 * horizon
    outside = np.flatnonzero(~((t >= -slack) & (t <= horizon + slack)))
    if outside.size:
        raise ArgumentError(
            f"t must lie in [0, {horizon:g}], got {t[outside[0]]} at point {listing(outside.tolist())}: "
            "the reference is defined up to the horizon only."
        )
    return np.clip(horizon - t, 0.0, horizon)
