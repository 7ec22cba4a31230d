"""Pilots of estimators with levels: the base, then differences of levels, then those inside R.

`measure_levels` runs them and returns a `Measurement`. Its means, squares and numbers of samples
cover all increments. Increments that no pilot drew have zero samples.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import AbstractLevelled, Tuning
from .level_moments import goal_of
from .measurement import Measurement
from .pilots import Look, measure
from .task import Task


# Samples of a useless start may overflow.
@np.errstate(invalid="ignore", divide="ignore", over="ignore")
def measure_levels(task: Task, look: Look) -> Measurement:
    """Measure the base and the levels that matter, at all points of the task.

    The base level is raised where two successive levels are nearly independent of each other, as
    they are if steps are longer than a period of the coefficients.
    """
    estimator = look.estimator
    assert isinstance(estimator, AbstractLevelled)
    tails = estimator.tails(look.start.equation)
    level = np.broadcast_to(look.tuning.level, len(task)).astype(np.int64)
    found = _base(task, look, level)
    if tails["steps"]:
        found = _measure_steps(task, look, found, np.array(tails["steps"]))
    if not tails["depth"]:
        return found
    matters = np.flatnonzero(_remainder_matters(task, found, tails["depth"][0] - 1))
    if matters.size:
        columns = np.zeros(found.mean.shape, bool)
        columns[:, tails["depth"][0]] = True
        place = np.minimum(found.level, len(tails["remainder steps"]) - 1)
        columns[task.everywhere, np.array(tails["remainder steps"])[place]] = True
        if tails["remainder paths"]:
            columns[:, tails["remainder paths"][0]] = True
        found = _with(task, look, found, columns, matters)
    return found


def _measure_steps(
    task: Task, look: Look, found: Measurement, steps: NDArray[np.int64]
) -> Measurement:
    """Measure two levels above the base, and two more where their variances do not fall yet.

    Where a difference of levels varies nearly as much as the base itself, the base level is raised
    to the first level after which they fall.
    """
    policy, everywhere = task.policy, task.everywhere
    most = min(policy.most_pilot_level, len(steps))
    last = np.minimum(found.level + 2, len(steps))
    goal = goal_of(task, found)
    rows = everywhere
    while rows.size:
        columns = np.zeros(found.mean.shape, bool)
        for level in (last - 1, last):
            columns[rows, steps[np.maximum(level[rows], 1) - 1]] = True
        found = _with(task, look, found, columns, rows)
        before, after = (found.square[everywhere, steps[last - k - 1]] for k in (1, 0))
        falls = ~((after > policy.fall * before) & (np.sqrt(after) > policy.negligible * goal))
        rows = np.intersect1d(rows, np.flatnonzero(~falls & (last + 2 <= most)))
        last[rows] += 2
    changes = np.where(found.drawn[:, steps] > 0, found.square[:, steps], 0)
    uncoupled = np.max(changes, 1) > policy.uncoupled * np.sum(base_variance(found), 1)
    raised = np.flatnonzero(uncoupled & (last - 2 > found.level))
    if raised.size and look.estimator.steps == "auto":
        again = _base(task.at(raised), look.at(raised), last[raised] - 2)
        is_base = again.drawn > 0
        names = ("mean", "square", "variance", "size", "drawn")
        merged = {
            name: np.where(is_base, getattr(again, name), getattr(found, name)[raised])
            for name in names
        }
        base = replace(again, **merged)
        found = _replaced(found, base, raised)
    return found


def _base(task: Task, look: Look, level: NDArray[np.int64]) -> Measurement:
    """Measure the increments of the base at given base levels."""
    tuning = look.tuning.with_samples(look.tuning.samples, level.astype(np.int32))
    found = measure(task, replace(look, tuning=tuning))
    count = found.replicates * np.asarray(tuning.samples, float)
    drawn = np.broadcast_to(count, found.mean.shape).copy()
    # Replicates are relative to the surrogate. Means of increments are relative to the start here.
    mean = found.mean.copy()
    mean[:, 0] -= np.sum(found.mean, 1) - found.defect
    return replace(found, mean=mean, drawn=drawn, level=level)


def _with(
    task: Task,
    look: Look,
    found: Measurement,
    columns: NDArray[np.bool_],
    rows: NDArray[np.int64],
) -> Measurement:
    """Add the increments `columns` (points, increments), measured at the points `rows`."""
    estimator, policy = look.estimator, task.policy
    assert isinstance(estimator, AbstractLevelled)
    wanted = np.zeros(found.mean.shape, bool)
    wanted[:, : columns.shape[1]] = columns
    some, level = task.at(rows), found.level[rows].astype(np.int32)
    samples = np.where(wanted[rows], estimator.clusters, 0.0).astype(np.float32)
    tuning = Tuning(look.tuning.gradient, look.tuning.steps, samples, level)
    # The pilot grows with that of the base, which grows with the replicates that the user wants.
    replicates = max(policy.level_replicates * found.replicates // policy.pilot_replicates, 1)
    tail = measure(some, replace(look.at(rows), tuning=tuning, replicates=replicates, grows=False))
    chosen = wanted[rows]
    arrays = {}
    for name in ("mean", "size", "square", "variance"):
        array = np.array(getattr(found, name))
        array[rows] = np.where(chosen, getattr(tail, name), array[rows])
        arrays[name] = array
    # Sums of squares of single samples estimate the variance better than few replicates.
    drawn = np.array(found.drawn)
    drawn[rows] = np.where(chosen, samples * tail.replicates, drawn[rows])
    added = np.zeros(len(task))
    added[rows] = np.sum(np.where(chosen, tail.mean, 0), 1)
    return replace(
        found,
        value=found.value + added,
        defect=found.defect + added,
        drawn=drawn,
        cost=found.cost + tail.cost,
        **arrays,
    )


def _replaced(found: Measurement, again: Measurement, rows: NDArray[np.int64]) -> Measurement:
    """Return the measurement with other results at the points `rows`."""
    arrays = {}
    for name, old in vars(found).items():
        if isinstance(old, np.ndarray):
            arrays[name] = old.copy()
            arrays[name][rows] = getattr(again, name)
    return replace(found, cost=found.cost + again.cost, **arrays)


def base_variance(found: Measurement) -> Floats:
    """Return the variance of one sample of the two increments of the base, (points, 2)."""
    base = slice(0, 2)
    drawn = np.maximum(found.drawn[:, base], 2)
    spread = found.square[:, base] - np.minimum(found.square[:, base], found.mean[:, base] ** 2)
    return np.maximum(spread * drawn / (drawn - 1), 0)


def _remainder_matters(task: Task, found: Measurement, increment: int) -> NDArray[np.bool_]:
    """Return where R is not small compared with the standard error aimed for."""
    noise = np.sqrt(found.variance[:, increment] / found.replicates)
    size = np.abs(found.mean[:, increment]) + 2 * noise
    is_large = size > task.policy.negligible * goal_of(task, found)
    return is_large & (found.square[:, increment] > 0)
