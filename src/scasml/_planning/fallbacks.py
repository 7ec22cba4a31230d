"""Fallbacks of the automatic choice, where the linearised estimator cannot be used."""

import time
from collections.abc import Sequence

import numpy as np

from ..estimators import Linearised, Picard
from . import checks
from .candidates import all_figures, try_candidate
from .task import Plan, Start, Task
from .trials import plan_given

NOT_FINITE = "the surrogate is not finite there"


def for_nonfinite_surrogate(task: Task, start: Start) -> Plan:
    """Plan all points with `Linearised` and the fewest steps.

    An answer is the surrogate plus a correction, so it is not finite where the surrogate is not.
    These points need only enough replicates to get the status "not finite".
    """
    return plan_given(task, start, Linearised(), has_fewest_steps=True).with_reason(NOT_FINITE)


def by_picard(task: Task, starts: Sequence[Start], why: str) -> Plan:
    """Plan every point of the task with Picard iteration.

    Two levels from the first start are tried. Where they leave too much bias, three levels from
    zero are tried, which compile faster than three from a surrogate. Where F is too steep for any
    of these, the two levels of the SCaSML paper are taken, whose bias is unknown. `why` says, for
    the reason of the assignments, why `Linearised` does not serve the points.
    """
    first, zero = starts[0], starts[-1]
    checks.refuse(task, is_discretised=Picard().step_order(first.equation) > 0)
    two = try_candidate(task, first, measured_picard(2), task.everywhere)
    found, tried = Plan(pilots=two.cost), [two]
    steep, biased = np.isinf(two.score), two.level_bias > two.stderr
    served = steep.copy()
    if steep.any():
        reason = f"Picard, since {why}; F is too steep for its bias to be known"
        some = task.at(np.flatnonzero(steep))
        found += plan_given(some, first, Picard(2, 10)).with_reason(reason)
    deeper = np.flatnonzero(biased & ~steep)
    if len(deeper) and task.rule.has_tolerance and time.monotonic() < task.deadline:
        three = try_candidate(task, zero, measured_picard(3), deeper)
        better = np.isfinite(three.score) & (three.level_bias < two.level_bias)
        served |= better
        reason = f"3 Picard levels from zero, since {why}"
        tried.append(three)
        found += Plan(pilots=three.cost) + three.plan(np.flatnonzero(better), reason)
    reason = f"2 Picard levels from {first.name}, since {why}"
    found += Plan(candidates=all_figures(task, tried))
    return found + two.plan(np.flatnonzero(~served), reason)


def measured_picard(levels: int) -> Picard:
    """Return the Picard estimator of the automatic choice, whose samples a pilot measures."""
    return Picard(levels, 16, pairs=True, allocation="measured")
