"""Candidates of the automatic choice: a start and an estimator, with what their pilots measured.

`try_candidate` runs the pilots. The other functions only compare candidates.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._support.tracing import cached_by_structure
from .._support.types import Floats
from ..estimators import AbstractTunable, Evaluations, Linearised, Picard
from .policy import Policy
from .probes import gradient_methods, slopes_jump
from .settling import step_factor
from .task import Figures, Plan, Start, Task
from .trials import Trial, run_trial

# Why a candidate is refused.
MEASURED_AGAIN = "measured again"
TOO_STEEP = "F is too steep in u to be linearised"
UNKNOWN_BIAS = "F is too steep for its bias to be known"
SLOPES_JUMP = (
    "the slopes of F in u or z jump where paths go, and cannot be differentiated along them"
)
# A score of at least this belongs to a candidate whose level bias exceeds the standard error aimed
# for.
BIASED_SCORE = 1e30


@dataclass(frozen=True, eq=False)
class Candidate:
    """A start and an estimator, with what their pilots measured at some points of a task.

    The arrays have one entry per point of the task. At points that were not tried, `score` is
    infinite, `value`, `value_stderr` and `distance` are NaN, and the biases and `stderr` are 0.

    The smaller score is the better one. It is the predicted work, multiplied by a factor that grows
    with the level bias relative to `stderr`. Where the level bias exceeds `stderr`, the score is
    BIASED_SCORE times their ratio, whatever the work. It is infinite where the candidate is
    refused.
    """

    start: Start
    estimator: AbstractTunable
    steps: int | None  # fixed steps of a path; None leaves them open
    # The trials, one for each gradient method, with the indices of their points in the task.
    trials: tuple[tuple[NDArray[np.int64], Trial], ...]
    score: Floats
    level_bias: Floats
    step_bias: Floats
    stderr: Floats  # the standard error aimed for
    value: Floats  # the estimate of u
    value_stderr: Floats  # the standard error of that estimate
    distance: Floats  # the absolute value of the defect
    refusal: NDArray[Any]  # why the candidate is refused, in words; empty where it is not

    @property
    def name(self) -> str:
        if isinstance(self.estimator, Picard):
            return f"{self.start.name}, by Picard"
        has_factor = isinstance(self.estimator, Linearised) and self.estimator.factor > 0
        return f"{self.start.name}, with a factor" if has_factor else self.start.name

    @property
    def rows(self) -> NDArray[np.int64]:
        """The indices, in the task, of the points that were tried."""
        return np.sort(np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in self.trials)]))

    @property
    def cost(self) -> Evaluations:
        """The cost of the pilots."""
        return sum((trial.measurement.cost for _, trial in self.trials), Evaluations())

    def refused(self, where: NDArray[np.bool_], why: str) -> "Candidate":
        """Return the candidate, refused at the points of a mask too, for a reason in words."""
        first = where & (self.refusal == "")
        refusal = np.where(first, why, self.refusal)
        return replace(self, score=np.where(where, np.inf, self.score), refusal=refusal)

    def at_goal(self, goal: Floats, only_biases: bool = False) -> "Candidate":
        """Return the candidate with the score that it would have for another standard error.

        `goal` (points,) is that standard error; NaN keeps the score. With `only_biases`, scores
        that stand for work are kept.
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            factor = np.nan_to_num(self.stderr / goal, nan=1.0, posinf=1.0)
            factor = np.where(factor > 0, factor, 1.0)
            is_biased = self.score >= BIASED_SCORE
            of_work = self.score if only_biases else factor**2 * self.score
            of_bias = np.maximum(factor * self.score, BIASED_SCORE)
        return replace(self, score=np.where(is_biased, of_bias, of_work))

    def figures(self, task: Task, is_taken: NDArray[np.bool_]) -> Figures:
        """Return the figures of the candidate; `is_taken` is a mask over the points of the task."""
        rows = self.rows
        work, bound, steps = (np.zeros(len(task)) for _ in range(3))
        for tried, trial in self.trials:
            work[tried] = trial.settled.work
            bound[tried] = trial.settled.level_bias + trial.measurement.step_bias
            steps[tried] = trial.steps
        refused = self.refusal != ""
        kept = np.where(self.score >= BIASED_SCORE, "more bias", "more work")
        verdict = np.where(is_taken, "taken", np.where(refused, self.refusal, kept))
        return Figures(
            name=self.name,
            points=task.points.index[rows],
            defect=self.distance[rows],
            stderr=self.stderr[rows],
            bound=bound[rows],
            work=work[rows],
            steps=steps[rows].astype(np.int64),
            verdict=verdict[rows].astype(object),
        )

    def is_suspect(self, policy: Policy) -> NDArray[np.bool_]:
        """Return a mask of the points where the defect is large, or where much work remains.

        These are the points that were tried and where the defect, with two standard errors, exceeds
        the fraction `suspect_defect` of the value, the predicted work reaches `suspect_work`, or
        the candidate is refused.

        A network that was fitted at few points may have a large residual whose mean along paths is
        small. Its defect is then small, but its replicates are noisy and need much work.
        """
        suspect = np.zeros(len(self.score), bool)
        for rows, trial in self.trials:
            with np.errstate(invalid="ignore"):
                limit = policy.suspect_defect * np.abs(self.value[rows])
                is_fine = self.distance[rows] + 2 * self.value_stderr[rows] <= limit
                is_fine &= trial.settled.work < policy.suspect_work
            suspect[rows] = ~(is_fine & np.isfinite(self.score[rows]))
        return suspect

    def trial_at(self, row: int) -> tuple[Trial, NDArray[np.int64]]:
        """Return the trial of one point, and the index of the point in the trial's own task."""
        rows, trial = next(each for each in self.trials if row in each[0])
        return trial, np.flatnonzero(rows == row)

    def plan(self, rows: NDArray[np.int64], reason: str) -> Plan:
        """Return assignments of the points `rows` that were tried, with their steps settled.

        Settling the steps may run more pilots. The cost of the plan covers these further pilots
        only; the first ones are in `cost`. `reason` says why the candidate was taken.
        """
        parts = (trial.plan(np.flatnonzero(np.isin(tried, rows))) for tried, trial in self.trials)
        return sum(parts, Plan()).with_reason(reason)


def try_candidate(
    task: Task,
    start: Start,
    estimator: AbstractTunable,
    rows: NDArray[np.int64],
    replicates: int | None = None,
    steps: int | None = None,
) -> Candidate:
    """Run the pilots of a start and an estimator.

    **Arguments:**

    - `rows`: the indices, in the task, of the points to try.
    - `replicates`: replicates of the pilots; None for the number of the policy.
    - `steps`: fixes the steps of a path; None leaves them open.
    """
    trials = []
    for name, points in gradient_methods(task, start, estimator).items():
        served = np.intersect1d(points, rows)
        if len(served):
            trial = run_trial(task.at(served), start, estimator, name, replicates, steps)
            trials.append((served, trial))
    count = len(task)
    score, zeros, unknown = np.full(count, np.inf), np.zeros(count), np.full(count, np.nan)
    level_bias, step_bias, stderr = zeros.copy(), zeros.copy(), zeros.copy()
    value, value_stderr, distance = unknown.copy(), unknown.copy(), unknown.copy()
    for served, trial in trials:
        found = trial.measurement
        score[served] = trial_score(trial)
        level_bias[served] = np.nan_to_num(trial.settled.level_bias)
        step_bias[served], stderr[served] = found.step_bias, trial.settled.stderr
        value[served], distance[served] = found.value, np.abs(found.defect)
        value_stderr[served] = np.sqrt(np.sum(found.variance, 1) / found.replicates)
    arrays = (score, level_bias, step_bias, stderr, value, value_stderr, distance)
    found = Candidate(start, estimator, steps, tuple(trials), *arrays, np.full(count, "", object))
    for why, where in refusals(trials).items():
        found = found.refused(_mask(where, count), why)
    is_tried = _mask(found.rows, count)
    return found.refused(is_tried & np.isinf(found.score), "its pilot was not finite")


# The bound of a useless candidate may be so large that its score overflows. Then it is refused.
@np.errstate(over="ignore", invalid="ignore")
def trial_score(trial: Trial) -> Floats:
    """Return the score of a trial at its points."""
    task, look, settled = trial.task, trial.look, trial.settled
    bias, stderr, work = np.nan_to_num(settled.level_bias), settled.stderr, settled.work
    order = look.estimator.step_order(look.start.equation)
    if look.estimator.steps == "auto" and not trial.has_fixed_steps and order > 0:
        # The run may need more steps than the pilot, and then more work.
        step_bias = trial.measurement.step_bias_of_large_pilot(task.policy)
        work = work * step_factor(step_bias, stderr, order, task.policy)
    # Where the bias exceeds the standard error aimed for, work does not count.
    biased = BIASED_SCORE * bias / stderr
    score = np.where(bias > stderr, biased, work * (1 + (2 * bias / stderr) ** 2))
    return np.where(np.isfinite(score), score, np.inf)


def refusals(
    trials: Sequence[tuple[NDArray[np.int64], Trial]],
) -> dict[str, NDArray[np.int64]]:
    """Return the reasons for which trials are refused, each with the indices of its points."""
    none = np.zeros(0, np.int64)
    found = {TOO_STEEP: [none], UNKNOWN_BIAS: [none], SLOPES_JUMP: [none]}
    for rows, trial in trials:
        estimator = trial.look.estimator
        why = TOO_STEEP if isinstance(estimator, Linearised) else UNKNOWN_BIAS
        found[why].append(rows[trial.too_steep])
        if isinstance(estimator, Linearised) and differentiates_slopes(estimator, trial.task):
            found[SLOPES_JUMP].append(rows[slopes_jump(trial.task, trial.look.start)])
    return {why: np.concatenate(rows) for why, rows in found.items()}


def _mask(rows: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    mask = np.zeros(count, bool)
    mask[rows] = True
    return mask


def differentiates_slopes(estimator: AbstractTunable, task: Task) -> bool:
    """Return whether the estimator differentiates F_u and F_z along paths.

    If it does, F_u and F_z must have no discontinuity where paths go.
    """
    order = estimator.derivative_order(task.equation, task.gradient)
    return not task.equation.is_linear and order > 0


def refuse_contradictions(candidates: Sequence[Candidate], policy: Policy) -> list[Candidate]:
    """Return the candidates, refusing one of two starts where their estimates contradict.

    The start with the larger defect is refused there: its remainder of F is larger, and a small
    pilot may miss most of it.
    """
    found = list(candidates)
    for i, j in itertools.combinations(range(len(found)), 2):
        one, other = found[i], found[j]
        if one.start is other.start:
            continue
        with np.errstate(invalid="ignore"):
            biases = one.level_bias + other.level_bias + one.step_bias + other.step_bias
            gap = np.abs(one.value - other.value) - biases
            contradict = gap > policy.sure * np.hypot(one.value_stderr, other.value_stderr)
        # A candidate that is refused already does not count.
        contradict &= np.isfinite(one.score) & np.isfinite(other.score)
        further = contradict & (one.distance > other.distance)
        found[i] = one.refused(further, f"contradicts {other.name}")
        further = contradict & (other.distance > one.distance)
        found[j] = other.refused(further, f"contradicts {one.name}")
    return found


def least_score(candidates: Sequence[Candidate], points: int) -> Floats:
    """Return the score of the best candidate at each of `points` points."""
    return np.min([np.full(points, np.inf), *(each.score for each in candidates)], 0)


def select(candidates: Sequence[Candidate]) -> NDArray[np.int64]:
    """Return the index of the best candidate at each point."""
    return np.argmin([each.score for each in candidates], 0)


def comparable(task: Task, found: Candidate, tried: Sequence[Candidate]) -> Candidate:
    """Return the candidate with a score for the error that the first candidate aims for.

    With a tolerance, the work to reach it counts, and only the scores of biases change: a relative
    tolerance depends on the estimate of u, which may be wrong.
    """
    if not tried:
        return found
    first = tried[0]
    goal = np.where(np.isin(task.everywhere, first.rows), first.stderr, np.nan)
    return found.at_goal(goal, only_biases=task.rule.has_tolerance)


def all_figures(task: Task, candidates: Sequence[Candidate]) -> tuple[Figures, ...]:
    """Return the figures of all candidates; the best one at each point counts as taken."""
    best = select(candidates)
    is_taken = lambda k: (best == k) & np.isfinite(candidates[k].score)
    return tuple(each.figures(task, is_taken(k)) for k, each in enumerate(candidates))


def refusals_of_all(candidates: Sequence[Candidate]) -> NDArray[Any]:
    """Return the last reason for which a candidate was refused at each point, in words.

    That a candidate was measured again is no reason.
    """
    found = np.full(len(candidates[0].score), "", object)
    for each in candidates:
        is_reason = (each.refusal != "") & (each.refusal != MEASURED_AGAIN)
        found = np.where(is_reason, each.refusal, found)
    return found


def reason(candidates: Sequence[Candidate], k: int) -> str:
    """Return, in words, why candidate k was taken."""
    name = f"started from {candidates[k].name}"
    others = dict.fromkeys(each.name for each in candidates if each.name != candidates[k].name)
    if not others:
        return name
    return (
        f"{name}, which takes less work for one error bar, or leaves less bias, than "
        f"{' or '.join(others)}"
    )


def pilot_work(task: Task, start: Start, estimator: AbstractTunable) -> float:
    """Return the work of a first pilot at one point."""
    one = _pilot_replicate_work(estimator, start.equation, task.gradient)
    return task.policy.pilot_replicates * one


def least_work(task: Task, start: Start, estimator: AbstractTunable) -> float:
    """Return the least work of a correction at one point, including its pilot."""
    policy = task.policy
    fewest = estimator.sample_bounds()[0] * (np.arange(len(estimator.increments)) < 2)
    tuning = estimator.pilot_tuning(start.equation, "pathwise")
    replicate = fewest @ estimator.work(start.equation, tuning, task.gradient)
    total = task.rule.min_replicates * float(replicate + policy.replicate_overhead)
    return pilot_work(task, start, estimator) + total


@cached_by_structure
def _pilot_replicate_work(
    estimator: AbstractTunable, equation: AbstractEquation, gradient: bool
) -> float:
    tuning = estimator.pilot_tuning(equation, "pathwise")
    return float(tuning.samples @ estimator.work(equation, tuning, gradient))
