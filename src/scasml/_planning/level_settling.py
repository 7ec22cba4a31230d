"""How many samples each level gets: from what pilots measured to expected samples and a bound.

`settle_levels` is a pure function of a measurement. It chooses the base level, how far each
telescoping sum goes, and the samples that reach the goal with the least work.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._equations.smoothness import may_have_kinks
from .._support.tracing import cached_by_structure
from .._support.types import Floats
from ..estimators import AbstractEstimator, AbstractLevelled, Tuning
from .allocation import sample_scale
from .measurement import Measurement
from .pilots import Look
from .task import Task

# The second moment of a difference falls by 2^-decay from level to level. A decay that few samples
# suggest is trusted within these limits.
LEAST_DECAY, MOST_DECAY = 0.5, 2.0
# The mean of a difference falls at least by 2^-LEAST_ORDER from level to level. Stepping schemes
# have weak order 1, and the bias of R falls as the inverse of the number of inner paths.
LEAST_ORDER = 1.0
# The decay for the number of inner paths, of a smooth F and of one with kinks.
SMOOTH_DECAY, KINK_DECAY = 2.0, 1.5
# The largest factor by which R changes from one depth to the next.
MOST_DEPTH_RATIO = 0.9
# Standard errors that are added to a measured mean to bound it.
DOUBT = 2.0
# Fraction of the work that leaving out levels must save.
MUCH_WORK = 0.1
# Work of all levels and of R over that of the base in one replicate, at most, without a tolerance.
MOST_OTHER_WORK = 4.0
# Expected samples of a level in one replicate, at most.
MOST_SAMPLES = 1e5


class SettledLevels(NamedTuple):
    """What a measurement implies at each point; the fields are those of `Settled`."""

    samples: NDArray[Any]
    stderr: Floats
    work: Floats
    omitted: Floats
    level_bias: Floats
    level: NDArray[np.int32]


class _Levels(NamedTuple):
    """Second moments and bounds of the means of all increments, measured or extrapolated.

    Increments that do not occur have the second moment NaN.
    """

    second: Floats  # (points, increments)
    mean: Floats  # (points, increments)
    beyond: Floats  # bound on what the last levels leave out, (points,)


def settle_levels(task: Task, look: Look, found: Measurement) -> SettledLevels:
    """Return the samples of every increment, and a bound on what is left out."""
    estimator, equation, policy, rule = look.estimator, look.start.equation, task.policy, task.rule
    assert isinstance(estimator, AbstractLevelled)
    tails = estimator.tails(equation)
    levels = _levels(look, found, tails)
    goal = _goal(task, found)
    level = _base_level(task, look, found, levels, tails, goal)
    work = _work_by_level(estimator, equation, task.gradient)[level]
    exists = np.isfinite(levels.second) & (work > 0)
    steps = np.array(tails["steps"], int)
    # Levels up to the base level are part of the base.
    for tail in ("steps", "remainder steps"):
        finer = np.arange(1, len(tails[tail]) + 1) > level[:, None]
        exists[:, np.array(tails[tail], int)] &= finer
    second = np.where(exists, np.nan_to_num(levels.second), 0)
    omitted = levels.beyond
    if not task.gradient:
        # Gradients of increments have no bound, so none is left out of them.
        limit = 2 * policy.most_truncation * goal
        exists, omitted = _truncated(exists, levels, work, steps, omitted, limit)
        exists, omitted = _without_remainder(exists, found, levels, tails, work, omitted, limit)
    second = np.where(exists, second, 0)
    samples = _samples(task, look, second, work, exists, goal)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.sum(np.where(samples > 0, second / samples, 0), 1)
    if not rule.has_tolerance:
        goal = np.maximum(np.sqrt(variance / (rule.replicates or policy.planned_replicates)), goal)
    # The variance of a net falls faster than its size grows.
    of_base = np.max(samples[:, :2], 1)
    rate = policy.net_rate_for_prediction if estimator.sampling == "rqmc" else 1.0
    reduction = np.minimum(policy.net_size / np.maximum(of_base, 1), 1) ** (rate - 1)
    replicates = np.maximum(variance * reduction / goal**2, rule.min_replicates)
    total = replicates * (np.sum(samples * work, 1) + policy.replicate_overhead)
    return SettledLevels(
        samples.astype(np.float32), goal, total, omitted, omitted, level.astype(np.int32)
    )


def _goal(task: Task, found: Measurement) -> Floats:
    """Return the standard error to aim for, (points,)."""
    rule, policy = task.rule, task.policy
    smallest = float(np.finfo(task.points.x.dtype).eps) * np.abs(found.value)
    goal = np.maximum(rule.tolerance(found.value) / 2, smallest + np.finfo(np.float32).tiny)
    if rule.has_tolerance:
        return goal
    with np.errstate(invalid="ignore"):
        variance = np.nan_to_num(np.sum(found.variance[:, :2], 1)) * policy.net_size
    count = policy.default_samples * (rule.replicates or policy.planned_replicates)
    return np.maximum(np.sqrt(variance / count), goal)


def _levels(look: Look, found: Measurement, tails: dict[str, list[int]]) -> _Levels:
    """Return measured moments, and extrapolated ones of the levels that no pilot drew."""
    points, estimator = np.arange(len(found.value)), look.estimator
    assert isinstance(estimator, AbstractLevelled)
    with np.errstate(invalid="ignore", divide="ignore"):
        noise = np.sqrt(found.square / found.drawn)
        mean = np.where(found.drawn > 0, np.abs(found.mean) + DOUBT * noise, 0)
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
    decay = np.full(len(points), MOST_DECAY)
    if tails["steps"]:
        steps = np.array(tails["steps"])
        # The index of the last level that a pilot drew.
        place = np.max(np.where(found.drawn[:, steps] > 0, np.arange(len(steps)), 1), 1)
        first, last = (second[points, steps[place - k]] for k in (1, 0))
        with np.errstate(invalid="ignore", divide="ignore"):
            decay = np.clip(
                np.nan_to_num(np.log2(first / last), nan=MOST_DECAY), LEAST_DECAY, MOST_DECAY
            )
        beyond += _extrapolate(second, mean, steps, place, decay)
    if tails["depth"]:
        beyond += _remainder_levels(look, found, tails, second, mean, decay)
    return _Levels(second, mean, beyond)


def _extrapolate(
    second: Floats, mean: Floats, tail: NDArray[np.int64], place: NDArray[np.int64], decay: Floats
) -> Floats:
    """Fill in the increments of a tail after the entry `place`, and bound what follows the last.

    Second moments fall by 2^-decay from one level to the next, and means by the root of that or
    faster.
    """
    points, root = np.arange(len(place)), 2.0 ** -np.maximum(decay / 2, LEAST_ORDER)
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
) -> Floats:
    """Fill in the levels of R, and bound what they leave out, (points,).

    Where no pilot measured them, R is small. They are left out there, with a bound that follows
    from R being of second order.
    """
    points = np.arange(len(found.value))
    depth, of_steps, paths = tails["depth"], tails["remainder steps"], tails["remainder paths"]
    r = depth[0] - 1
    is_measured = found.drawn[:, depth[0]] > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        of_squares = np.sqrt(np.nan_to_num(second[:, depth[0]] / second[:, r]))
        # The noise of R inside R makes samples vary more than their means suggest.
        of_means = np.nan_to_num(mean[:, depth[0]] / np.abs(found.mean[:, r]), nan=np.inf)
    ratio = np.minimum(np.minimum(of_squares, of_means), MOST_DEPTH_RATIO)
    # `_extrapolate` expects decays, which are twice the logarithms of ratios.
    beyond = _extrapolate(second, mean, np.array(depth), 0 * points, -2 * np.log2(ratio + 1e-6))
    place = np.minimum(found.level, len(of_steps) - 1)
    beyond += _extrapolate(second, mean, np.array(of_steps), place, decay)
    changes = [mean[:, depth[0]], mean[points, np.array(of_steps)[place]]]
    if paths:
        rate = KINK_DECAY if may_have_kinks(look.start.equation) else SMOOTH_DECAY
        beyond += _extrapolate(second, mean, np.array(paths), 0 * points, 0 * decay + rate)
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


def _base_level(
    task: Task,
    look: Look,
    found: Measurement,
    levels: _Levels,
    tails: dict[str, list[int]],
    goal: Floats,
) -> NDArray[np.int64]:
    """Return the base level with the least work, of the measured one and those above it.

    A replicate has at least the fewest samples of the base, however small their variance.
    """
    estimator, steps = look.estimator, tails["steps"]
    if not steps or estimator.steps != "auto":
        return found.level
    work = _work_by_level(estimator, look.start.equation, task.gradient)
    fewest, totals = estimator.sample_bounds()[0][:2], []
    # Samples of R become more costly with the base level, too. Step levels are counted below.
    of_steps = [*steps, *tails["remainder steps"]]
    is_base = ~np.isin(np.arange(levels.second.shape[1]), of_steps)
    for above in range(len(steps)):
        level = np.minimum(found.level + above, len(steps) - 1)
        finer = np.arange(1, len(steps) + 1) > level[:, None]
        with np.errstate(invalid="ignore"):
            root = np.sqrt(np.nan_to_num(levels.second) * work[level])
        root = np.sum(root[:, is_base], 1) + np.sum(finer * root[:, steps], 1)
        least = task.rule.min_replicates * (work[level][:, :2] @ fewest)
        totals.append((root / goal) ** 2 + least)
    return np.minimum(found.level + np.argmin(totals, 0), len(steps) - 1)


@cached_by_structure
def _work_by_level(
    estimator: AbstractEstimator, equation: AbstractEquation, gradient: bool
) -> Floats:
    """Return the work of one sample, by base level, (levels, increments)."""
    assert isinstance(estimator, AbstractLevelled)
    count = max(len(estimator.tails(equation)["steps"]), estimator.first_level + 1)
    tunings = (Tuning("pathwise", 0, None, level) for level in range(count))
    return np.array([estimator.work(equation, tuning, gradient) for tuning in tunings])


def _truncated(
    exists: NDArray[np.bool_],
    levels: _Levels,
    work: Floats,
    steps: NDArray[np.int64],
    omitted: Floats,
    limit: Floats,
) -> tuple[NDArray[np.bool_], Floats]:
    """Leave out the finest step levels where their bound is small and much work is saved.

    `limit` (points,) is the largest bound.
    """
    if not steps.size:
        return exists, omitted
    root = np.where(exists, np.sqrt(np.nan_to_num(levels.second) * work), 0)
    mean = np.where(exists[:, steps], levels.mean[:, steps], 0)
    # What the levels from each one on add, and the fraction of the work that they take.
    bound = omitted[:, None] + np.cumsum(mean[:, ::-1], 1)[:, ::-1]
    fraction = np.cumsum(root[:, steps][:, ::-1], 1)[:, ::-1]
    fraction = fraction / np.maximum(np.sum(root, 1, keepdims=True), 1e-300)
    leave = (bound <= limit[:, None]) & (fraction > MUCH_WORK)
    exists = exists.copy()
    # A level is left out with all finer ones.
    leave = np.cumsum(leave, 1) > 0
    first = np.argmax(leave, 1)
    added = np.where(leave.any(1), bound[np.arange(len(first)), first], omitted)
    exists[:, steps] &= ~leave
    return exists, added


def _without_remainder(
    exists: NDArray[np.bool_],
    found: Measurement,
    levels: _Levels,
    tails: dict[str, list[int]],
    work: Floats,
    omitted: Floats,
    limit: Floats,
) -> tuple[NDArray[np.bool_], Floats]:
    """Leave out R where its bound is small and much work is saved."""
    if not tails["depth"]:
        return exists, omitted
    first = tails["depth"][0] - 1
    of_r = np.arange(exists.shape[1]) >= first
    root = np.where(exists, np.sqrt(np.nan_to_num(levels.second) * work), 0)
    saved = np.sum(root[:, of_r], 1) > MUCH_WORK * np.sum(root, 1)
    bound = omitted + levels.mean[:, first]
    leave = saved & (bound <= limit)
    exists = exists & ~(leave[:, None] & of_r)
    return exists, np.where(leave, bound, omitted)


def _samples(
    task: Task,
    look: Look,
    second: Floats,
    work: Floats,
    exists: NDArray[np.bool_],
    goal: Floats,
) -> Floats:
    """Return the expected samples of a replicate, (points, increments)."""
    estimator, policy, rule = look.estimator, task.policy, task.rule
    assert isinstance(estimator, AbstractLevelled)
    tiny = np.finfo(np.float32).tiny
    variance = np.maximum(second, tiny)
    density = np.sqrt(exists * variance / np.maximum(work, 1.0))
    is_base = np.arange(second.shape[1]) < 2
    fewest, most = estimator.sample_bounds()
    if look.fixes_samples:
        base = np.where(exists & is_base, estimator.base_samples, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = np.sum(base * work, 1) / np.sum((density * work)[:, :2], 1)
        scale = np.nan_to_num(scale)
    else:
        scale = sample_scale(rule, fewest * is_base, work, variance, goal, exists, policy)
        numbers = np.clip(density * scale[:, None], fewest, most)
        base = np.where(exists & is_base, 2 ** np.round(np.log2(numbers)), 0)
    # An increment that most replicates lack must vary less than the base does, or the scatter of
    # replicates would not show it. With a cluster in each replicate the scatter shows it.
    with np.errstate(invalid="ignore", divide="ignore"):
        of_base = np.sum(base * work, 1) / np.sum((density * work)[:, :2], 1)
    of_base = np.nan_to_num(of_base, posinf=0.0)[:, None]
    wanted = np.maximum(density * scale[:, None], np.minimum(density * of_base, estimator.clusters))
    # Every level gets a little work, so that a level in which few pilot samples saw no difference
    # is drawn too.
    floor = policy.tail_work * np.sum(base * work, 1)[:, None] / np.maximum(work, 1.0)
    floor = floor / np.maximum(np.sum(exists & ~is_base, 1), 1)[:, None]
    others = np.where(exists & ~is_base, np.maximum(wanted, floor), 0)
    others = np.minimum(others, MOST_SAMPLES)
    if not rule.has_tolerance:
        # Nothing says how exact the answer should be, so the work of a replicate is bounded.
        allowed = MOST_OTHER_WORK * np.sum(base * work, 1)
        excess = np.sum(others * work, 1) / np.maximum(allowed, 1.0)
        # A cluster in each replicate remains: its number would vary from replicate to replicate.
        least = np.minimum(others, estimator.clusters)
        others = np.maximum(others / np.maximum(excess, 1.0)[:, None], least)
    # Whole numbers of clusters are the same in every replicate.
    whole = np.ceil(others / estimator.clusters - 1e-9) * estimator.clusters
    return base + np.where(others >= estimator.clusters, whole, others)
