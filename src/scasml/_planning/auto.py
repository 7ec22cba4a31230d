"""`method="auto"`: pilots choose start, estimator and tuning, separately at each point.

`choose` takes a `Task` and the starts that are offered, and returns a `Plan`. After the deadline,
no further pilot begins.
"""

import itertools
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.surrogate import AbstractSurrogate
from ..estimators import Evaluations, Linearised, Variant, total_evaluations
from ..execution.compilation import AbstractProbe
from ..execution.row_numbers import RowNumbers, run_rows
from . import checks
from .candidates import (
    BIASED_SCORE,
    Candidate,
    differentiates_slopes,
    least_score,
    least_work,
    pilot_work,
    refuse_contradictions,
    try_candidate,
)
from .fallbacks import by_picard, for_nonfinite_surrogate
from .measurement import FIRST_PILOT
from .probes import gradient_methods, slopes_jump
from .selection import by_least_work
from .task import Plan, Start, Task

TAKEN_AT_ONCE = "which takes less work than trying anything else"
SMALL_DEFECT = "whose defect is a small part of the solution"
SLOPES_JUMP = (
    "the slopes of F in u or z jump where paths go, and cannot be differentiated along them"
)


def choose(task: Task, starts: Sequence[Start]) -> Plan:
    """Plan every point of the task.

    `starts` are those of `offered_starts`: the first is the surrogate if there is one, and the last
    is zero. Raises `ArgumentError` if the coefficients cannot be used at a point.
    """
    first, estimator = starts[0], Linearised()
    jumping, finite = np.zeros(len(task), bool), np.ones(len(task), bool)
    if task.surrogate is not None:
        # This check needs little work. It comes before large programs are compiled.
        finite = task.executor.map(_FiniteProbe(task.surrogate), task.points.t, task.points.x)
    if differentiates_slopes(estimator, task):
        jumping = slopes_jump(task, first)
    found = Plan()
    if (bad := np.flatnonzero(~finite)).size:
        found += for_nonfinite_surrogate(task.at(bad), first)
    if (rough := np.flatnonzero(finite & jumping)).size:
        found += by_picard(task.at(rough), starts, SLOPES_JUMP)
    if (rest := np.flatnonzero(finite & ~jumping)).size:
        found += _by_linearised(task.at(rest), starts, estimator)
    return found


class _FiniteProbe(AbstractProbe):
    """Whether a surrogate and its gradient are finite at a point."""

    surrogate: AbstractSurrogate

    def __call__(self, t: Array, x: Array) -> Array:
        value, slope = jax.value_and_grad(self.surrogate, argnums=1)(t, x)
        return jnp.isfinite(value) & jnp.all(jnp.isfinite(slope))


def _by_linearised(task: Task, starts: Sequence[Start], estimator: Linearised) -> Plan:
    """Plan every point with the first start that is good enough there.

    `order_of_trial` says which starts are tried here. A start that is followed by another serves a
    point at once if its predicted work there is close to the least work that the next start can
    need. The start that is tried last, or alone, serves the points where its defect is a small part
    of the solution and little work remains. For all other points, `by_least_work` tries the
    remaining starts and takes the candidate with the least predicted work.
    """
    checks.refuse(task, is_discretised=estimator.step_order(starts[0].equation)[0] > 0)
    ordered = order_of_trial(task, starts, estimator)
    found, tried = Plan(), list[Candidate]()
    rows = task.everywhere  # points without an assignment
    for start, following in itertools.zip_longest(ordered, ordered[1:]):
        least = least_score(tried, len(task))[rows]
        is_due = least > task.policy.worth * pilot_work(task, start, estimator)
        if is_due.any() and (not tried or time.monotonic() < task.deadline):
            taken, tried, suspect = _try_start(
                task, start, following, estimator, tried, rows[is_due]
            )
            found += taken
            rows = np.sort(np.concatenate([rows[~is_due], suspect]))
    if len(rows):
        found += by_least_work(task, starts, estimator, tried, rows)
    return found


def order_of_trial(task: Task, starts: Sequence[Start], estimator: Linearised) -> list[Start]:
    """Return the starts in the order in which they are tried.

    For `with_gradient=False` and a tolerance, starts other than zero come in the order of the work
    of their pilots. Zero comes before them if its pilot is cheap or the equation is linear, and is
    left to `selection` otherwise. In all other cases only the first start is tried, whose gradient
    is usually the best.
    """
    if len(starts) == 1 or not task.rule.has_tolerance or task.gradient:
        return [starts[0]]
    work = lambda start: pilot_work(task, start, estimator)
    *others, zero = starts
    is_cheap = task.policy.worth * work(zero) <= work(starts[0])
    with_zero = [zero] if is_cheap or task.equation.is_linear else []
    return with_zero + sorted(others, key=work)


def _try_start(
    task: Task,
    start: Start,
    following: Start | None,
    estimator: Linearised,
    tried: Sequence[Candidate],
    rows: NDArray[np.int64],
) -> tuple[Plan, list[Candidate], NDArray[np.int64]]:
    """Try one start at some points.

    **Arguments:**

    - `following`: the start that is tried next; None if this is the last one.
    - `tried`: the candidates so far.
    - `rows`: the indices of the points in the task.

    Returns three things: the plan of the points that the start serves, all candidates so far, and
    the indices of the other points of `rows`.
    """
    policy = task.policy
    useless, cost = _is_useless(task, start, estimator, rows)
    refined = [try_candidate(task, start, estimator, rows[~useless[rows]])]
    if start.model is not None:
        refined = _refine_steps(refined[0], task, estimator)
    count, cost = len(refined), sum((each.cost for each in refined), cost)
    every = refuse_contradictions([*refined, *tried], policy)
    refined, tried = every[:count], every[count:]
    # At each point, the candidate with the most steps counts.
    newest = np.max([k * np.isin(task.everywhere, each.rows) for k, each in enumerate(refined)], 0)
    score = np.choose(newest, [each.score for each in refined])
    is_bad, why = np.choose(newest, [each.is_suspect(policy) for each in refined]), SMALL_DEFECT
    if following is not None:
        limit = policy.take_at_once * least_work(task, following, estimator)
        is_bad, why = score > limit, TAKEN_AT_ONCE
    is_suspect = useless | is_bad | (least_score(tried, len(task)) < score)
    found = Plan(pilots=cost)
    for k, each in enumerate(refined):
        served = rows[~is_suspect[rows] & (newest[rows] == k)]
        found += each.plan(served, f"started from {start.name}, {why}")
    return found, every, rows[is_suspect[rows]]


def _is_useless(
    task: Task, start: Start, estimator: Linearised, rows: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], Evaluations]:
    """Return where the start is a surrogate whose defect is a large part of the solution.

    The first result is a mask over all points of the task. One replicate without the remainder, at
    the points `rows`, measures the defect; the second result is its cost. Without a tolerance no
    point counts as useless.
    """
    useless, cost = np.zeros(len(task), bool), Evaluations()
    is_surrogate = task.surrogate is not None and start.model is task.surrogate
    if not is_surrogate or not task.rule.has_tolerance:
        return useless, cost
    for name, served in gradient_methods(task, start, estimator).items():
        here = np.intersect1d(served, rows)
        some, each = task.at(here), np.arange(len(here))
        tuning = estimator.pilot_tuning(start.equation, name)
        tuning = tuning.with_samples(tuning.samples * np.array([1, 1, 0], np.int32))
        spent = total_evaluations(estimator, start.equation, tuning, np.ones_like(each))
        cost = sum(spent, cost)
        replicate = np.full(len(each), FIRST_PILOT)
        variant = np.full(len(each), int(Variant.MAIN))
        numbers = RowNumbers(each, replicate, variant)
        program = some.program(start, estimator, tuning)
        for part in run_rows(task.executor, program, some.points, tuning, numbers):
            value = np.asarray(part.replicates.surrogate[0], float)
            defect = np.asarray(part.replicates.value, float)
            size = np.minimum(np.abs(value), np.abs(value + defect))
            useless[here[part.rows]] = ~(np.abs(defect) <= task.policy.useless_defect * size)
    return useless, cost


def _refine_steps(first: Candidate, task: Task, estimator: Linearised) -> list[Candidate]:
    """Return the candidate, followed by candidates with more and more steps of a path.

    More steps are tried where the level bias of the candidate is too large and its step bias is not
    negligible, because long steps can cause both.
    """
    policy, found = task.policy, [first]
    steps = estimator.pilot_tuning(first.start.equation, "pathwise").steps
    while (steps := policy.step_growth * steps) <= policy.most_refined_steps:
        last = found[-1]
        wants = last.step_bias > policy.negligible * last.stderr
        wants &= np.isfinite(last.score) & ((last.score >= BIASED_SCORE) | (len(found) > 1))
        if steps == 0 or not wants.any() or time.monotonic() >= task.deadline:
            break
        rows = np.flatnonzero(wants)
        found.append(try_candidate(task, first.start, estimator, rows, steps=steps))
    return found
