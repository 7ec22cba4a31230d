"""How many samples each level gets: from what pilots measured to expected samples and a bound.

`settle_levels` is a pure function of a measurement. It chooses the base level, how far each
telescoping sum goes, and the samples that reach the goal with the least work.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._support.tracing import cached_by_structure
from .._support.types import Floats
from ..estimators import AbstractEstimator, AbstractLevelled, Tuning
from .allocation import sample_scale
from .level_moments import LevelMoments, goal_of, measured_moments
from .measurement import Measurement
from .pilots import Look
from .policy import Policy
from .task import Task


class SettledLevels(NamedTuple):
    """What a measurement implies at each point; the fields are those of `Settled`."""

    samples: NDArray[Any]
    stderr: Floats
    work: Floats
    omitted: Floats
    level_bias: Floats
    level: NDArray[np.int32]


# What is not finite, such as the moments of a useless start, gives a candidate without a score.
@np.errstate(invalid="ignore", divide="ignore", over="ignore")
def settle_levels(task: Task, look: Look, found: Measurement) -> SettledLevels:
    """Return the samples of every increment, and a bound on what is left out."""
    estimator, equation, policy, rule = look.estimator, look.start.equation, task.policy, task.rule
    assert isinstance(estimator, AbstractLevelled)
    tails = estimator.tails(equation)
    levels = measured_moments(look, found, tails, policy)
    goal = goal_of(task, found)
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
        exists, omitted = _truncated(policy, exists, levels, work, steps, omitted, limit)
        exists, omitted = _without_remainder(
            policy, exists, found, levels, tails, work, omitted, limit
        )
    second = np.where(exists, second, 0)
    samples = _samples(task, look, second, work, exists, goal)
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


def _base_level(
    task: Task,
    look: Look,
    found: Measurement,
    levels: LevelMoments,
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
    policy: Policy,
    exists: NDArray[np.bool_],
    levels: LevelMoments,
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
    leave = (bound <= limit[:, None]) & (fraction > policy.much_work)
    exists = exists.copy()
    # A level is left out with all finer ones.
    leave = np.cumsum(leave, 1) > 0
    first = np.argmax(leave, 1)
    added = np.where(leave.any(1), bound[np.arange(len(first)), first], omitted)
    exists[:, steps] &= ~leave
    return exists, added


def _without_remainder(
    policy: Policy,
    exists: NDArray[np.bool_],
    found: Measurement,
    levels: LevelMoments,
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
    saved = np.sum(root[:, of_r], 1) > policy.much_work * np.sum(root, 1)
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
        scale = np.sum(base * work, 1) / np.sum((density * work)[:, :2], 1)
        scale = np.nan_to_num(scale)
    else:
        scale = sample_scale(rule, fewest * is_base, work, variance, goal, exists, policy)
        numbers = np.clip(density * scale[:, None], fewest, most)
        base = np.where(exists & is_base, 2 ** np.round(np.log2(numbers)), 0)
    # An increment that most replicates lack must vary less than the base does, or the scatter of
    # replicates would not show it. With a cluster in each replicate the scatter shows it.
    of_base = np.sum(base * work, 1) / np.sum((density * work)[:, :2], 1)
    of_base = np.nan_to_num(of_base, posinf=0.0)[:, None]
    wanted = np.maximum(density * scale[:, None], np.minimum(density * of_base, estimator.clusters))
    # Every level gets a little work, so that a level in which few pilot samples saw no difference
    # is drawn too.
    floor = policy.tail_work * np.sum(base * work, 1)[:, None] / np.maximum(work, 1.0)
    floor = floor / np.maximum(np.sum(exists & ~is_base, 1), 1)[:, None]
    others = np.where(exists & ~is_base, np.maximum(wanted, floor), 0)
    others = np.minimum(others, policy.most_level_samples)
    if not rule.has_tolerance:
        # Nothing says how exact the answer should be, so the work of a replicate is bounded.
        allowed = policy.most_other_work * np.sum(base * work, 1)
        excess = np.sum(others * work, 1) / np.maximum(allowed, 1.0)
        # A cluster in each replicate remains: its number would vary from replicate to replicate.
        least = np.minimum(others, estimator.clusters)
        others = np.maximum(others / np.maximum(excess, 1.0)[:, None], least)
    # Whole numbers of clusters are the same in every replicate.
    whole = np.ceil(others / estimator.clusters - 1e-9) * estimator.clusters
    return base + np.where(others >= estimator.clusters, whole, others)
