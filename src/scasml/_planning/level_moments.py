"""Second moments and bounds of all levels: measured by pilots, or extrapolated from them.

`measured_moments` takes what a look measured, and returns `LevelMoments`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._equations.smoothness import may_have_kinks
from .._support.types import Floats
from ..estimators import AbstractLevelled
from .measurement import Measurement
from .pilots import Look
from .policy import Policy
from .task import Task


class LevelMoments(NamedTuple):
    """Second moments and bounds of the means of all increments, measured or extrapolated.

    Increments that do not occur have the second moment NaN.
    """

    second: Floats  # (points, increments)
    mean: Floats  # (points, increments)
    beyond: Floats  # bound on what the last levels leave out, (points,)


def goal_of(task: Task, found: Measurement) -> Floats:
    """Return the standard error to aim for, (points,)."""
    rule, policy = task.rule, task.policy
    smallest = float(np.finfo(task.points.x.dtype).eps) * np.abs(found.value)
    goal = np.maximum(rule.tolerance(found.value) / 2, smallest + np.finfo(np.float32).tiny)
    if rule.has_tolerance:
        return goal
    variance = np.nan_to_num(np.sum(found.variance[:, :2], 1)) * policy.net_size
    count = policy.default_samples * (rule.replicates or policy.planned_replicates)
    return np.maximum(np.sqrt(variance / count), goal)


def measured_moments(
    look: Look, found: Measurement, tails: dict[str, list[int]], policy: Policy
) -> LevelMoments:
    """Return measured moments, and extrapolated ones of the levels that no pilot drew."""
    points, estimator = np.arange(len(found.value)), look.estimator
    assert isinstance(estimator, AbstractLevelled)
    noise = np.sqrt(found.square / found.drawn)
    mean = np.where(found.drawn > 0, np.abs(found.mean) + policy.doubt * noise, 0)
    # The samples of a cluster are drawn together, so the number of clusters varies with them.
    # The noise of the mean is subtracted from its square.
    signal = np.maximum(found.mean**2 - found.square / found.drawn, 0)
    together = (estimator.clusters - 1) * signal
    second = np.where(found.drawn > 0, found.square + together, np.nan)
    # Nets reduce the variance of the base, so its samples count with the variance of a pilot net.
    inflation = (found.replicates - 1) / (found.replicates - 3)
    samples = np.broadcast_to(look.tuning.samples, found.mean.shape)
    base = [0, 1, *([] if not tails["depth"] else [tails["depth"][0] - 1])]
    second[:, base] = inflation * found.variance[:, base] * samples[:, base]
    second[:, [k for k in base if not (samples[:, k] > 0).any()]] = np.nan
    beyond = np.zeros(len(points))
    decay = np.full(len(points), policy.most_decay)
    if tails["steps"]:
        steps = np.array(tails["steps"])
        # The index of the last level that a pilot drew.
        place = np.max(np.where(found.drawn[:, steps] > 0, np.arange(len(steps)), 1), 1)
        first, last = (second[points, steps[place - k]] for k in (1, 0))
        decay = np.clip(
            np.nan_to_num(np.log2(first / last), nan=policy.most_decay),
            policy.least_decay,
            policy.most_decay,
        )
        beyond += _extrapolate(second, mean, steps, place, decay, policy)
    if tails["depth"]:
        beyond += _remainder_levels(look, found, tails, second, mean, decay, policy)
    return LevelMoments(second, mean, beyond)


def _extrapolate(
    second: Floats,
    mean: Floats,
    tail: NDArray[np.int64],
    place: NDArray[np.int64],
    decay: Floats,
    policy: Policy,
) -> Floats:
    """Fill in the increments of a tail after the entry `place`, and bound what follows the last.

    Second moments fall by 2^-decay from one level to the next, and means by the root of that or
    faster.
    """
    points, root = np.arange(len(place)), 2.0 ** -np.maximum(decay / 2, policy.least_order)
    for k, increment in enumerate(tail):
        after = k - place
        later = after > 0
        last = tail[place]
        second[later, increment] = (second[points, last] * 2.0 ** (-decay * after))[later]
        mean[later, increment] = (mean[points, last] * root ** np.maximum(after, 0))[later]
    return mean[:, tail[-1]] * root / (1 - root)


def _remainder_levels(
    look: Look,
    found: Measurement,
    tails: dict[str, list[int]],
    second: Floats,
    mean: Floats,
    decay: Floats,
    policy: Policy,
) -> Floats:
    """Fill in the levels of R, and bound what they leave out, (points,).

    Where no pilot measured them, R is small. They are left out there, with a bound that follows
    from R being of second order.
    """
    points = np.arange(len(found.value))
    depth, of_steps, paths = tails["depth"], tails["remainder steps"], tails["remainder paths"]
    r = depth[0] - 1
    is_measured = found.drawn[:, depth[0]] > 0
    of_squares = np.sqrt(np.nan_to_num(second[:, depth[0]] / second[:, r]))
    # The noise of R inside R makes samples vary more than their means suggest.
    of_means = np.nan_to_num(mean[:, depth[0]] / np.abs(found.mean[:, r]), nan=np.inf)
    ratio = np.minimum(np.minimum(of_squares, of_means), policy.most_depth_ratio)
    # `_extrapolate` expects decays, which are twice the logarithms of ratios.
    beyond = _extrapolate(
        second, mean, np.array(depth), 0 * points, -2 * np.log2(ratio + 1e-6), policy
    )
    place = np.minimum(found.level, len(of_steps) - 1)
    beyond += _extrapolate(second, mean, np.array(of_steps), place, decay, policy)
    changes = [mean[:, depth[0]], mean[points, np.array(of_steps)[place]]]
    if paths:
        rate = policy.kink_decay if may_have_kinks(look.start.equation) else policy.smooth_decay
        beyond += _extrapolate(second, mean, np.array(paths), 0 * points, 0 * decay + rate, policy)
        changes.append(mean[:, paths[0]])
    # The sums over depth, steps and paths each keep the others at their base. What is missing is of
    # second order in the changes.
    size = np.maximum(found.size[:, r], np.finfo(np.float32).tiny)
    total = np.sum(changes, 0)
    beyond += (total**2 - np.sum(np.square(changes), 0)) / 2 / size
    first_order = np.maximum(np.sum(found.size[:, :2], 1), np.finfo(np.float32).tiny)
    steps_change = 0.0
    if tails["steps"]:
        steps_change = np.sum(np.nan_to_num(mean[:, tails["steps"]]), 1)
    guess = mean[:, r] * np.minimum(2 * (mean[:, r] + steps_change) / first_order, 1)
    if paths:
        guess = guess + mean[:, r]
    unmeasured = [*depth, *of_steps, *paths]
    second[np.flatnonzero(~is_measured)[:, None], np.array(unmeasured)] = np.nan
    return np.where(is_measured, beyond, guess)
