"""Assembly: from the accumulators of a run to a `Correction`.

`AtHorizon.of` answers the points with t = T, which need no simulation. `assemble` combines these
answers with those of the accumulators, shrinks the corrections and sets the status of each point.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._planning.task import Plan, Task
from .._request import Request
from .._support.types import Floats
from ..estimators import steps_of
from ..execution.local import value_and_gradient
from ..execution.rounding import rounding_error
from ..execution.rounds import Run
from ..execution.stopping import Estimate
from .correction import Correction
from .levels import Levels, Tails
from .records import Choice, Choices, Cost
from .shrinkage import kept_share
from .status import Status


class AtHorizon(NamedTuple):
    """The answer at the points with t = T, where the solution is g.

    Arrays have shape (points,), and those of gradients (points, d).
    """

    value: Floats
    gradient: Floats
    bias: Floats  # rounding only
    gradient_bias: Floats  # rounding only
    surrogate_value: Floats  # zero without a surrogate

    @classmethod
    def of(cls, request: Request, task: Task) -> "AtHorizon":
        """Evaluate g, its gradient and the surrogate at the points of the request with t = T."""
        at = ~request.is_inside
        t, x = request.t[at], request.x[at]
        value, gradient = value_and_gradient(task.executor, task.equation.terminal, x)
        bias, gradient_bias = rounding_error(task.executor, task.equation.terminal, x)
        surrogate = np.zeros(len(t))
        if task.surrogate is not None:
            surrogate, _ = value_and_gradient(task.executor, task.surrogate, t, x)
        return cls(value, gradient, bias, gradient_bias, surrogate)


class _Columns:
    """The quantities of an answer, one row per point of the request."""

    def __init__(self, request: Request, horizon: AtHorizon):
        points, dim = request.x.shape
        at = ~request.is_inside
        self.value, self.stderr, self.bias, self.count = (np.zeros(points) for _ in range(4))
        self.surrogate = np.zeros(points)
        self.steps, self.gradient_method = np.zeros(points, int), np.full(points, "exact", object)
        self.gradient, self.gradient_stderr, self.gradient_bias = (
            np.zeros((points, dim)) for _ in range(3)
        )
        self.value[at], self.gradient[at] = horizon.value, horizon.gradient
        self.bias[at], self.gradient_bias[at] = horizon.bias, horizon.gradient_bias
        self.surrogate[at] = horizon.surrogate_value

    def add(self, accumulator: Any, gradient: bool) -> None:
        """Copy the estimates of one accumulator to the rows of its points."""
        at, tuning = accumulator.points.index, accumulator.tuning
        self.surrogate[at] = accumulator.surrogate_value
        self.value[at], self.count[at], self.stderr[at], self.bias[at] = accumulator.estimate()
        self.gradient_method[at], self.steps[at] = (
            tuning.gradient,
            steps_of(accumulator.program.estimator, accumulator.program.equation, tuning),
        )
        if gradient:
            with np.errstate(invalid="ignore"):
                self.gradient[at] = accumulator.surrogate_slope + accumulator.gradient.mean
                self.gradient_stderr[at] = accumulator.gradient.stderr
                self.gradient_bias[at] = accumulator.gradient_bias()

    def is_finite(self, gradient: bool) -> NDArray[np.bool_]:
        finite = np.isfinite(self.value)
        return finite & np.isfinite(self.gradient).all(axis=1) if gradient else finite


def assemble(
    request: Request,
    task: Task,
    plan: Plan,
    run: Run,
    horizon: AtHorizon,
) -> Correction:
    """Return the answer of a run, which need not be over.

    **Arguments:**

    - `request`: the arguments of the user. With `request.safe`, the corrections are shrunk.
    - `task`: the planned call, with its surrogate.
    - `plan`: start, estimator and tuning of the points, which the answer lists; cost of pilots.
    - `run`: the accumulators, and what ended the run.
    - `horizon`: the answer at the points with t = T.
    """
    columns, gradient = _Columns(request, horizon), request.gradient
    for accumulator in run.accumulators:
        columns.add(accumulator, gradient)
    finite, raw, base = columns.is_finite(gradient), columns.value, columns.surrogate
    estimate = Estimate(raw, columns.count, columns.stderr, columns.bias)
    share = np.ones(len(raw))
    if request.safe and task.surrogate is not None:
        usable = [a[finite] for a in (raw - base, columns.count, columns.stderr, columns.bias)]
        share[finite] = kept_share(*usable)
    value = np.where(share < 1, base + share * (raw - base), raw)
    status = _statuses(request, run, estimate, finite, share)
    first: Callable[[Any], Any] = (lambda a: a[0]) if request.is_scalar else (lambda a: a)
    if_gradient: Callable[[Any], Any] = lambda a: first(a) if gradient else None
    return Correction(
        t=first(request.t.astype(np.float64)),
        x=first(request.x.astype(np.float64)),
        value=first(value),
        stderr=first(columns.stderr),
        surrogate_value=first(base),
        correction=first(value - base),
        raw_value=first(raw),
        kept_share=first(share),
        bias=first(columns.bias),
        gradient=if_gradient(columns.gradient),
        gradient_stderr=if_gradient(columns.gradient_stderr),
        gradient_bias=if_gradient(columns.gradient_bias),
        status_code=first(status),
        replicates=first(columns.count.astype(np.int64)),
        steps=first(columns.steps),
        gradient_method=if_gradient(columns.gradient_method),
        cost=_cost(plan, run),
        method="auto" if request.estimator is None else request.estimator,
        choices=Choices(
            (
                Choice(points, each.estimator, tuning, each.start.name, each.reason)
                for each in plan.assignments
                for points, tuning in each.by_samples()
            ),
            plan.candidates,
        ),
        problem=request.problem,
        has_surrogate=task.surrogate is not None,
        rule=request.rule,
        stopped=_stopped(request, run),
        history=tuple(run.history),
        levels=tuple(Levels.of(each) for each in run.accumulators),
        tails=Tails.of(len(raw), run.accumulators),
    )


def _cost(plan: Plan, run: Run) -> Cost:
    spent = sum((each.evaluations() for each in run.accumulators), plan.pilots)
    replicates = sum(int(each.count.sum()) for each in run.accumulators)
    return Cost(spent, replicates, time.monotonic() - run.began)


def _statuses(
    request: Request,
    run: Run,
    estimate: Estimate,
    finite: NDArray[np.bool_],
    share: Floats,
) -> NDArray[np.int8]:
    """Return the status code of each point, shape (points,).

    `finite` (points,) is True where value and gradient are finite, and `share` (points,) is the
    kept fraction of the correction. Where several statuses apply, the one assigned last counts.
    """
    rule, unfinished = request.rule, Status.BUDGET_EXHAUSTED
    if run.was_interrupted or run.is_late:
        unfinished = Status.INTERRUPTED if run.was_interrupted else Status.OVER_TIME
    codes = np.full(len(share), unfinished.code, np.int8)
    met = np.full(len(share), unfinished == Status.BUDGET_EXHAUSTED)
    if rule.has_tolerance:
        codes[rule.bias_limited(estimate)] = Status.BIAS_ABOVE_TOLERANCE.code
        met = rule.met(estimate)
        # An error bar without the unknown bias does not prove convergence.
        unknown = np.isnan(estimate.bias)
        codes[met] = Status.CONVERGED.code
        codes[met & unknown] = Status.BIAS_UNKNOWN.code
    codes[met & (share == 0)] = Status.KEPT_SURROGATE.code
    codes[~request.is_inside] = Status.CONVERGED.code
    codes[~finite] = Status.NOT_FINITE.code
    return codes


def _stopped(request: Request, run: Run) -> str:
    """Return what ended the run, in words."""
    if run.was_interrupted:
        return "interrupted"
    if run.is_late:
        seconds = time.monotonic() - run.began
        return f"{request.rule}: compiling and two replicates took {seconds:.1f} s"
    return str(request.rule)
