"""Selection: try the remaining candidates, and take the one with the least predicted work."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import Linearised
from .candidates import BIASED_SCORE, Candidate, pilot_work, refuse_contradictions
from .fallbacks import by_picard, measured_picard
from .pilots import measure
from .starts import Tangent, tangent_start
from .task import Assignment, Start, Task

TOO_STEEP = "F is too steep in u to be linearised"


def by_least_work(
    task: Task,
    starts: Sequence[Start],
    estimator: Linearised,
    tried: list[Candidate],
    rows: NDArray[np.int64],
) -> list[Assignment]:
    """Return assignments of the points `rows` to the candidates with the least work.

    Starts that were not tried yet come first, then tangents, then Picard iteration. `tried` holds
    the candidates so far. New ones are appended to it.
    """
    policy = task.policy
    for other in sorted(starts, key=lambda start: pilot_work(task, start, estimator)):
        # Another pilot runs only where it is a small part of the remaining work.
        least = np.min([each.score for each in tried], 0)
        limit = policy.worth * pilot_work(task, other, estimator)
        known = [each.rows for each in tried if each.start is other]
        due = np.setdiff1d(rows[least[rows] > limit], np.concatenate([*known, np.zeros(0, int)]))
        if len(due) and (other is starts[0] or time.monotonic() < task.deadline):
            tried.append(Candidate(task, other, estimator, due))
    tried += _second_looks(task, tried, estimator, rows)
    refuse_contradictions(tried)
    older, further = 0, rows
    for _ in range(policy.tangents):
        # A second or third tangent is tried only where the one before is the best candidate.
        best = np.argmin([each.score for each in tried], 0)
        further = further[best[further] >= older]
        older = len(tried)
        tried += _tangents(task, tried, estimator, further)
    least = np.min([each.score for each in tried], 0)[rows]
    refused, biased = np.isinf(least), np.isfinite(least) & (least >= BIASED_SCORE)
    assignments = _best(task, tried, rows[~refused & ~biased])
    if biased.any():
        there = rows[biased]
        deeper = _larger_pilots(task, starts, tried, there)
        is_known = np.isfinite(np.min([each.score for each in deeper], 0)[there])
        assignments += _best(task, deeper, there[is_known])
        assignments += _best(task, tried, there[~is_known])
    if refused.any():
        assignments += by_picard(task.at(rows[refused]), starts, TOO_STEEP)
    return assignments


def _second_looks(
    task: Task, tried: Sequence[Candidate], estimator: Linearised, rows: NDArray[np.int64]
) -> list[Candidate]:
    """Return new candidates with larger pilots, for the candidates that may be the best.

    The scores of the old candidates become infinite at the points that are measured again.
    """
    policy, looks = task.policy, []
    least = np.min([each.score for each in tried], 0)
    growth = policy.second_look / policy.pilot_replicates
    for each in tried:
        known = rows[np.isin(rows, each.rows) & (least[rows] < BIASED_SCORE)]
        limit = policy.worth * growth * pilot_work(task, each.start, estimator)
        may_win = each.score[known] < policy.second_look_ratio * least[known]
        due = known[may_win & (least[known] > limit)]
        if len(due) and time.monotonic() < task.deadline:
            looks.append(
                Candidate(task, each.start, each.estimator, due, policy.second_look, each.steps)
            )
            each.score[due] = np.inf
    return looks


def _tangents(
    task: Task, tried: Sequence[Candidate], estimator: Linearised, rows: NDArray[np.int64]
) -> list[Candidate]:
    """Return candidates that start from the tangent to the best estimate.

    They are tried where the level bias of the best candidate is not negligible. Near an estimate of
    the solution the remainder of F is smaller.
    """
    found, equation, policy = [], task.equation, task.policy
    for row in rows:
        best = min(tried, key=lambda each: each.score[row])
        shows = best.level_bias[row] > policy.negligible * best.stderr[row]
        is_over = time.monotonic() > task.deadline
        if not np.isfinite(best.score[row]) or not shows or is_over:
            continue
        trial, measured = best.measured_at(row)
        one = task.at(np.array([row]))
        if equation.uses_z and not task.gradient:
            with_gradient = replace(one, gradient=True)
            tuning = trial.estimator.pilot_tuning(best.start.equation, trial.tuning.gradient)
            measured = measure(
                with_gradient, best.start, trial.estimator, tuning, policy.pilot_replicates
            )
        dtype, points = task.points.x.dtype, one.points
        value, slope = np.asarray(measured.value[0], dtype), measured.slope[0].astype(dtype)
        t0, x0 = np.asarray(points.t[0]), points.x[0]
        tangent = Tangent(equation, t0, x0, value, slope)
        start = tangent_start(tangent, policy.tangent_bias_factor)
        found.append(Candidate(task, start, estimator, np.array([row])))
    return found


def _best(task: Task, tried: Sequence[Candidate], rows: NDArray[np.int64]) -> list[Assignment]:
    """Return assignments of the points `rows` to the candidates with the best scores.

    Settling the steps can raise the work of the best candidate above the predicted work of the next
    one. Then the next one is settled too, and the better of the two is taken.
    """
    scores = np.array([each.score for each in tried])

    def settle_best(rows: NDArray[np.int64]) -> tuple[list[Assignment], Floats]:
        best, work = np.argmin(scores, 0), np.full(len(task), np.inf)
        found = []
        for k, each in enumerate(tried):
            found += each.assignments(rows[best[rows] == k], _reason(tried, k))
        for each in found:
            work[task.rows_of(each.points)] = each.work
        np.put_along_axis(scores, best[None], np.inf, 0)
        return found, work

    assignments, work = settle_best(rows)
    least = np.min(scores, 0)[rows]
    is_over = time.monotonic() >= task.deadline
    next_seems_better = (work[rows] > least) & (least < BIASED_SCORE) & (not is_over)
    others, other_work = settle_best(rows[next_seems_better])
    is_better = other_work < work
    kept = [each.at(~is_better[task.rows_of(each.points)]) for each in assignments]
    kept += [each.at(is_better[task.rows_of(each.points)]) for each in others]
    return [each for each in kept if len(each.points)]


def _larger_pilots(
    task: Task,
    starts: Sequence[Start],
    tried: Sequence[Candidate],
    rows: NDArray[np.int64],
) -> Sequence[Candidate]:
    """Return new candidates with larger pilots, and three Picard levels from zero.

    `rows` are points where every candidate has a bias above the standard error aimed for. After the
    deadline, or without a tolerance, the old candidates `tried` are returned.
    """
    if time.monotonic() > task.deadline or not task.rule.has_tolerance:
        return tried
    replicates, found = task.policy.last_look, []
    for each in tried:
        there = np.intersect1d(rows, np.flatnonzero(np.isfinite(each.score)))
        if len(there):
            found.append(Candidate(task, each.start, each.estimator, there, replicates, each.steps))
    return [*found, Candidate(task, starts[-1], measured_picard(3), rows, replicates)]


def _reason(tried: Sequence[Candidate], k: int) -> str:
    """Return, in words, why candidate k was taken."""
    name = f"started from {tried[k].name}"
    if len(tried) == 1:
        return name
    others = dict.fromkeys(each.name for each in tried if each.name != tried[k].name)
    return (
        f"{name}, which takes less work for one error bar, or leaves less bias, than "
        f"{' or '.join(others)}"
    )
