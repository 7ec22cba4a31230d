"""What was asked: every argument of `correct` and `refine` checked before anything runs."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import ArrayLike
from numpy.typing import NDArray

from ._equations.generator import Hutchinson
from ._equations.problem import AbstractEquation, require_equation
from ._io.progress import Report
from ._support.errors import ArgumentError, ArgumentTypeError, brief, listing, whole
from ._support.precision import parse_dtype
from .estimators import AbstractEstimator
from .execution.stopping import Budget
from .paths.coefficients import real_array


@dataclass(frozen=True)
class Query:
    problem: AbstractEquation
    surrogate: Any
    t: NDArray[Any]  # (B,) and (B, d), in the dtype of the simulation
    x: NDArray[Any]
    is_scalar: bool
    method: AbstractEstimator | None  # None: a pilot chooses
    budget: Budget
    safe: bool
    throw: bool
    seed: int
    hutchinson: Hutchinson | None
    dtype: np.dtype[Any]
    with_gradient: bool
    chunk: int | None
    progress: bool | Report


def query(
    problem: AbstractEquation,
    surrogate: Any,
    t: ArrayLike,
    x: ArrayLike,
    *,
    anytime: bool = False,
    method: Any = "auto",
    rtol: Any = None,
    atol: Any = None,
    seconds: Any = None,
    replicates: Any = None,
    safe: Any = True,
    throw: Any = False,
    seed: Any = 0,
    laplacian: Any = "exact",
    dtype: Any = "float32",
    with_gradient: Any = True,
    chunk: Any = None,
    progress: Any = False,
) -> Query:
    require_equation(problem)
    kind = parse_dtype(dtype)
    ts, xs, is_scalar = _points(problem, t, x, kind)
    budget = Budget(
        replicates=None
        if replicates is None
        else whole("replicates", replicates, 1, "pass how many repeats to run"),
        seconds=_positive("seconds", seconds, "pass how long the whole call may take"),
        rtol=_positive("rtol", rtol, "pass a relative tolerance such as 1e-3"),
        atol=_positive("atol", atol, "pass an absolute tolerance such as 1e-3"),
        anytime=anytime,
    )
    for name, value in {"safe": safe, "throw": throw, "with_gradient": with_gradient}.items():
        if not isinstance(value, bool | np.bool_):
            raise ArgumentTypeError(
                f"{name} must be True or False, got {brief(value)}: pass one of the two."
            )
    if throw and not budget.has_tolerance:
        raise ArgumentError(
            "throw must go with a tolerance to be missed, got True and none: name rtol= or atol=."
        )
    if not isinstance(progress, bool) and not callable(progress):
        raise ArgumentTypeError(
            f"progress must be True, False or a function of one Progress, got {brief(progress)}: pass one of these."
        )
    return Query(
        problem=problem,
        surrogate=surrogate,
        t=ts,
        x=xs,
        is_scalar=is_scalar,
        method=_method(method),
        budget=budget,
        safe=bool(safe),
        throw=bool(throw),
        seed=whole("seed", seed, 0, "pass any whole number from 0 up"),
        hutchinson=_laplacian(laplacian, problem.dim),
        dtype=kind,
        with_gradient=bool(with_gradient),
        chunk=None if chunk is None else whole("chunk", chunk, 1, "pass rows per call, or None"),
        progress=progress,
    )


def _positive(argument: str, value: Any, remedy: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentTypeError(
            f"{argument} must be a number above 0, got {brief(value)}: {remedy}."
        )
    if not (math.isfinite(value) and value > 0):
        raise ArgumentError(f"{argument} must be finite and above 0, got {value}: {remedy}.")
    return float(value)


def _points(
    problem: AbstractEquation, t: ArrayLike, x: ArrayLike, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """(B,), (B, d) in the dtype of the simulation, and whether one point was asked for."""
    d, horizon = problem.dim, problem.horizon
    xs, ts = real_array("x", x, f"({d},) or (B, {d})"), real_array("t", t, "a number or (B,)")
    if xs.ndim not in (1, 2) or xs.shape[-1] != d:
        raise ArgumentError(
            f"x must be ({d},) or (B, {d}) for this problem of dimension {d}, got shape {xs.shape}: check it against dim."
        )
    if ts.ndim > 1:
        raise ArgumentError(
            f"t must be a number or (B,), got shape {ts.shape}: pass one time per point."
        )
    if ts.ndim == 1 and xs.ndim == 2 and len(ts) != len(xs):
        raise ArgumentError(
            f"t and x must agree, got {len(ts)} times for {len(xs)} points: pass one time per point, or one number."
        )
    is_scalar = ts.ndim == 0 and xs.ndim == 1
    count = 1 if is_scalar else (len(xs) if xs.ndim == 2 else len(ts))
    if count == 0:
        name, shape = ("x", xs.shape) if xs.ndim == 2 else ("t", ts.shape)
        raise ArgumentError(
            f"{name} must hold at least one point, got shape {shape}: pass one point or more."
        )
    ts, xs = np.broadcast_to(ts, (count,)), np.broadcast_to(xs, (count, d))
    bad = np.flatnonzero(~np.isfinite(xs).all(axis=1))
    if len(bad):
        raise ArgumentError(
            f"x must be finite, got NaN or infinity at point {listing(bad)}: remove or mend these points."
        )
    bad = np.flatnonzero(~np.isfinite(ts))
    if len(bad):
        raise ArgumentError(
            f"t must be finite, got {ts[bad[0]]} at point {listing(bad)}: remove or mend these points."
        )
    asked = ts
    with np.errstate(over="ignore"):
        ts, xs = ts.astype(dtype), xs.astype(dtype)
        bad = np.flatnonzero((ts < 0) | (ts > dtype.type(horizon)))
    if len(bad):
        raise ArgumentError(
            f"t must lie in [0, {horizon}], got {asked[bad[0]]} at point {listing(bad)}: pass times up to the horizon."
        )
    bad = np.flatnonzero(~np.isfinite(xs).all(axis=1))
    if len(bad):
        raise ArgumentError(
            f'x overflows {dtype} at point {listing(bad)}: pass dtype="float64" or rescale the problem.'
        )
    return ts, xs, is_scalar


def _method(method: Any) -> AbstractEstimator | None:
    if isinstance(method, str) and method == "auto":
        return None
    if not isinstance(method, AbstractEstimator):
        raise ArgumentTypeError(
            f'method must be "auto" or an estimator, got {brief(method)}: pass one such as scasml.Linearised().'
        )
    return method


def _laplacian(laplacian: Any, dim: int) -> Hutchinson | None:
    if isinstance(laplacian, str) and laplacian == "exact":
        return None
    if not isinstance(laplacian, Hutchinson):
        raise ArgumentTypeError(
            f'laplacian must be "exact" or scasml.Hutchinson(dims=K), got {brief(laplacian)}: pick one of the two.'
        )
    if laplacian.dims > dim:
        raise ArgumentError(
            f"laplacian: Hutchinson draws {laplacian.dims} of only {dim} coordinates: pass dims of at most {dim}."
        )
    return laplacian
