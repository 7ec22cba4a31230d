"""Trials: a pilot at some points, with what it measured and what that implies.

`plan_given` plans a call with an estimator that the user named. The automatic choice runs trials of
several starts and estimators; see `candidates`.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..estimators import (
    AbstractEstimator,
    AbstractLevelled,
    AbstractTunable,
    Tuning,
    steps_of,
)
from ..execution.steepness import steepness_at, terminal_slope
from . import checks
from .level_pilots import measure_levels
from .measurement import Measurement
from .pilots import Look, measure
from .probes import gradient_methods
from .settling import Settled, sample_work, settle
from .steps import settle_steps, without_step_bias
from .task import Assignment, Plan, Start, Task


@dataclass(frozen=True, eq=False)
class Trial:
    """A pilot with the fewest samples, at all points of its own task."""

    task: Task
    look: Look
    has_fixed_steps: bool  # whether the steps of the look are kept
    measurement: Measurement
    too_steep: NDArray[np.bool_]  # where the level bias cannot be trusted, (points,)
    settled: Settled

    def plan(self, rows: NDArray[np.int64]) -> Plan:
        """Return the assignments of some points of the task, with their steps settled.

        Settling the steps may run more pilots.
        """
        if not len(rows):
            return Plan()
        samples = self.settled.samples[rows]
        level = None if self.settled.level is None else self.settled.level[rows]
        look = replace(self.look, tuning=self.look.tuning.with_samples(samples, level))
        found = settle_steps(
            self.task.at(rows), look, self.measurement.at(rows), is_open=not self.has_fixed_steps
        )
        return replace(found, assignments=tuple(map(self._with_work, found.assignments)))

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps of a path, at the base level if there are levels; 0 for exact paths."""
        look, level = self.look, self.settled.level
        return steps_of(look.estimator, look.start.equation, look.tuning.with_samples(None, level))

    def _with_work(self, assignment: Assignment) -> Assignment:
        """Return the assignment with its predicted work and the bound on omitted increments."""
        settled, rows = self.settled, self.task.rows_of(assignment.points)
        if settled.level is not None:
            return replace(assignment, omitted=settled.omitted[rows], work=settled.work[rows])
        factor = self._work(assignment.tuning) / self._work(self.look.tuning)
        known = np.where(settled.level_bias <= settled.stderr, settled.work, np.inf)
        return replace(assignment, omitted=settled.omitted[rows], work=factor * known[rows])

    def _work(self, tuning: Tuning) -> float:
        """Return the work of one sample of every increment."""
        estimator, equation = self.look.estimator, self.look.start.equation
        work = sample_work(estimator, equation, tuning.with_samples(None), self.task.gradient)
        return np.sum(work)


def run_trial(
    task: Task,
    start: Start,
    estimator: AbstractTunable,
    gradient: str,
    replicates: int | None = None,
    steps: int | None = None,
    fixes_samples: bool = False,
) -> Trial:
    """Run the pilot of a start, an estimator and a gradient method at all points of the task.

    `replicates` and `steps` are those of the pilot; None means those of the policy and of the
    estimator. Steps that are given are kept.
    """
    tuning = estimator.pilot_tuning(start.equation, gradient)
    tuning = tuning if steps is None else tuning.with_steps(steps)
    count = replicates or task.policy.pilot_replicates
    look = Look(start, estimator, tuning, count, fixes_samples=fixes_samples)
    is_levelled = isinstance(estimator, AbstractLevelled)
    found = measure_levels(task, look) if is_levelled else measure(task, look)
    too_steep = _too_steep(task, look, found)
    settled = settle(task, look, found, too_steep)
    return Trial(task, look, steps is not None, found, too_steep, settled)


def _too_steep(task: Task, look: Look, found: Measurement) -> NDArray[np.bool_]:
    """Return where F is too steep for the level bias to be trusted."""
    points, equation = task.points, look.start.equation
    if not look.estimator.may_exceed_max_steepness(equation):
        return np.zeros(len(task), bool)
    # The steepness is needed at the start, where the defect is zero.
    u, slope = np.zeros(len(task)), np.zeros(points.x.shape)
    if look.start.model is None:
        u = found.value
        if task.gradient:
            slope = found.slope
        elif equation.uses_z:
            slope = terminal_slope(task.executor, equation, points)
    steep = steepness_at(task.executor, equation, points.t, points.x, u, slope)
    return look.estimator.exceeds_max_steepness(*steep)


def plan_given(
    task: Task, start: Start, estimator: AbstractEstimator, has_fewest_steps: bool = False
) -> Plan:
    """Settle what an estimator leaves open by the value "auto", and plan all points of the task.

    An estimator that is no `AbstractTunable` gets its default tuning. With `has_fewest_steps`,
    paths have the fewest steps, and only their bias is measured. Raises `ArgumentError` if the
    coefficients cannot be used at a point.
    """
    if not isinstance(estimator, AbstractTunable):
        tuning = estimator.default_tuning(start.equation, task.gradient)
        checks.refuse(task, is_discretised=tuning.steps > 0)
        return Plan((without_step_bias(task, start, estimator, tuning),))
    has_steps = isinstance(estimator, AbstractLevelled) and not start.equation.dynamics.exact
    checks.refuse(task, is_discretised=has_steps or estimator.step_order(start.equation) > 0)
    found = Plan()
    for name, rows in gradient_methods(task, start, estimator).items():
        some = task.at(rows)
        if estimator.measures_samples:
            fewest = estimator.pilot_tuning(start.equation, name).steps
            steps = fewest if has_fewest_steps else None
            fixed = isinstance(estimator, AbstractLevelled)
            trial = run_trial(some, start, estimator, name, steps=steps, fixes_samples=fixed)
            found += Plan(pilots=trial.measurement.cost) + trial.plan(some.everywhere)
        else:
            samples = estimator.default_tuning(start.equation, task.gradient).samples
            tuning = estimator.pilot_tuning(start.equation, name).with_samples(samples)
            look = Look(start, estimator, tuning, task.policy.pilot_replicates)
            found += settle_steps(some, look, is_open=not has_fewest_steps)
    return found
