"""Pilots: replicates that are run only to measure.

A `Look` specifies a pilot. `measure` runs it and returns a `Measurement`. A pilot uses random
numbers of its own at each point, so its results do not depend on the other points.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._support.types import Floats
from ..estimators import AbstractLevelled, AbstractTunable, Evaluations, Tuning, total_evaluations
from ..execution import row_numbers
from ..execution.stopping import StoppingRule
from .measurement import Measurement, PilotSums, joined
from .task import Start, Task


@dataclass(frozen=True, eq=False)
class Look:
    """The specification of one pilot."""

    start: Start
    estimator: AbstractTunable
    tuning: Tuning  # gradient method and steps of the pilot; an upper bound on its samples
    # The least number of replicates. It grows with the number that the user asked for.
    replicates: int
    fixes_samples: bool = False  # whether a run takes the samples that the user chose
    grows: bool = True  # whether the replicates grow with the number that the user asked for

    def at(self, rows: Any) -> "Look":
        """Return the look at a subset of the points."""
        return replace(self, tuning=self.tuning.at(rows))

    @property
    def samples(self) -> Any:
        """The samples of the pilot: the fewest of the estimator, and at most those of the tuning.

        None if the estimator uses fixed numbers of its own. The tuning of an `AbstractLevelled`
        has the numbers of the pilot itself.
        """
        if isinstance(self.estimator, AbstractLevelled):
            return self.tuning.samples
        fewest = self.estimator.pilot_tuning(self.start.equation, self.tuning.gradient).samples
        if fewest is None or self.tuning.samples is None:
            return fewest
        return np.minimum(fewest, self.tuning.samples).astype(np.int32)


def expected_stderr(look: Look, found: Measurement, rule: StoppingRule) -> Floats:
    """Predict the standard error at the end of a run with the tuning of a look, (points,).

    `found` is what the look measured.
    """
    variance = found.variance
    if look.tuning.samples is not None:
        variance = variance * (look.samples / np.maximum(look.tuning.samples, 1))
    deviation = np.sqrt(np.sum(variance, 1))
    return rule.expected_stderr(found.value, deviation, found.seconds)


def measure(task: Task, look: Look) -> Measurement:
    """Run a pilot at all points of the task."""
    requested = (task.rule.replicates or 0) // task.policy.replicates_per_pilot
    count = max(look.replicates, requested) if look.grows else look.replicates
    # One block of points after the other: replicates are kept until their block is measured.
    numbers_per_point = 4 * count * (len(look.estimator.increments) + 1)
    size = max(row_numbers.NUMBERS_PER_BLOCK // numbers_per_point, 1)
    blocks = [task.everywhere[at : at + size] for at in range(0, len(task), size)]
    return joined([_measure_block(task.at(rows), look.at(rows), count) for rows in blocks])


def _measure_block(task: Task, look: Look, count: int) -> Measurement:
    """Run `count` replicates at every point of the task."""
    start, estimator = look.start, look.estimator
    order = estimator.step_order(start.equation)
    tuning = look.tuning.with_samples(look.samples)
    sums = PilotSums(task, len(estimator.increments), count)
    sums.run(task, start, estimator, tuning, is_discretised=order > 0)
    per_replicate = np.full(len(task), count)
    cost = total_evaluations(estimator, start.equation, tuning, per_replicate)
    if order > 0:
        cost += cost  # of the coarse paths
    spent = sum(cost, Evaluations())
    return sums.measurement(task, start, 2**order - 1, spent)
