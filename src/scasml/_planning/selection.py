"""Selection: try the remaining candidates, and take the one with the least predicted work."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import Evaluations, Linearised
from .candidates import (
    BIASED_SCORE,
    Candidate,
    least_score,
    pilot_work,
    refuse_contradictions,
    select,
    try_candidate,
)
from .fallbacks import by_picard, measured_picard
from .pilots import Look, measure
from .starts import Tangent, tangent_start
from .task import Assignment, Plan, Start, Task

TOO_STEEP = "F is too steep in u to be linearised"


def by_least_work(
    task: Task,
    starts: Sequence[Start],
    estimator: Linearised,
    earlier: Sequence[Candidate],
    rows: NDArray[np.int64],
) -> Plan:
    """Plan the points `rows` with the candidates that need the least work.

    Starts that were not tried yet come first, then tangents, then Picard iteration. `earlier` are
    the candidates so far. The cost of the plan covers the pilots started here, not those of
    `earlier`.
    """
    policy, tried = task.policy, list(earlier)
    for other in sorted(starts, key=lambda start: pilot_work(task, start, estimator)):
        # Another pilot runs only where it is a small part of the remaining work.
        least = least_score(tried, len(task))
        limit = policy.worth * pilot_work(task, other, estimator)
        known = [each.rows for each in tried if each.start is other]
        due = np.setdiff1d(rows[least[rows] > limit], np.concatenate([*known, np.zeros(0, int)]))
        if len(due) and (other is starts[0] or time.monotonic() < task.deadline):
            tried.append(try_candidate(task, other, estimator, due))
    tried = _second_looks(task, tried, estimator, rows)
    tried = refuse_contradictions(tried, policy)
    older, further, cost = 0, rows, Evaluations()
    for _ in range(policy.tangents):
        # The first tangent is tried everywhere, and a further one only where the one before is the
        # best candidate.
        further = further[select(tried)[further] >= older]
        older = len(tried)
        tangents, of_slopes = _tangents(task, tried, estimator, further)
        tried, cost = tried + tangents, cost + of_slopes
    least = least_score(tried, len(task))[rows]
    refused, biased = np.isinf(least), np.isfinite(least) & (least >= BIASED_SCORE)
    found = Plan(pilots=sum((each.cost for each in tried[len(earlier) :]), cost))
    found += _best(task, tried, rows[~refused & ~biased])
    if biased.any():
        there = rows[biased]
        deeper = _larger_pilots(task, starts, tried, there)
        is_known = np.isfinite(least_score(deeper, len(task))[there])
        found += Plan(pilots=sum((each.cost for each in deeper), Evaluations()))
        found += _best(task, deeper, there[is_known]) if is_known.any() else Plan()
        found += _best(task, tried, there[~is_known])
    if refused.any():
        found += by_picard(task.at(rows[refused]), starts, TOO_STEEP)
    return found


def _second_looks(
    task: Task, tried: Sequence[Candidate], estimator: Linearised, rows: NDArray[np.int64]
) -> list[Candidate]:
    """Return all candidates, and larger pilots of those that may be the best.

    The old candidates are refused at the points that are measured again.
    """
    policy, older, looks = task.policy, [], []
    least = least_score(tried, len(task))
    growth = policy.second_look / policy.pilot_replicates
    for each in tried:
        known = rows[np.isin(rows, each.rows) & (least[rows] < BIASED_SCORE)]
        limit = policy.worth * growth * pilot_work(task, each.start, estimator)
        may_win = each.score[known] < policy.second_look_ratio * least[known]
        due = known[may_win & (least[known] > limit)]
        is_due = np.zeros(len(task), bool)
        if len(due) and time.monotonic() < task.deadline:
            again = policy.second_look
            looks.append(try_candidate(task, each.start, each.estimator, due, again, each.steps))
            is_due[due] = True
        older.append(each.refused(is_due))
    return older + looks


def _tangents(
    task: Task, tried: Sequence[Candidate], estimator: Linearised, rows: NDArray[np.int64]
) -> tuple[list[Candidate], Evaluations]:
    """Return candidates that start from the tangent to the best estimate.

    They are tried where the level bias of the best candidate is not negligible. Near an estimate of
    the solution the remainder of F is smaller. The second result is the cost of measuring slopes.
    """
    found, cost, equation, policy = [], Evaluations(), task.equation, task.policy
    for row in rows:
        best = min(tried, key=lambda each: each.score[row])
        shows = best.level_bias[row] > policy.negligible * best.stderr[row]
        is_over = time.monotonic() > task.deadline
        if not np.isfinite(best.score[row]) or not shows or is_over:
            continue
        trial, place = best.trial_at(row)
        measured, one = trial.measurement.at(place), task.at(np.array([row]))
        if equation.uses_z and not task.gradient:
            method, of = trial.look.tuning.gradient, best.start.equation
            tuning = best.estimator.pilot_tuning(of, method)
            look = Look(best.start, best.estimator, tuning, policy.pilot_replicates)
            measured = measure(replace(one, gradient=True), look)
            cost += measured.cost
        dtype, points = task.points.x.dtype, one.points
        value, slope = np.asarray(measured.value[0], dtype), measured.slope[0].astype(dtype)
        t0, x0 = np.asarray(points.t[0]), points.x[0]
        tangent = Tangent(equation, t0, x0, value, slope)
        start = tangent_start(tangent, policy.tangent_bias_factor)
        found.append(try_candidate(task, start, estimator, np.array([row])))
    return found, cost


def _best(task: Task, tried: Sequence[Candidate], rows: NDArray[np.int64]) -> Plan:
    """Plan the points `rows` with the candidates that have the best scores.

    Settling the steps can raise the work of the best candidate above the predicted work of the next
    one. Then the next one is settled too, and the better of the two is taken.
    """
    scores = np.array([each.score for each in tried])

    def settled(best: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[Plan, Floats]:
        """Return the plan of `rows` with the candidates `best`, and its work at every point."""
        parts = (
            each.plan(rows[best[rows] == k], _reason(tried, k)) for k, each in enumerate(tried)
        )
        found, work = sum(parts, Plan()), np.full(len(task), np.inf)
        for each in found.assignments:
            work[task.rows_of(each.points)] = each.work
        return found, work

    best = np.argmin(scores, 0)
    first, work = settled(best, rows)
    np.put_along_axis(scores, best[None], np.inf, 0)
    least = np.min(scores, 0)[rows]
    is_over = time.monotonic() >= task.deadline
    next_seems_better = (work[rows] > least) & (least < BIASED_SCORE) & (not is_over)
    second, other_work = settled(np.argmin(scores, 0), rows[next_seems_better])
    is_better = other_work < work

    def part(plan: Plan, where: NDArray[np.bool_]) -> list[Assignment]:
        found = [each.at(where[task.rows_of(each.points)]) for each in plan.assignments]
        return [each for each in found if len(each.points)]

    kept = (*part(first, ~is_better), *part(second, is_better))
    return Plan(kept, first.pilots + second.pilots)


def _larger_pilots(
    task: Task,
    starts: Sequence[Start],
    tried: Sequence[Candidate],
    rows: NDArray[np.int64],
) -> Sequence[Candidate]:
    """Return new candidates with larger pilots, and three Picard levels from zero.

    `rows` are points where every candidate has a bias above the standard error aimed for. After the
    deadline, or without a tolerance, there are no new candidates.
    """
    if time.monotonic() > task.deadline or not task.rule.has_tolerance:
        return []
    replicates, found = task.policy.last_look, []
    for each in tried:
        there = np.intersect1d(rows, np.flatnonzero(np.isfinite(each.score)))
        if len(there):
            found.append(
                try_candidate(task, each.start, each.estimator, there, replicates, each.steps)
            )
    return [*found, try_candidate(task, starts[-1], measured_picard(3), rows, replicates)]


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
