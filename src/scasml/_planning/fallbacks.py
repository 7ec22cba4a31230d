"""Fallbacks of the automatic choice, where the linearised estimator cannot be used."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..estimators import Linearised, Picard
from . import checks
from .candidates import Candidate
from .task import Assignment, Start, Task
from .tuning import plan

NOT_FINITE = "the surrogate is not finite there"


def for_nonfinite_surrogate(task: Task, start: Start) -> list[Assignment]:
    """Return assignments to `Linearised` with the fewest steps.

    An answer is the surrogate plus a correction, so it is not finite where the surrogate is not.
    These points need only enough replicates to get the status "not finite".
    """
    fewest = Linearised().pilot_tuning(start.equation, "pathwise").steps or 2
    found = plan(task, start, Linearised(steps=fewest))
    return [replace(each, reason=NOT_FINITE) for each in found]


def by_picard(task: Task, starts: Sequence[Start], why: str) -> list[Assignment]:
    """Return assignments of every point of the task to Picard iteration.

    Two levels from the first start are tried. Where they leave too much bias, three levels from
    zero are tried, which compile faster than three from a surrogate. Where F is too steep for any
    of these, the two levels of the paper are taken, whose bias is unknown. `why` says, for the
    reason of the assignments, why `Linearised` does not serve the points.
    """
    first, zero = starts[0], starts[-1]
    checks.refuse(task, is_discretised=Picard().step_order(first.equation)[0] > 0)
    two = Candidate(task, first, measured_picard(2), task.everywhere)
    steep, biased = np.isinf(two.score), two.level_bias > two.stderr
    served = steep.copy()
    assignments = []
    if steep.any():
        found = plan(task.at(np.flatnonzero(steep)), first, Picard(2, 10))
        reason = f"Picard, since {why}; F is too steep for its bias to be known"
        assignments += [replace(each, reason=reason) for each in found]
    deeper = np.flatnonzero(biased & ~steep)
    if len(deeper) and task.rule.has_tolerance and time.monotonic() < task.deadline:
        three = Candidate(task, zero, measured_picard(3), deeper)
        better = np.isfinite(three.score) & (three.level_bias < two.level_bias)
        served |= better
        reason = f"3 Picard levels from zero, since {why}"
        assignments += three.assignments(np.flatnonzero(better), reason)
    reason = f"2 Picard levels from {first.name}, since {why}"
    return assignments + two.assignments(np.flatnonzero(~served), reason)


def measured_picard(levels: int) -> Picard:
    """Return the Picard estimator of the automatic choice, whose samples a pilot measures."""
    return Picard(levels, 16, pairs=True, allocation="measured")
