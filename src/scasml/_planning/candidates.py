"""Candidates of the automatic choice: a start and an estimator, with what their pilots measured.

`try_candidate` runs the pilots. The other functions only compare candidates.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._support.tracing import cached_by_structure
from .._support.types import Floats
from ..estimators import AbstractTunable, Evaluations, Linearised, Picard
from .policy import Policy
from .probes import gradient_methods, slopes_jump
from .settling import step_factor
from .task import Plan, Start, Task
from .trials import Trial, run_trial

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

    @property
    def name(self) -> str:
        is_picard = isinstance(self.estimator, Picard)
        return f"{self.start.name}, by Picard" if is_picard else self.start.name

    @property
    def rows(self) -> NDArray[np.int64]:
        """The indices, in the task, of the points that were tried."""
        return np.sort(np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in self.trials)]))

    @property
    def cost(self) -> Evaluations:
        """The cost of the pilots."""
        return sum((trial.measurement.cost for _, trial in self.trials), Evaluations())

    def refused(self, where: NDArray[np.bool_]) -> "Candidate":
        """Return the candidate, refused at the points of a mask too."""
        return replace(self, score=np.where(where, np.inf, self.score))

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
    return Candidate(start, estimator, steps, tuple(trials), *arrays)


def trial_score(trial: Trial) -> Floats:
    """Return the score of a trial at its points."""
    task, look, settled = trial.task, trial.look, trial.settled
    bias, stderr, work = np.nan_to_num(settled.level_bias), settled.stderr, settled.work
    order, _ = look.estimator.step_order(look.start.equation)
    if look.estimator.steps == "auto" and not trial.has_fixed_steps and order > 0:
        # The run may need more steps than the pilot, and then more work.
        step_bias = trial.measurement.step_bias_of_large_pilot(task.policy)
        work = work * step_factor(step_bias, stderr, order, task.policy)
    # Where the bias exceeds the standard error aimed for, work does not count.
    biased = BIASED_SCORE * bias / stderr
    score = np.where(bias > stderr, biased, work * (1 + (2 * bias / stderr) ** 2))
    refused = trial.too_steep
    if isinstance(look.estimator, Linearised) and differentiates_slopes(look.estimator, task):
        refused = refused | slopes_jump(task, look.start)
    return np.where(np.isfinite(score) & ~refused, score, np.inf)


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
        found[i] = one.refused(contradict & (one.distance > other.distance))
        found[j] = other.refused(contradict & (other.distance > one.distance))
    return found


def least_score(candidates: Sequence[Candidate], points: int) -> Floats:
    """Return the score of the best candidate at each of `points` points."""
    return np.min([np.full(points, np.inf), *(each.score for each in candidates)], 0)


def select(candidates: Sequence[Candidate]) -> NDArray[np.int64]:
    """Return the index of the best candidate at each point."""
    return np.argmin([each.score for each in candidates], 0)


def pilot_work(task: Task, start: Start, estimator: AbstractTunable) -> float:
    """Return the work of a first pilot at one point."""
    one = _pilot_replicate_work(estimator, start.equation, task.gradient)
    return task.policy.pilot_replicates * one


def least_work(task: Task, start: Start, estimator: AbstractTunable) -> float:
    """Return the least work of a correction at one point, including its pilot."""
    policy = task.policy
    _, measuring = estimator.step_order(start.equation)
    fewest = estimator.sample_bounds()[0] * (np.arange(len(estimator.increments)) < measuring)
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
