"""correct and refine: state the law, run replicates where they are still needed, report."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import ArrayLike
from numpy.typing import NDArray

from ._answer.correction import (
    CONVERGED,
    EXHAUSTED,
    INTERRUPTED,
    KEPT,
    LATE,
    NOT_FINITE,
    TOO_BIASED,
    UNKNOWN,
    Choice,
    Correction,
    Cost,
    Round,
)
from ._answer.diagnosis import Levels, Tails
from ._answer.shrinkage import kept_share
from ._equations.generator import Hutchinson
from ._equations.problem import AbstractEquation
from ._io.interruption import Interruption
from ._io.progress import Progress, Report, correction_bar
from ._planning.auto import choose, controls, given
from ._planning.task import Setting, Share
from ._planning.tuning import plan
from ._request import Query, query
from ._support.errors import ToleranceError
from ._support.precision import cast, use_dtype
from .estimators import AbstractEstimator, Evaluations
from .execution import surrogate_at, terminal_at
from .execution.accumulator import Tally
from .execution.moments import LEVEL, half_width
from .execution.rounding import rounding_error
from .execution.stopping import DEFAULT_SECONDS
from .surrogates.wrapping import wrap

REPORT_SECONDS = 0.1


def correct(
    problem: AbstractEquation,
    surrogate: Any,
    t: ArrayLike,
    x: ArrayLike,
    *,
    method: AbstractEstimator | str = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    seconds: float | None = None,
    replicates: int | None = None,
    safe: bool = True,
    throw: bool = False,
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
    - `method`: "auto" lets a pilot choose, at each point for itself; `answer.choices` says what it chose, and why.
    - `rtol`, `atol`: a point is done when half of its 95 % interval, bias included, is at most rtol |value| or at most atol.
    - `seconds`: for the whole call, compilation included; `replicates`: independent repeats at a point.
      The first rule that is reached ends a point. With none the answer is one second's worth, and says so.
    - `safe`: shrinks corrections that are hardly larger than their noise toward the surrogate; False is the raw
      estimate. Error bars are those of the raw estimate either way.
    - `throw`: raise `ToleranceError`, which holds the answer, if a point misses its tolerance.
    - `seed`: with it the replicates of a point are fixed, bit for bit, whatever the order, batch or chunk of the points.
    - `laplacian`: "exact", or `Hutchinson(dims=K)` for an unbiased estimate of the trace.
    - `dtype`: of the simulation, "float32" or "float64"; answers are float64 arrays either way.
    - `with_gradient`: False leaves the gradient out, at about half the cost.
    - `chunk`: rows per call of the compiled kernel, for latency only; results do not depend on it.
    - `progress`: True for a bar, or a function of one `Progress`.

    Ctrl-C returns the answer so far, once every point has the two replicates of an error bar.
    """
    began = time.monotonic()
    asked = query(
        problem,
        surrogate,
        t,
        x,
        method=method,
        rtol=rtol,
        atol=atol,
        seconds=seconds,
        replicates=replicates,
        safe=safe,
        throw=throw,
        seed=seed,
        laplacian=laplacian,
        dtype=dtype,
        with_gradient=with_gradient,
        chunk=chunk,
        progress=progress,
    )
    return finish(Run(asked, began))


def finish(run: "Run") -> Correction:
    """The answer at the end of a run."""
    asked = run.asked
    with correction_bar(asked.progress) as report, Interruption() as interruption:
        while not run.is_over:
            run.round(interruption, report)
        answer = run.answer()
    if asked.throw and answer.unmet.any():
        raise ToleranceError(answer)
    return answer


def refine(
    problem: AbstractEquation,
    surrogate: Any,
    t: ArrayLike,
    x: ArrayLike,
    *,
    method: AbstractEstimator | str = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    seconds: float | None = None,
    replicates: int | None = None,
    safe: bool = True,
    seed: int = 0,
    laplacian: Hutchinson | str = "exact",
    dtype: Any = "float32",
    with_gradient: bool = True,
    chunk: int | None = None,
    progress: bool | Report = False,
) -> Iterator[Correction]:
    """Answer after answer, each from up to twice the replicates of the last; arguments as for `correct`.

    It ends with its stopping rules, and without any only when the caller leaves the loop, or at Ctrl-C, which ends the
    loop after one more answer.
    """
    began = time.monotonic()
    asked = query(
        problem,
        surrogate,
        t,
        x,
        anytime=True,
        method=method,
        rtol=rtol,
        atol=atol,
        seconds=seconds,
        replicates=replicates,
        safe=safe,
        seed=seed,
        laplacian=laplacian,
        dtype=dtype,
        with_gradient=with_gradient,
        chunk=chunk,
        progress=progress,
    )
    return _begun(asked, began)


def _begun(asked: Query, began: float) -> Iterator[Correction]:
    yield from _answers(Run(asked, began))


def _answers(run: "Run") -> Iterator[Correction]:
    with correction_bar(run.asked.progress) as report:
        while True:
            with Interruption() as interruption:
                run.round(interruption, report)
                answer = run.answer()
            yield answer
            if run.is_over or interruption.heard:  # also while the answer was made
                return


class Run:
    """The state of a run between its rounds."""

    def __init__(self, asked: Query, began: float):
        self.asked, self.began = asked, began
        seconds = asked.budget.seconds
        self.deadline = np.inf if seconds is None else began + seconds
        self.is_over = self.is_late = self.was_interrupted = False
        self.history: list[Round] = []
        self._reported = 0.0
        with use_dtype(asked.dtype):
            equation = cast(asked.problem, asked.dtype)
            self.model = (
                None
                if asked.surrogate is None
                else wrap(cast(asked.surrogate, asked.dtype), asked.problem)
            )
            self.inside = asked.t < asked.dtype.type(asked.problem.horizon)
            setting = Setting(
                problem=equation,
                surrogate=self.model,
                t=asked.t[self.inside],
                x=asked.x[self.inside],
                seed=asked.seed,
                gradient=asked.with_gradient,
                budget=asked.budget,
                deadline=(began + self.deadline) / 2,
            )
            self.piloted = setting.spent
            self.tallies = [
                Tally(
                    share,
                    setting.kernel(share.control, share.estimator, share.points, chunk=asked.chunk),
                )
                for share in self._shares(setting, equation)
            ]
            # At t = T the solution is g: no simulation, no error but of rounding.
            end = asked.x[~self.inside]
            self.base, self.end = np.zeros(len(asked.t)), terminal_at(equation, end)
            self.end_bias = rounding_error(terminal_at, equation, end)
            if self.model is not None:
                self.base[~self.inside], _ = surrogate_at(self.model, asked.t[~self.inside], end)

    @property
    def work(self) -> float:
        """Of all points to their error bars, in operations; infinite where that is not known, or the bias is larger than they are."""
        return sum(float(np.sum(tally.share.work)) for tally in self.tallies)

    def _shares(self, setting: Setting, equation: AbstractEquation) -> list[Share]:
        """By whom every point is served."""
        asked = self.asked
        if not len(setting.t):
            return []
        if asked.method is None:
            return choose(setting, controls(equation, self.model, asked.hutchinson))
        return plan(setting, given(equation, self.model, asked.hutchinson), asked.method)

    def round(self, interruption: Interruption, report: Report | None) -> None:
        budget = self.asked.budget
        targets = [budget.targets(*self._state(tally)) for tally in self.tallies]
        if self.deadline < np.inf or budget.is_default or len(self.tallies) > 1:
            # An error bar for everybody before more for anybody.
            least = min(2, budget.most)
            targets = (
                targets if self._has_bars() else [np.minimum(target, least) for target in targets]
            )
        for tally, target in zip(self.tallies, targets, strict=True):
            had_bars = self._has_bars()
            for _ in tally.run(target):
                self._report(report)
                self.is_late |= not had_bars and time.monotonic() > self.deadline
                had_bars = self._has_bars()
                if interruption.heard and not had_bars:
                    raise KeyboardInterrupt
                if had_bars and (interruption.heard or self._time_is_up()):
                    self.is_over = True
                    break
            if self.is_over:
                break
        self.is_over |= self._time_is_up()
        self.is_over |= all(
            (budget.targets(*self._state(tally)) <= tally.count).all() for tally in self.tallies
        )
        self._report(report, last=True)
        self._note()
        # Also one that came after the last row.
        self.was_interrupted = interruption.heard
        self.is_over |= interruption.heard

    def _has_bars(self) -> bool:
        """Whether every point has the replicates that an error bar needs."""
        least = min(2, self.asked.budget.most)
        return all((tally.count >= least).all() for tally in self.tallies)

    def _time_is_up(self) -> bool:
        if self.asked.budget.is_default:
            return sum(tally.kernel.seconds for tally in self.tallies) >= DEFAULT_SECONDS
        return time.monotonic() >= self.deadline

    @staticmethod
    def _state(tally: Tally) -> tuple[Any, Any, Any, Any]:
        """Value, count, standard error and bias: what a budget decides by."""
        with np.errstate(invalid="ignore"):
            return tally.estimate(), tally.value.count, tally.value.stderr, tally.bias()

    def _report(self, report: Report | None, last: bool = False) -> None:
        now = time.monotonic()
        if report is None or (now - self._reported < REPORT_SECONDS and not last):
            return
        self._reported, budget = now, self.asked.budget
        done, worst, left = int(np.sum(~self.inside)), np.nan, 0.0
        for tally in self.tallies:
            value, count, stderr, bias = self._state(tally)
            goal = (
                budget.needed(value, count, stderr, bias)
                if budget.has_tolerance
                else np.full(len(count), np.inf)
            )
            goal = np.where(
                np.isfinite(value) | (count == 0), np.minimum(goal, budget.replicates or np.inf), 0
            )
            waiting = ~(goal <= count) & ~(
                (count > 0) & budget.unreachable(value, count, bias) & budget.has_tolerance
            )
            done += int(np.sum(~waiting))
            # Before the first rows are timed nothing is known.
            each = tally.kernel.seconds_per_row or np.inf
            more = np.nan_to_num(goal - count, nan=np.inf, posinf=np.inf)
            left += float(np.sum(more[waiting])) * each if waiting.any() else 0.0
            with np.errstate(invalid="ignore", divide="ignore"):
                relative = half_width(LEVEL, count, stderr, bias) / np.abs(value)
            if np.isfinite(relative[waiting]).any():
                worst = np.fmax(worst, np.nanmax(relative[waiting]))
        rows = int(sum(tally.count.sum() for tally in self.tallies))
        if budget.is_default:
            left = DEFAULT_SECONDS - sum(tally.kernel.seconds for tally in self.tallies)
        left = max(min(left, self.deadline - now), 0.0) if not last or not self.is_over else 0.0
        report(Progress(done, len(self.inside), rows, float(worst), now - self.began, left))

    def answer(self) -> Correction:
        asked, budget = self.asked, self.asked.budget
        points, dim = asked.x.shape
        value, stderr, bias, count = (np.zeros(points) for _ in range(4))
        steps, gradient_method = np.zeros(points, int), np.full(points, "exact", object)
        gradient, gradient_stderr, gradient_bias = (np.zeros((points, dim)) for _ in range(3))
        value[~self.inside], gradient[~self.inside] = self.end
        bias[~self.inside], gradient_bias[~self.inside] = self.end_bias
        base = self.base.copy()
        for tally in self.tallies:
            at = np.flatnonzero(self.inside)[tally.share.points]
            base[at] = tally.surrogate_value
            value[at], count[at], stderr[at], bias[at] = self._state(tally)
            gradient_method[at] = tally.share.estimator.gradient
            if tally.share.estimator.discretises(tally.kernel.equation):
                steps[at] = tally.share.estimator.steps
            if asked.with_gradient:
                with np.errstate(invalid="ignore"):
                    gradient[at] = tally.surrogate_slope + tally.gradient.mean
                    gradient_stderr[at] = tally.gradient.stderr
                    gradient_bias[at] = tally.gradient_bias()
        finite = np.isfinite(value) & (
            np.isfinite(gradient).all(axis=1) if asked.with_gradient else True
        )
        share = np.ones(points)
        if asked.safe and self.model is not None:
            share[finite] = kept_share(
                (value - base)[finite], count[finite], stderr[finite], bias[finite]
            )
        raw, value = value, np.where(share < 1, base + share * (value - base), value)
        status = self._status(raw, count, stderr, bias, finite, share)

        first: Callable[[Any], Any] = (lambda a: a[0]) if asked.is_scalar else (lambda a: a)
        if_gradient: Callable[[Any], Any] = lambda a: first(a) if asked.with_gradient else None
        spent = sum([tally.spent() for tally in self.tallies] + self.piloted, Evaluations())
        rows = sum(int(tally.count.sum()) for tally in self.tallies)
        return Correction(
            t=first(asked.t.astype(np.float64)),
            x=first(asked.x.astype(np.float64)),
            value=first(value),
            stderr=first(stderr),
            surrogate_value=first(base),
            correction=first(value - base),
            raw_value=first(raw),
            kept_share=first(share),
            bias=first(bias),
            gradient=if_gradient(gradient),
            gradient_stderr=if_gradient(gradient_stderr),
            gradient_bias=if_gradient(gradient_bias),
            status=first(status) if not asked.is_scalar else str(status[0]),
            replicates=first(count.astype(np.int64)),
            steps=first(steps),
            gradient_method=if_gradient(gradient_method),
            cost=Cost(spent, rows, time.monotonic() - self.began),
            method="auto" if asked.method is None else asked.method,
            choices=tuple(
                Choice(
                    np.flatnonzero(self.inside)[points],
                    method,
                    tally.share.control.name,
                    tally.share.reason,
                )
                for tally in self.tallies
                for points, method in tally.share.methods()
            ),
            problem=asked.problem,
            has_surrogate=self.model is not None,
            budget=budget,
            stopped=self._stopped(status),
            history=tuple(self.history),
            levels=tuple(
                Levels.of(
                    np.flatnonzero(self.inside)[tally.share.points], tally, tally.kernel.equation
                )
                for tally in self.tallies
            ),
            tails=Tails.of(
                points,
                [
                    (np.flatnonzero(self.inside)[tally.share.points], tally)
                    for tally in self.tallies
                ],
            ),
        )

    def _status(
        self,
        value: NDArray[Any],
        count: NDArray[Any],
        stderr: NDArray[Any],
        bias: NDArray[Any],
        finite: NDArray[np.bool_],
        share: NDArray[Any],
    ) -> NDArray[Any]:
        """One word for each point; what went wrong before what went well."""
        budget = self.asked.budget
        unfinished = INTERRUPTED if self.was_interrupted else LATE if self.is_late else EXHAUSTED
        status = np.full(len(value), unfinished, object)
        if budget.has_tolerance:
            status[budget.unreachable(value, count, bias)] = TOO_BIASED
            met = budget.met(value, count, stderr, bias)
        else:
            met = np.full(len(value), unfinished == EXHAUSTED)
        # To an error bar that leaves out what it cannot tell nobody converges.
        status[met & budget.has_tolerance] = np.where(np.isnan(bias), UNKNOWN, CONVERGED)[
            met & budget.has_tolerance
        ]
        status[met & (share == 0)] = KEPT
        status[~self.inside] = CONVERGED
        status[~finite] = NOT_FINITE
        return status

    def _stopped(self, status: NDArray[Any]) -> str:
        budget, seconds = self.asked.budget, time.monotonic() - self.began
        if self.was_interrupted:
            return "interrupted"
        if self.is_late:
            return f"{budget}: compiling and two replicates took {seconds:.1f} s"
        return str(budget)

    def _note(self) -> None:
        states = [self._state(tally)[1:] for tally in self.tallies]
        count, stderr, bias = (
            np.concatenate([state[k] for state in states] or [[]]) for k in range(3)
        )
        known = (count > 1) & np.isfinite(stderr)
        if known.any():
            half = half_width(LEVEL, count[known], stderr[known], bias[known])
            self.history.append(
                Round(
                    replicates=float(np.mean(count[known])),
                    seconds=time.monotonic() - self.began,
                    median=float(np.median(half)),
                    worst=float(np.max(half)),
                    bias=float(np.median(np.nan_to_num(bias[known]))),
                )
            )


__all__ = ["correct", "refine"]
