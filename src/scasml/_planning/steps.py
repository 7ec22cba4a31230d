"""Steps of paths: pilots with more and more steps, until their bias does not matter."""

import time

import numpy as np
from numpy.typing import NDArray

from ..estimators import AbstractEstimator, Evaluations, Tuning
from .measurement import Measurement
from .pilots import Look, expected_stderr, measure
from .settling import step_factor
from .task import Assignment, Plan, Start, Task


def settle_steps(
    task: Task, look: Look, first: Measurement | None = None, is_open: bool = True
) -> Plan:
    """Settle the steps of a path at every point, and return the assignments.

    The difference between fine and coarse paths with the same random numbers measures the step
    bias. Where the bias is above half the expected standard error, a pilot with more steps follows.
    If such a bias is mostly statistical error, a pilot with more replicates follows instead. Where
    fine and coarse paths are uncoupled, the bias cannot be measured, and more steps follow.

    **Arguments:**

    - `look`: the first pilot. Its tuning has the samples of the assignments.
    - `first`: what that pilot measured, if it was run already.
    - `is_open`: if False, the steps of the look are kept and only their bias is measured.
    """
    start, estimator, policy = look.start, look.estimator, task.policy
    order = estimator.step_order(start.equation)
    if order == 0:
        return Plan((without_step_bias(task, start, estimator, look.tuning),))
    is_open = is_open and estimator.steps == "auto"
    # The indices of points, by the steps and the replicates of their next pilot.
    waiting = {(look.tuning.steps, look.replicates): task.everywhere}
    assignments, cost, found = [], Evaluations(), first
    while waiting:
        steps, replicates = min(waiting)
        rows = waiting.pop((steps, replicates))
        some, tuning = task.at(rows), look.tuning.with_steps(steps).at(rows)
        now = Look(start, estimator, tuning, replicates)
        if found is None:
            found = measure(some, now)
            cost += found.cost
        stderr = expected_stderr(now, found, task.rule)
        factor = step_factor(found.step_bias, stderr, order, policy)
        uncoupled = found.is_uncoupled(policy) & (found.total_size > stderr / 2)
        factor = np.where(uncoupled, np.maximum(factor, policy.step_growth), factor)
        larger_pilot = found.is_noise(policy) & (found.replicates < policy.largest_pilot)
        done = (factor == 1) | (steps >= policy.most_steps) & ~larger_pilot | (not is_open)
        done |= time.monotonic() > task.deadline
        if done.any():
            biases = found.step_bias[done], found.gradient_step_bias[done]
            served = some.points.at(done)
            assignments.append(Assignment(served, start, estimator, tuning.at(done), *biases))
        for row, more, larger in zip(rows[~done], factor[~done], larger_pilot[~done], strict=True):
            key = (min(steps * int(more), policy.most_steps), replicates)
            if larger:
                key = (steps, policy.pilot_growth * found.replicates)
            waiting[key] = np.append(waiting.get(key, np.zeros(0, np.int64)), row)
        found = None
    return Plan(tuple(assignments), cost)


def without_step_bias(
    task: Task, start: Start, estimator: AbstractEstimator, tuning: Tuning
) -> Assignment:
    """Return one assignment of all points, with zero step bias."""
    none: NDArray[np.float64] = np.zeros(task.points.x.shape)
    return Assignment(task.points, start, estimator, tuning, np.zeros(len(task)), none)
