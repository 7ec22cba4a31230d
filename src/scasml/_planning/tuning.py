"""Settling an estimator: choosing its gradient method, steps and samples at each point.

An estimator leaves a choice open by the value "auto". `plan` makes the open choices of the user's
estimator with pilots. Points with equal choices share a program.
"""

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._equations.smoothness import may_have_kinks
from .._support.tracing import cached_by_structure
from .._support.types import Floats
from ..estimators import AbstractEstimator, AbstractTunable, Tuning
from ..execution.steepness import steepness_at, terminal_slope
from . import checks
from .allocation import Allocation, allocate
from .pilots import Measurement, expected_stderr, measure
from .policy import Policy
from .probes import gradient_methods
from .task import Assignment, Start, Task


def plan(task: Task, start: Start, estimator: AbstractEstimator) -> list[Assignment]:
    """Settle what the estimator leaves open, and return assignments of every point of the task.

    An estimator that is no `AbstractTunable` gets its default tuning. Raises `ArgumentError` if the
    coefficients cannot be used at a point.
    """
    if not isinstance(estimator, AbstractTunable):
        tuning = estimator.default_tuning(start.equation, task.gradient)
        checks.refuse(task, is_discretised=tuning.steps > 0)
        return [_assignment(task, start, estimator, tuning)]
    checks.refuse(task, is_discretised=estimator.step_order(start.equation)[0] > 0)
    assignments = []
    for name, rows in gradient_methods(task, start, estimator).items():
        some = task.at(rows)
        if estimator.measures_samples:
            assignments += Trial(some, start, estimator, name).assignments(some.everywhere)
        else:
            samples = estimator.default_tuning(start.equation, task.gradient).samples
            tuning = estimator.pilot_tuning(start.equation, name).with_samples(samples)
            replicates = task.policy.pilot_replicates
            assignments += settle_steps(some, start, estimator, tuning, replicates)
    return assignments


def _assignment(
    task: Task, start: Start, estimator: AbstractEstimator, tuning: Tuning
) -> Assignment:
    """Return one assignment of all points, with zero step bias."""
    shape = task.points.x.shape
    return Assignment(task.points, start, estimator, tuning, np.zeros(len(task)), np.zeros(shape))


def settle_steps(
    task: Task,
    start: Start,
    estimator: AbstractTunable,
    tuning: Tuning,
    replicates: int,
    first: Measurement | None = None,
    is_open: bool = True,
) -> list[Assignment]:
    """Settle the steps of a path at every point, and return the assignments.

    The difference between fine and coarse paths with the same random numbers measures the step
    bias. Where the bias is above half the expected standard error, a pilot with more steps follows.
    If such a bias is mostly statistical error, a pilot with more replicates follows instead. Where
    fine and coarse paths are uncoupled, the bias cannot be measured, and more steps follow.

    **Arguments:**

    - `tuning`: gradient method, samples, and the steps of the first pilot.
    - `replicates`: replicates of a first pilot.
    - `first`: a pilot that was run already, with the steps of `tuning`.
    - `is_open`: if False, the steps of `tuning` are kept and only their bias is measured.
    """
    order, _ = estimator.step_order(start.equation)
    if order == 0:
        return [_assignment(task, start, estimator, tuning)]
    policy, is_open = task.policy, is_open and estimator.steps == "auto"
    # The indices of points, by the steps and the replicates of their next pilot.
    waiting = {(tuning.steps, replicates): task.everywhere}
    assignments, size_ratio, found = [], None, first
    while waiting:
        steps, replicates = min(waiting)
        rows = waiting.pop((steps, replicates))
        some, settled = task.at(rows), tuning.with_steps(steps).at(rows)
        if found is None:
            ratio = None if size_ratio is None else size_ratio[rows]
            found = measure(some, start, estimator, settled, replicates, ratio)
        size_ratio = found.size_ratio if size_ratio is None else size_ratio
        stderr = expected_stderr(found, task.rule, start, estimator, settled)
        factor = step_factor(found.step_bias, stderr, order, policy)
        uncoupled = found.is_uncoupled(policy) & (found.total_size > stderr / 2)
        factor = np.where(uncoupled, np.maximum(factor, policy.step_growth), factor)
        larger_pilot = found.is_noise(policy) & (found.replicates < policy.largest_pilot)
        done = (factor == 1) | (steps >= policy.most_steps) & ~larger_pilot | (not is_open)
        done |= time.monotonic() > task.deadline
        if done.any():
            assignments.append(
                Assignment(
                    some.points.at(done),
                    start,
                    estimator,
                    settled.at(done),
                    found.step_bias[done],
                    found.gradient_step_bias[done],
                )
            )
        for row, more, larger in zip(rows[~done], factor[~done], larger_pilot[~done], strict=True):
            key = (min(steps * int(more), policy.most_steps), replicates)
            if larger:
                key = (steps, policy.pilot_growth * found.replicates)
            waiting[key] = np.append(waiting.get(key, np.zeros(0, np.int64)), row)
        found = None
    return assignments


def step_factor(bias: Floats, stderr: Floats, order: int, policy: Policy) -> NDArray[np.int64]:
    """Return by what the steps must be multiplied to bring their bias below half of `stderr`.

    The result (points,) is 1 or a power of `policy.step_growth`. `bias` and `stderr` are (points,),
    and the bias falls as (steps)^-order.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = bias / (0.5 * stderr)
        jumps = np.ceil(np.log(excess) / np.log(policy.step_growth) / order)
    # More steps do not help where the bias is NaN.
    jumps = np.clip(np.nan_to_num(jumps), 1, policy.largest_step_jump).astype(np.int64)
    return np.where(excess > 1, policy.step_growth**jumps, 1)


class Trial:
    """A pilot of an estimator with one gradient method, and the allocation that follows from it.

    Attributes are arrays over the points of the task. `replicates` and `steps` are those of the
    pilot; None means those of the policy and of the estimator. Steps that are given are kept.
    """

    measurement: Measurement
    allocation: Allocation
    level_bias: Floats  # estimated bias from omitted levels, (points,)
    too_steep: NDArray[np.bool_]  # where `level_bias` cannot be trusted, (points,)

    def __init__(
        self,
        task: Task,
        start: Start,
        estimator: AbstractTunable,
        gradient: str,
        replicates: int | None = None,
        steps: int | None = None,
    ):
        equation, policy = start.equation, task.policy
        self.task, self.start, self.estimator = task, start, estimator
        self.replicates = replicates or policy.pilot_replicates
        self.has_fixed_steps = steps is not None
        tuning = estimator.pilot_tuning(equation, gradient)
        self.tuning = tuning if steps is None else tuning.with_steps(steps)
        self.measurement = found = measure(task, start, estimator, self.tuning, self.replicates)
        self.too_steep = self._too_steep()
        # The variances of a small pilot may be wrong by a factor of three. Too small an estimate
        # costs more work than too large a one. So the posterior mean under Jeffreys' prior is used.
        inflation = (found.replicates - 1) / (found.replicates - 3)
        variance = inflation * found.variance * self.tuning.samples
        self.work = _work(estimator, equation, self.tuning.with_samples(None), task.gradient)
        rate = policy.net_rate_for_prediction if estimator.sampling == "rqmc" else 1.0
        bounds, value = estimator.sample_bounds(), found.value
        contribution = self._measure_levels()
        self.allocation = allocate(
            task.rule,
            bounds,
            self.work,
            value,
            variance,
            contribution,
            rate,
            smallest_error=float(np.finfo(task.points.x.dtype).eps),
            policy=policy,
        )

    def _too_steep(self) -> NDArray[np.bool_]:
        """Return where F is too steep for the level bias to be trusted."""
        task, found, points = self.task, self.measurement, self.task.points
        equation = self.start.equation
        # The steepness is needed at the start, where the defect is zero.
        u, slope = np.zeros(len(task)), np.zeros(points.x.shape)
        if self.start.model is None:
            u = found.value
            if task.gradient:
                slope = found.slope
            elif equation.uses_z:
                slope = terminal_slope(task.executor, equation, points)
        steep = steepness_at(task.executor, equation, points.t, points.x, u, slope)
        return self.estimator.exceeds_max_steepness(*steep)

    def _measure_levels(self) -> Floats | None:
        """Set `level_bias`, and return a bound on what each increment adds.

        The bound is (points, increments). It is None if no increment may be omitted.
        """
        found, equation = self.measurement, self.start.equation
        with np.errstate(invalid="ignore"):
            noise = np.sqrt(found.variance / found.replicates)
            # A small pilot may see too little of the last increment.
            last = np.arange(noise.shape[1]) == noise.shape[1] - 1
            mean = np.abs(found.mean) + noise * last
            level_bias = self.estimator.level_bias(equation, mean, found.size)
            self.level_bias = self.start.bias_factor * level_bias
            # Gradients of increments have no bound, and neither do increments if F has kinks.
            if self.task.gradient or may_have_kinks(equation):
                return None
            bound = np.abs(found.mean) + self.task.policy.sure * noise + self.level_bias[:, None]
            bound[self.too_steep] = np.nan
            return bound

    def assignments(self, rows: NDArray[np.int64]) -> list[Assignment]:
        """Return the assignments of some points of the task, with their steps settled."""
        if not len(rows):
            return []
        allocation, task = self.allocation, self.task
        work = np.where(self.level_bias <= allocation.stderr, allocation.work, np.inf)
        tuning = self.tuning.with_samples(allocation.samples[rows])
        found = settle_steps(
            task.at(rows),
            self.start,
            self.estimator,
            tuning,
            self.replicates,
            self.measurement.at(rows),
            is_open=not self.has_fixed_steps,
        )
        return [self._with_work(each, work, allocation.omitted) for each in found]

    def _with_work(self, assignment: Assignment, work: Floats, omitted: Floats) -> Assignment:
        """Return the assignment with its predicted work and the bound on omitted increments."""
        rows = self.task.rows_of(assignment.points)
        tuning = assignment.tuning.with_samples(None)
        settled = _work(self.estimator, self.start.equation, tuning, self.task.gradient)
        factor = np.sum(settled) / np.sum(self.work)
        return replace(assignment, omitted=omitted[rows], work=factor * work[rows])


@cached_by_structure
def _work(
    estimator: AbstractEstimator, equation: AbstractEquation, tuning: Tuning, gradient: bool
) -> Floats:
    """Return the work of one sample of each increment; equal structures are counted once."""
    return estimator.work(equation, tuning, gradient)
