"""Validation: the arguments of `correct` and `refine`, checked before anything runs.

`validate` takes the arguments as the user passed them and returns a `Request`. Bad input raises a
`ScasmlError` whose message is one sentence: the argument, the value and the remedy.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import ArrayLike
from numpy.typing import NDArray

from ._equations.base import AbstractEquation, require_equation
from ._equations.generator import Hutchinson
from ._io.progress import Report
from ._planning.policy import DEFAULT_POLICY, Policy
from ._support.errors import ArgumentError, ArgumentTypeError, brief, listing, whole
from ._support.precision import parse_dtype
from ._support.tracers import holds_tracer, is_inside_jit
from .estimators import AbstractEstimator
from .execution.executor import AbstractExecutor
from .execution.local import LocalExecutor
from .execution.stopping import StoppingRule
from .paths.coefficients import real_array


@dataclass(frozen=True, eq=False)
class Request:
    """The checked arguments of one call."""

    problem: AbstractEquation
    surrogate: Any  # as the user passed it
    t: NDArray[Any]  # (points,), in the dtype of the simulation
    x: NDArray[Any]  # (points, d)
    is_scalar: bool  # whether one point was passed without an axis of points
    estimator: AbstractEstimator | None  # None: pilots choose
    policy: Policy
    rule: StoppingRule
    safe: bool
    throw: bool
    seed: int
    hutchinson: Hutchinson | None
    dtype: np.dtype[Any]
    gradient: bool
    executor: AbstractExecutor
    progress: bool | Report

    @property
    def is_inside(self) -> NDArray[np.bool_]:
        """Whether each point lies before the horizon."""
        return self.t < self.dtype.type(self.problem.horizon)


def validate(
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
    dtype: Any = None,
    with_gradient: Any = True,
    chunk: Any = None,
    executor: Any = None,
    progress: Any = False,
) -> Request:
    """Check all arguments. `anytime` is True for `refine`; the others are those of `correct`."""
    require_equation(problem)
    options = {"rtol": rtol, "atol": atol, "seconds": seconds, "replicates": replicates}
    options |= {"method": method, "seed": seed}
    _refuse_tracers({"problem": problem, "surrogate": surrogate, "t": t, "x": x, **options})
    parsed = parse_dtype(dtype)
    ts, xs, is_scalar = _points(problem, t, x, parsed)
    if replicates is not None:
        replicates = whole("replicates", replicates, 1, "pass how many repeats to run")
    rule = StoppingRule(
        replicates=replicates,
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
    if throw and not rule.has_tolerance:
        raise ArgumentError(
            "throw must go with a tolerance to be missed, got True and none: name rtol= or atol=."
        )
    if not isinstance(progress, bool) and not callable(progress):
        raise ArgumentTypeError(
            "progress must be True, False or a function of one Progress, "
            f"got {brief(progress)}: pass one of these."
        )
    return Request(
        problem=problem,
        surrogate=surrogate,
        t=ts,
        x=xs,
        is_scalar=is_scalar,
        estimator=_estimator(method),
        policy=method if isinstance(method, Policy) else DEFAULT_POLICY,
        rule=rule,
        safe=bool(safe),
        throw=bool(throw),
        seed=whole("seed", seed, 0, "pass any whole number from 0 up"),
        hutchinson=_hutchinson(laplacian, problem.dim),
        dtype=parsed,
        gradient=bool(with_gradient),
        executor=_executor(executor, chunk),
        progress=progress,
    )


def _refuse_tracers(arguments: dict[str, Any]) -> None:
    """Refuse values that `jax.jit`, `jax.grad` or `jax.vmap` trace, and calls inside `jax.jit`."""
    names = [name for name, value in arguments.items() if holds_tracer(value)]
    problem = ""
    if names:
        problem = f"{names[0]} must be concrete, got a traced value"
    elif is_inside_jit():
        problem = "problem must be solved outside jit, got a call inside a function that is traced"
    if problem:
        raise ArgumentTypeError(
            f"{problem}: call it outside jit, grad and vmap; "
            "inside jit and vmap use the pure function scasml.Linearised().replicate."
        )


def _executor(executor: Any, chunk: Any) -> AbstractExecutor:
    if chunk is not None:
        chunk = whole("chunk", chunk, 1, "pass rows per call, or None")
    if executor is None:
        return LocalExecutor(chunk)
    if not isinstance(executor, AbstractExecutor):
        raise ArgumentTypeError(
            f"executor must be None or an AbstractExecutor, got {brief(executor)}: "
            "pass one of scasml.execution, or your own subclass."
        )
    if chunk is not None:
        raise ArgumentError(
            f"chunk goes with the default executor only, got {chunk} and an executor: "
            "leave one of them out."
        )
    return executor


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
            f"x must be ({d},) or (B, {d}) for this problem of dimension {d}, got shape "
            f"{xs.shape}: check it against dim."
        )
    if ts.ndim > 1:
        raise ArgumentError(
            f"t must be a number or (B,), got shape {ts.shape}: pass one time per point."
        )
    if ts.ndim == 1 and xs.ndim == 2 and len(ts) != len(xs):
        raise ArgumentError(
            f"t and x must agree, got {len(ts)} times for {len(xs)} points: pass one time per "
            "point, or one number."
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
            f"x must be finite, got NaN or infinity at point {listing(bad)}: remove or correct "
            "these points."
        )
    bad = np.flatnonzero(~np.isfinite(ts))
    if len(bad):
        raise ArgumentError(
            f"t must be finite, got {ts[bad[0]]} at point {listing(bad)}: remove or correct these "
            "points."
        )
    asked = ts
    with np.errstate(over="ignore"):
        ts, xs = ts.astype(dtype), xs.astype(dtype)
        bad = np.flatnonzero((ts < 0) | (ts > dtype.type(horizon)))
    if len(bad):
        raise ArgumentError(
            f"t must lie in [0, {horizon}], got {asked[bad[0]]} at point {listing(bad)}: pass "
            "times up to the horizon."
        )
    bad = np.flatnonzero(~np.isfinite(xs).all(axis=1))
    if len(bad):
        raise ArgumentError(
            f'x overflows {dtype} at point {listing(bad)}: pass dtype="float64" or rescale the '
            "problem."
        )
    return ts, xs, is_scalar


def _estimator(method: Any) -> AbstractEstimator | None:
    """Return the estimator that the user named, or None for the automatic choice."""
    if (isinstance(method, str) and method == "auto") or isinstance(method, Policy):
        return None
    if not isinstance(method, AbstractEstimator):
        raise ArgumentTypeError(
            f'method must be "auto" or an estimator, got {brief(method)}: '
            "pass one such as scasml.Linearised()."
        )
    return method


def _hutchinson(laplacian: Any, dim: int) -> Hutchinson | None:
    if isinstance(laplacian, str) and laplacian == "exact":
        return None
    if not isinstance(laplacian, Hutchinson):
        raise ArgumentTypeError(
            f'laplacian must be "exact" or scasml.Hutchinson(dims=K), got {brief(laplacian)}: pick '
            "one of the two."
        )
    if laplacian.dims > dim:
        raise ArgumentError(
            f"laplacian: Hutchinson draws {laplacian.dims} of only {dim} coordinates: pass dims of "
            f"at most {dim}."
        )
    return laplacian
