"""Settling: what the measurement of a pilot implies for the run, without running anything.

`settle` turns a `Measurement` into `Settled`: samples, the standard error aimed for, the predicted
work and the level bias. `step_factor` says by what the steps of a path must be multiplied.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._equations.smoothness import may_have_kinks
from .._support.tracing import cached_by_structure
from .._support.types import Floats
from ..estimators import AbstractEstimator, AbstractLevelled, Tuning
from .allocation import allocate
from .level_settling import settle_levels
from .measurement import Measurement
from .pilots import Look
from .policy import Policy
from .task import Task


class Settled(NamedTuple):
    """What a measurement implies at each point. Arrays without a stated shape are (points,)."""

    samples: NDArray[Any]  # of one replicate, (points, increments); 0 omits an increment
    stderr: Floats  # the standard error aimed for
    work: Floats  # the predicted work of all replicates
    omitted: Floats  # bound on what the omitted increments add
    level_bias: Floats  # estimated bias from omitted levels
    level: NDArray[np.int32] | None = None  # base level of an `AbstractLevelled`


def settle(task: Task, look: Look, found: Measurement, too_steep: NDArray[np.bool_]) -> Settled:
    """Return `Settled`: the samples that reach the goal with the least work, and what they imply.

    `found` is what the look measured at the points of the task. `too_steep` (points,) says where F
    is too steep for the level bias to be trusted.
    """
    estimator, equation, policy = look.estimator, look.start.equation, task.policy
    if isinstance(estimator, AbstractLevelled):
        return Settled(*settle_levels(task, look, found))
    level_bias, bound = _levels(task, look, found, too_steep)
    # The variances of a small pilot may be wrong by a factor of three. Too small an estimate costs
    # more work than too large a one. So the posterior mean under Jeffreys' prior is used.
    inflation = (found.replicates - 1) / (found.replicates - 3)
    allocation = allocate(
        task.rule,
        estimator.sample_bounds(),
        sample_work(estimator, equation, look.tuning.with_samples(None), task.gradient),
        found.value,
        inflation * found.variance * look.tuning.samples,
        bound,
        policy.net_rate_for_prediction if estimator.sampling == "rqmc" else 1.0,
        smallest_error=float(np.finfo(task.points.x.dtype).eps),
        policy=policy,
    )
    return Settled(*allocation, level_bias)


def _levels(
    task: Task, look: Look, found: Measurement, too_steep: NDArray[np.bool_]
) -> tuple[Floats, Floats | None]:
    """Return the level bias, (points,), and a bound on what each increment adds.

    The bound is (points, increments). It is None if no increment may be omitted.
    """
    equation = look.start.equation
    with np.errstate(invalid="ignore"):
        noise = np.sqrt(found.variance / found.replicates)
        # A small pilot may see too little of the last increment.
        last = np.arange(noise.shape[1]) == noise.shape[1] - 1
        mean = np.abs(found.mean) + noise * last
        level_bias = look.estimator.level_bias(equation, mean, found.size)
        # Gradients of increments have no bound, and neither do increments if F has kinks.
        if task.gradient or may_have_kinks(equation):
            return level_bias, None
        bound = np.abs(found.mean) + task.policy.sure * noise + level_bias[:, None]
        bound[too_steep] = np.nan
        return level_bias, bound


def step_factor(bias: Floats, stderr: Floats, order: int, policy: Policy) -> NDArray[np.int64]:
    """Return by what the steps must be multiplied to bring their bias below half of `stderr`.

    The result (points,) is 1 or a power of `policy.step_growth`. `bias` and `stderr` are (points,),
    and the bias falls as (steps)^-order.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = bias / (0.5 * stderr)
        powers = np.ceil(np.log(excess) / np.log(policy.step_growth) / order)
    # More steps do not help where the bias is NaN.
    powers = np.clip(np.nan_to_num(powers), 1, policy.largest_step_increase).astype(np.int64)
    return np.where(excess > 1, policy.step_growth**powers, 1)


@cached_by_structure
def sample_work(
    estimator: AbstractEstimator, equation: AbstractEquation, tuning: Tuning, gradient: bool
) -> Floats:
    """Return the work of one sample of each increment; equal structures are counted once."""
    return estimator.work(equation, tuning, gradient)
