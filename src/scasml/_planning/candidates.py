"""Candidates of the automatic choice: a start and an estimator, with what their pilots measured."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._support.tracing import cached_by_structure
from ..estimators import AbstractTunable, Linearised, Picard
from .pilots import Measurement
from .policy import Policy
from .probes import gradient_methods, slopes_jump
from .task import Assignment, Start, Task
from .tuning import Trial, step_factor

# A score of at least this belongs to a candidate whose level bias exceeds the standard error aimed
# for.
BIASED_SCORE = 1e30


class Candidate:
    """A start and an estimator, with what their pilots measured at some points of a task.

    All arrays except `rows` have one entry per point of the task. `score` is the predicted work,
    multiplied by a factor that grows with the level bias relative to the standard error. The
    smaller score is the better one. It is infinite at points that were not tried, or where the
    candidate is refused.
    """

    def __init__(
        self,
        task: Task,
        start: Start,
        estimator: AbstractTunable,
        rows: NDArray[np.int64],
        replicates: int | None = None,
        steps: int | None = None,
    ):
        """Run the pilots.

        **Arguments:**

        - `rows`: the indices, in the task, of the points to try.
        - `replicates`: replicates of the pilots; None for the number of the policy.
        - `steps`: fixes the steps of a path; None leaves them open.
        """
        self.task, self.start, self.estimator = task, start, estimator
        self.rows, self.steps = rows, steps
        self.name = f"{start.name}, by Picard" if isinstance(estimator, Picard) else start.name
        count = len(task)
        self.score = np.full(count, np.inf)
        self.level_bias, self.stderr, self.step_bias = (np.zeros(count) for _ in range(3))
        # The estimate of u, its standard error in the pilot, and the absolute value of the defect.
        self.value, self.noise, self.distance = (np.full(count, np.nan) for _ in range(3))
        self.trials: list[tuple[NDArray[np.int64], Trial]] = []
        for name, points in gradient_methods(task, start, estimator).items():
            served = np.intersect1d(points, rows)
            if len(served):
                trial = Trial(task.at(served), start, estimator, name, replicates, steps)
                self.trials.append((served, trial))
                self._add(served, trial)

    def _add(self, rows: NDArray[np.int64], trial: Trial) -> None:
        """Store what one trial measured at its points."""
        task, found, policy = self.task, trial.measurement, self.task.policy
        bias = np.nan_to_num(trial.level_bias)
        stderr, work = trial.allocation.stderr, trial.allocation.work
        order, _ = self.estimator.step_order(self.start.equation)
        if self.estimator.steps == "auto" and self.steps is None and order > 0:
            # The run may need more steps than the pilot, and then more work.
            step_bias = found.step_bias_of_large_pilot(policy)
            work = work * step_factor(step_bias, stderr, order, policy)
        # Where the bias exceeds the standard error aimed for, work does not count.
        score = np.where(
            bias > stderr, BIASED_SCORE * bias / stderr, work * (1 + (2 * bias / stderr) ** 2)
        )
        refused = trial.too_steep
        if isinstance(self.estimator, Linearised) and differentiates_slopes(self.estimator, task):
            refused = refused | slopes_jump(task.at(rows), self.start)
        self.score[rows] = np.where(np.isfinite(score) & ~refused, score, np.inf)
        self.level_bias[rows], self.stderr[rows] = bias, stderr
        self.step_bias[rows] = found.step_bias
        self.value[rows], self.distance[rows] = found.value, np.abs(found.defect)
        self.noise[rows] = np.sqrt(np.sum(found.variance, 1) / found.replicates)

    def is_suspect(self) -> NDArray[np.bool_]:
        """Return a mask of the points where the defect is large, or where much work remains.

        A network that was fitted at few points may have a large residual whose mean along paths is
        small. Its defect is then small, but its replicates are noisy and need much work.
        """
        policy, suspect = self.task.policy, np.zeros(len(self.score), bool)
        for rows, trial in self.trials:
            found = trial.measurement
            noise = 2 * np.sqrt(np.sum(found.variance, 1) / found.replicates)
            with np.errstate(invalid="ignore"):
                limit = policy.suspect_defect * np.abs(found.value)
                is_fine = np.abs(found.defect) + noise <= limit
                is_fine &= trial.allocation.work < policy.suspect_work
            suspect[rows] = ~(is_fine & np.isfinite(self.score[rows]))
        return suspect

    def measured_at(self, row: int) -> tuple[Trial, Measurement]:
        """Return the trial of one point, and its measurement there."""
        rows, trial = next(each for each in self.trials if row in each[0])
        return trial, trial.measurement.at(np.flatnonzero(rows == row))

    def assignments(self, rows: NDArray[np.int64], reason: str) -> list[Assignment]:
        """Return assignments of the points `rows` that were tried, with their steps settled.

        Settling the steps may run more pilots. `reason` says why the candidate was taken.
        """
        found = []
        for tried, trial in self.trials:
            found += trial.assignments(np.flatnonzero(np.isin(tried, rows)))
        return [replace(each, reason=reason) for each in found]


def differentiates_slopes(estimator: AbstractTunable, task: Task) -> bool:
    """Return whether the estimator differentiates F_u and F_z along paths.

    If it does, F_u and F_z must have no discontinuity where paths go.
    """
    order = estimator.derivative_order(task.equation, task.gradient)
    return not task.equation.is_linear and order > 0


def refuse_contradictions(candidates: Sequence[Candidate]) -> None:
    """Refuse one of two starts at points where their estimates contradict each other.

    The start with the larger defect is refused there: its remainder of F is larger, and a small
    pilot may miss most of it. The score of a refused candidate is set to infinity.
    """
    for one, other in itertools.combinations(candidates, 2):
        if one.start is other.start:
            continue
        sure = one.task.policy.sure
        with np.errstate(invalid="ignore"):
            biases = one.level_bias + other.level_bias + one.step_bias + other.step_bias
            gap = np.abs(one.value - other.value) - biases
            contradict = gap > sure * np.hypot(one.noise, other.noise)
        # A candidate that is refused already does not count.
        contradict &= np.isfinite(one.score) & np.isfinite(other.score)
        for this, that in ((one, other), (other, one)):
            this.score[contradict & (this.distance > that.distance)] = np.inf


def pilot_work(task: Task, start: Start, estimator: AbstractTunable) -> float:
    """Return the work of a first pilot at one point."""
    one = _pilot_replicate_work(estimator, start.equation, task.gradient)
    return task.policy.pilot_replicates * one


def least_work(task: Task, start: Start, estimator: AbstractTunable) -> float:
    """Return the least work of a correction at one point, including its pilot."""
    policy: Policy = task.policy
    _, measuring = estimator.step_order(start.equation)
    fewest = estimator.sample_bounds()[0] * (np.arange(len(estimator.increments)) < measuring)
    tuning = estimator.pilot_tuning(start.equation, "pathwise")
    replicate = fewest @ estimator.work(start.equation, tuning, task.gradient)
    total = policy.min_replicates * float(replicate + policy.replicate_overhead)
    return pilot_work(task, start, estimator) + total


@cached_by_structure
def _pilot_replicate_work(
    estimator: AbstractTunable, equation: AbstractEquation, gradient: bool
) -> float:
    tuning = estimator.pilot_tuning(equation, "pathwise")
    return float(tuning.samples @ estimator.work(equation, tuning, gradient))
