"""`method="auto"`: pilots choose start, estimator and tuning, separately at each point.

`choose` takes a `Task` and the starts that are offered, and returns a `Plan`. After the deadline,
no further pilot begins.
"""

import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.surrogate import AbstractSurrogate
from ..estimators import Linearised
from ..execution.compilation import AbstractProbe
from . import checks
from .candidates import (
    SLOPES_JUMP,
    Candidate,
    all_figures,
    comparable,
    differentiates_slopes,
    least_score,
    least_work,
    pilot_work,
    reason,
    refusals_of_all,
    refuse_contradictions,
    select,
    try_candidate,
)
from .fallbacks import by_picard, for_nonfinite_surrogate
from .probes import slopes_jump
from .selection import look_again, with_tangents
from .task import Plan, Start, Task


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
    """Plan every point with the start that needs the least predicted work there.

    The surrogate is tried first. A further start is tried at a point where the best one so far
    leaves much work, compared with the least work that the further start can need, and where its
    defect or its work is large. A factor, larger pilots and tangents follow where they may pay.
    """
    checks.refuse(task, is_discretised=not starts[0].equation.dynamics.exact)
    tried: list[Candidate] = []
    for start in _in_order(task, starts, estimator):
        limit = task.policy.worth * least_work(task, start, estimator)
        due = np.flatnonzero((least_score(tried, len(task)) > limit) & _is_suspect(task, tried))
        if len(due) and (not tried or time.monotonic() < task.deadline):
            found = try_candidate(task, start, estimator, due)
            tried.append(comparable(task, found, tried))
            tried = refuse_contradictions(tried, task.policy)
    tried = [*tried, *_with_factor(task, tried)]
    tried = look_again(task, tried, estimator)
    tried, of_slopes = with_tangents(task, tried, estimator)
    cost = sum((each.cost for each in tried), of_slopes)
    found = Plan(pilots=cost, candidates=all_figures(task, tried))
    best, is_refused = select(tried), np.isinf(least_score(tried, len(task)))
    for k, each in enumerate(tried):
        found += each.plan(np.flatnonzero((best == k) & ~is_refused), reason(tried, k))
    reasons = refusals_of_all(tried)
    for why in dict.fromkeys(reasons[is_refused]):
        some = task.at(np.flatnonzero(is_refused & (reasons == why)))
        found += by_picard(some, starts, f"every start is refused ({why})")
    return found


def _in_order(task: Task, starts: Sequence[Start], estimator: Linearised) -> list[Start]:
    """Return the surrogate, followed by the other starts in the order of the work of pilots."""
    is_surrogate = lambda start: task.surrogate is not None and start.model is task.surrogate
    work = lambda start: pilot_work(task, start, estimator)
    return sorted(starts, key=lambda start: (not is_surrogate(start), work(start)))


def _with_factor(task: Task, tried: Sequence[Candidate]) -> list[Candidate]:
    """Return a candidate with a factor, for points where every candidate leaves much work.

    It starts from the surrogate. A factor only helps if F depends on u and not on x.
    """
    start = tried[0].start
    is_useful = task.equation.uses_u and not task.equation.is_linear
    if task.surrogate is None or not is_useful or time.monotonic() >= task.deadline:
        return []
    due = np.flatnonzero(least_score(tried, len(task)) > task.policy.factor_work)
    if not len(due) or not Linearised.factor_suits(start.equation):
        return []
    found = try_candidate(task, start, Linearised(factor=task.policy.factor), due)
    return [comparable(task, found, tried)]


def _is_suspect(task: Task, tried: Sequence[Candidate]) -> NDArray[np.bool_]:
    """Return where the best candidate so far has a large defect or leaves much work."""
    suspect, best = np.full(len(task), True), select(tried) if tried else None
    for k, each in enumerate(tried):
        suspect = np.where(best == k, each.is_suspect(task.policy), suspect)
    return suspect
