"""Second looks at candidates: larger pilots, and tangents as further starts."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..estimators import Evaluations, Linearised
from .candidates import (
    BIASED_SCORE,
    MEASURED_AGAIN,
    Candidate,
    comparable,
    least_score,
    pilot_work,
    refuse_contradictions,
    select,
    try_candidate,
)
from .pilots import Look, measure
from .starts import Tangent, tangent_start
from .task import Task


def look_again(task: Task, tried: Sequence[Candidate], estimator: Linearised) -> list[Candidate]:
    """Return all candidates, and larger pilots of those that may be the best.

    A larger pilot runs where it is a small part of the remaining work, and where a candidate may
    need the least work, or has a bound that may only be large because its pilot was small. The old
    candidate is refused at the points that are measured again.
    """
    policy, found = task.policy, list(tried)
    for replicates in (policy.second_look, policy.last_look):
        least = least_score(found, len(task))
        growth, older = replicates / policy.pilot_replicates, found
        found, best = [], select(older)
        for k, each in enumerate(older):
            is_close = each.score < policy.second_look_ratio * least
            is_biased = (best == k) & (each.level_bias > policy.large_bound * each.stderr)
            # Where even the best candidate has too large a bound, another one may have a smaller.
            is_biased |= is_close & (least >= BIASED_SCORE)
            may_win = is_close & (len(older) > 1)
            is_second = replicates == policy.second_look
            limit = policy.worth * growth * pilot_work(task, each.start, estimator)
            is_cheap = task.rule.has_tolerance | (least > limit)
            wanted = (is_biased & is_cheap) | (may_win & is_second & (least > limit))
            due = wanted & np.isfinite(each.score) & (time.monotonic() < task.deadline)
            found.append(each.refused(due, MEASURED_AGAIN))
            if due.any():
                rows = np.flatnonzero(due)
                larger = try_candidate(task, each.start, each.estimator, rows, replicates)
                found.append(comparable(task, larger, tried))
    return refuse_contradictions(found, policy)


def with_tangents(
    task: Task, tried: Sequence[Candidate], estimator: Linearised
) -> tuple[list[Candidate], Evaluations]:
    """Return all candidates, and candidates that start from tangents to the best estimates.

    The first tangent is tried at every point where it may pay. A further one is tried only where
    the one before is the best candidate. The second result is the cost of measuring slopes.
    """
    found, cost, older = list(tried), Evaluations(), 0
    rows = np.arange(len(task))
    if not estimator.tails(task.equation)["depth"]:
        return found, cost  # a tangent makes only R smaller
    for _ in range(task.policy.tangents):
        rows = rows[select(found)[rows] >= older]
        older = len(found)
        tangents, of_slopes = _tangents(task, found, estimator, rows)
        found, cost = found + tangents, cost + of_slopes
    return found, cost


def _tangents(
    task: Task, tried: Sequence[Candidate], estimator: Linearised, rows: NDArray[np.int64]
) -> tuple[list[Candidate], Evaluations]:
    """Return candidates that start from the tangent to the best estimate.

    They are tried where the bound of the best candidate is not negligible. Near an estimate of the
    solution the remainder of F is smaller. The second result is the cost of measuring slopes.
    """
    found, cost, equation, policy = [], Evaluations(), task.equation, task.policy
    for row in rows:
        best = min(tried, key=lambda each: each.score[row])
        shows = best.level_bias[row] > policy.large_bound * best.stderr[row]
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
        start = tangent_start(tangent)
        found.append(
            comparable(task, try_candidate(task, start, estimator, np.array([row])), tried)
        )
    return found, cost
