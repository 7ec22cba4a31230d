"""correct: check the arguments, state the law, run replicates until the budget ends, report."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
from jaxtyping import ArrayLike
from numpy.typing import NDArray

from .budget import Budget
from .coefficients import real_array
from .correction import CONVERGED, EXHAUSTED, NOT_FINITE, Correction, Cost
from .defect import Defect
from .engine import run_replicates, surrogate_at, terminal_at
from .errors import ArgumentError, ArgumentTypeError, brief, listing, whole
from .estimators import AbstractEstimator, Evaluations, Picard
from .generator import Hutchinson
from .plan import Share, plan
from .precision import cast, parse_dtype, precision
from .problem import AbstractLaw, require_law
from .progress import Report, bar
from .statistics import Moments
from .surrogates import AbstractSurrogate, wrap


def correct(
    problem: AbstractLaw,
    surrogate: Any,
    t: ArrayLike,
    x: ArrayLike,
    *,
    method: AbstractEstimator | str = "auto",
    replicates: int | None = None,
    seed: int = 0,
    laplacian: Hutchinson | str = "exact",
    dtype: Any = "float32",
    with_gradient: bool = True,
    chunk: int | None = None,
    progress: bool | Report = False,
) -> Correction:
    """The solution of `problem` at (t, x): the surrogate's value plus a simulation of its defect, with error bars.

    - `surrogate`: what `surrogates.wrap` takes or returns; None simulates the problem itself.
    - `t`: a number or (B,); `x`: (d,) or (B, d). One point gives scalar answers.
    - `method`: "auto" is `Picard(levels=2, samples=10)` in this version.
    - `replicates`: independent repeats at every point, from which the error bars come. With none
      named the answer is one second's worth, and says so.
    - `seed`: with it and `replicates` the answer is fixed, bit for bit, whatever the order, batch or chunk of the points.
    - `laplacian`: "exact", or `Hutchinson(dims=K)` for an unbiased estimate of the trace.
    - `dtype`: of the simulation, "float32" or "float64"; answers are float64 arrays either way.
    - `with_gradient`: False leaves the gradient out, at about half the cost.
    - `chunk`: rows per call of the compiled kernel, for latency only; results do not depend on it.
    - `progress`: True for a bar, or a function of (done, total).
    """
    began = time.monotonic()
    require_law(problem)
    kind = parse_dtype(dtype)
    ts, xs, is_scalar = _points(problem, t, x, kind)
    estimator = _method(method)
    budget = Budget(None if replicates is None else whole("replicates", replicates, 1, "pass how many repeats to run"))
    seed = whole("seed", seed, 0, "pass any whole number from 0 up")
    chunk = None if chunk is None else whole("chunk", chunk, 1, "pass rows per call, or None")
    hutchinson = _laplacian(laplacian, problem.dim)
    if not isinstance(with_gradient, bool | np.bool_):
        raise ArgumentTypeError(
            f"with_gradient must be True or False, got {brief(with_gradient)}: pass one of the two."
        )
    if not isinstance(progress, bool) and not callable(progress):
        raise ArgumentTypeError(
            f"progress must be True, False or a function of (done, total), got {brief(progress)}: pass one of these."
        )

    with precision(kind):
        law = cast(problem, kind)
        model = None if surrogate is None else wrap(cast(surrogate, kind), problem)
        defect = law if model is None else Defect(law, model, hutchinson)
        inside = ts < kind.type(problem.horizon)
        here, at = ts[inside], xs[inside]
        shares = (
            plan(law, defect, model, estimator, here, at, seed=seed, gradient=with_gradient, budget=budget)
            if len(here)
            else []
        )
        tallies = [_Tally(share, here, at, defect, model, with_gradient) for share in shares]
        with _reporting(progress) as report:
            done = _run(tallies, budget, seed, chunk, report)
        base = np.zeros(len(ts))
        if model is not None:
            base[~inside], _ = surrogate_at(model, ts[~inside], xs[~inside])
        end_value, end_slope = terminal_at(law, xs[~inside])

    # At t = T the solution is g: no simulation, no error.
    value, stderr, bias, steps = np.zeros(len(ts)), np.zeros(len(ts)), np.zeros(len(ts)), np.zeros(len(ts), int)
    value[~inside] = end_value
    gradient, gradient_stderr, gradient_bias = (np.zeros(xs.shape) for _ in range(3))
    gradient[~inside] = end_slope
    gradient_method = np.full(len(ts), "exact", object)
    spent = Evaluations()
    for tally in tallies:
        points = np.flatnonzero(inside)[tally.share.points]
        settled = tally.share.estimator
        base[points] = tally.surrogate_value
        value[points] = tally.surrogate_value + tally.value.mean
        stderr[points] = tally.value.stderr
        bias[points] = tally.bias()
        gradient_method[points] = settled.gradient
        if settled.discretises(defect):
            steps[points] = settled.steps
        if with_gradient:
            gradient[points] = tally.surrogate_slope + tally.gradient.mean
            gradient_stderr[points] = tally.gradient.stderr
            gradient_bias[points] = tally.gradient_bias()
        spent += tally.spent(done)
    finite = np.isfinite(value) & (np.isfinite(gradient).all(axis=1) if with_gradient else True)
    status = np.where(finite, np.where(inside, EXHAUSTED, CONVERGED), NOT_FINITE)
    counts = np.where(inside, done, 0)

    first: Callable[[Any], Any] = (lambda a: a[0]) if is_scalar else (lambda a: a)
    if_gradient: Callable[[Any], Any] = lambda a: first(a) if with_gradient else None
    return Correction(
        t=first(ts.astype(np.float64)),
        x=first(xs.astype(np.float64)),
        value=first(value),
        stderr=first(stderr),
        surrogate_value=first(base),
        correction=first(value - base),
        bias=first(bias),
        gradient=if_gradient(gradient),
        gradient_stderr=if_gradient(gradient_stderr),
        gradient_bias=if_gradient(gradient_bias),
        status=first(status.astype(object)) if not is_scalar else str(status[0]),
        replicates=first(counts),
        steps=first(steps),
        gradient_method=if_gradient(gradient_method),
        cost=Cost(spent, done * len(here), time.monotonic() - began),
        method=estimator,
        problem=problem,
        has_surrogate=model is not None,
        stopped=str(budget),
    )


class _Tally:
    """Moments of the replicates run so far, at the points of one share."""

    def __init__(
        self,
        share: Share,
        t: NDArray[Any],
        x: NDArray[Any],
        law: AbstractLaw,
        surrogate: AbstractSurrogate | None,
        with_gradient: bool,
    ):
        self.share, self.law, self.surrogate, self.with_gradient = share, law, surrogate, with_gradient
        self.t, self.x = t[share.points], x[share.points]
        points, dim, levels = *self.x.shape, share.estimator.increments
        self.surrogate_value = np.zeros(points)
        self.surrogate_slope = np.zeros((points, dim))
        self.value = Moments.empty((points,))
        self.increments = Moments.empty((points, levels))
        self.gradient = Moments.empty((points, dim if with_gradient else 0))
        self.gradient_increments = Moments.empty((points, levels, dim if with_gradient else 0))

    def run(self, replicates: range, seed: int, chunk: int | None) -> Iterator[int]:
        """Yields the number of rows done, as they come."""
        for _, where, rows in run_replicates(
            self.law,
            self.share.estimator,
            self.t,
            self.x,
            replicates,
            seed=seed,
            gradient=self.with_gradient,
            surrogate=self.surrogate,
            chunk=chunk,
        ):
            self._add(where, jax.tree.map(lambda a: a.astype(np.float64), rows))
            yield where.stop - where.start

    def _add(self, where: slice, rows: Any) -> None:
        if rows.surrogate is not None:
            self.surrogate_value[where], self.surrogate_slope[where] = rows.surrogate
        with np.errstate(invalid="ignore", over="ignore"):  # a NaN is an outcome here, reported in the status
            self.value.update(where, rows.value)
            self.increments.update(where, rows.increments)
            if self.with_gradient:
                self.gradient.update(where, rows.gradient)
                self.gradient_increments.update(where, rows.gradient_increments)

    def bias(self) -> NDArray[Any]:
        """Of the levels not taken and of the steps, together."""
        levels = self.share.estimator.bias(self.law, self.increments.mean, self.increments.stderr)
        return levels + self.share.bias

    def gradient_bias(self) -> NDArray[Any]:
        last = lambda a: np.moveaxis(a, 1, -1)
        mean, stderr = last(self.gradient_increments.mean), last(self.gradient_increments.stderr)
        return self.share.estimator.bias(self.law, mean, stderr) + self.share.gradient_bias

    def spent(self, replicates: int) -> Evaluations:
        """Of all replicates, the pilot's included."""
        total = (replicates + 2 * self.share.pilots) * len(self.t)
        return self.share.estimator.cost(self.law).times(total)


def _run(tallies: list[_Tally], budget: Budget, seed: int, chunk: int | None, report: Report | None) -> int:
    """Round after round, each of them at every point; the replicates done."""
    clock: float | None = None  # starts with the first row: compiling is not simulating
    done, rows, points = 0, 0, sum(len(tally.t) for tally in tallies)
    total = None if budget.replicates is None else budget.replicates * points
    while points and (more := budget.proceed(done, 0.0 if clock is None else time.monotonic() - clock)) > 0:
        for tally in tallies:
            for count in tally.run(range(done, done + more), seed, chunk):
                clock = time.monotonic() if clock is None else clock
                rows += count
                if report is not None:
                    report(rows, total)
        done += more
    return done


def _reporting(progress: bool | Report) -> AbstractContextManager[Report | None]:
    if callable(progress):
        return nullcontext(progress)
    return bar("correcting") if progress else nullcontext(None)


def _points(
    problem: AbstractLaw, t: ArrayLike, x: ArrayLike, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """(B,), (B, d) in the dtype of the simulation, and whether one point was asked for."""
    d, horizon = problem.dim, problem.horizon
    xs, ts = real_array("x", x, f"({d},) or (B, {d})"), real_array("t", t, "a number or (B,)")
    if xs.ndim not in (1, 2) or xs.shape[-1] != d:
        raise ArgumentError(
            f"x must be ({d},) or (B, {d}) for this problem of dimension {d}, got shape {xs.shape}: check it against dim."
        )
    if ts.ndim > 1:
        raise ArgumentError(f"t must be a number or (B,), got shape {ts.shape}: pass one time per point.")
    if ts.ndim == 1 and xs.ndim == 2 and len(ts) != len(xs):
        raise ArgumentError(
            f"t and x must agree, got {len(ts)} times for {len(xs)} points: pass one time per point, or one number."
        )
    is_scalar = ts.ndim == 0 and xs.ndim == 1
    count = 1 if is_scalar else (len(xs) if xs.ndim == 2 else len(ts))
    if count == 0:
        name, shape = ("x", xs.shape) if xs.ndim == 2 else ("t", ts.shape)
        raise ArgumentError(f"{name} must hold at least one point, got shape {shape}: pass one point or more.")
    ts, xs = np.broadcast_to(ts, (count,)), np.broadcast_to(xs, (count, d))
    bad = np.flatnonzero(~np.isfinite(xs).all(axis=1))
    if len(bad):
        raise ArgumentError(
            f"x must be finite, got NaN or infinity at point {listing(bad)}: remove or mend these points."
        )
    bad = np.flatnonzero(~np.isfinite(ts))
    if len(bad):
        raise ArgumentError(f"t must be finite, got {ts[bad[0]]} at point {listing(bad)}: remove or mend these points.")
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


def _method(method: Any) -> AbstractEstimator:
    if isinstance(method, str) and method == "auto":
        return Picard(levels=2, samples=10)
    if not isinstance(method, AbstractEstimator):
        raise ArgumentTypeError(
            f'method must be "auto" or an estimator, got {brief(method)}: pass one such as scasml.Picard(levels=2, samples=10).'
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


__all__ = ["correct"]
