"""Error against CPU time of replicates: many estimators, one surrogate, the same points.

`estimator_families` lists the estimators. `run_all` runs their replicates in turns, and returns for
each family its curves of error against CPU time.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .. import Linearised, Picard
from .._planning.task import Start, Task
from .._sampling.designs import Sampling
from .._support.types import Floats
from ..estimators import AbstractEstimator, Tuning, Variant
from ..execution.points import Points
from ..execution.program import Program
from ..execution.row_numbers import RowNumbers, rows_at

PUBLISHED = "Picard n=2 M=10 as published"
REFERENCE = "Picard(2, 10)"
# CPU seconds of one estimator at all points, without compilation, and the fewest and most
# replicates that it runs.
RUN_SECONDS, FEWEST_REPLICATES, MOST_REPLICATES = 3.0, 4, 256
# The replicates of all estimators run in turns, in this number of rounds.
ROUNDS = 4
# Samples per replicate of the members of a family `Linearised`, and of its quickest member.
PATHS_PER_REPLICATE = (32, 128, 512, 2048)
FEWEST_PATHS = 4
# Samples of the first increments for each sample of the remainder.
PATHS_PER_REMAINDER_SAMPLE = 64
# Steps of a path of `Linearised`, and steps of a second family for equations that are not linear.
LINEARISED_STEPS, MORE_STEPS = 2, 8

# (CPU seconds per point, rms error of the mean) for 1, 2, 4, ... replicates.
Curve = list[tuple[float, float]]


class Tuned(NamedTuple):
    """An estimator with its tuning."""

    estimator: AbstractEstimator
    tuning: Tuning


def estimator_families(start: Start, samplings: Sequence[Sampling]) -> dict[str, list[Tuned]]:
    """Return the estimators for the surrogate as start, by the name of their family.

    The members of a family differ in the samples of a replicate.
    """
    picard = lambda samples, **options: _tuned(start, Picard(2, samples, **options))
    families = {
        PUBLISHED: [picard(10, gradient="weights", threshold=0.01)],
        REFERENCE: [picard(10, gradient="pathwise")],
    }
    for sampling in samplings:
        if sampling != "mc":
            families[f"Picard(2, 8), {sampling}"] = [
                picard(8, gradient="pathwise", sampling=sampling)
            ]
        families[f"Linearised, {sampling}"] = _linearised(start, sampling)
        if sampling == "rqmc":
            without = _without_remainder(start, sampling)
            families[f"Linearised, {sampling}, no remainder"] = without
            if not start.equation.is_linear:
                families[f"Linearised, {sampling}, no remainder, {MORE_STEPS} steps"] = (
                    _without_remainder(start, sampling, MORE_STEPS)
                )
    return families


def other_families(start: Start) -> dict[str, list[Tuned]]:
    """Return the estimators for another start, by the name of their family."""
    name = f"Linearised, rqmc, from {start.name}"
    return {
        name: _linearised(start, "rqmc"),
        f"{name}, no remainder": _without_remainder(start, "rqmc"),
    }


def _tuned(start: Start, estimator: AbstractEstimator) -> Tuned:
    return Tuned(estimator, estimator.default_tuning(start.equation, gradient=False))


def _linearised(
    start: Start,
    sampling: Sampling,
    with_remainder: bool = True,
    steps: int = LINEARISED_STEPS,
) -> list[Tuned]:
    """Return `Linearised` with every number of paths, without levels.

    All of them share one program, because samples are data of a program.
    """
    estimator, tuning = _tuned(
        start, Linearised(steps, 128, gradient="pathwise", sampling=sampling)
    )
    found = []
    for paths in PATHS_PER_REPLICATE:
        of_remainder = max(2, paths // PATHS_PER_REMAINDER_SAMPLE) if with_remainder else 0
        samples = np.zeros(len(estimator.increments), np.float32)
        samples[:2], samples[estimator.increments.index("remainder")] = paths, of_remainder
        found.append(Tuned(estimator, tuning.with_samples(samples)))
    return found


def _without_remainder(
    start: Start, sampling: Sampling, steps: int = LINEARISED_STEPS
) -> list[Tuned]:
    quickest = Linearised(steps, FEWEST_PATHS, 0, gradient="pathwise", sampling=sampling)
    return [_tuned(start, quickest), *_linearised(start, sampling, False, steps)]


@dataclass
class Run:
    """The replicates of one program at every point, and the CPU time that they took."""

    task: Task
    program: Program
    tuning: Tuning
    values: list[Floats] = field(default_factory=list)  # of each replicate, (points,)
    seconds: float = 0.0  # CPU time of all replicates at all points

    def add(self, replicates: int) -> None:
        """Run more replicates at every point."""
        points: Points = self.task.points
        count, done = len(points), len(self.values)
        point = np.tile(np.arange(count), replicates)
        replicate = np.repeat(done + np.arange(replicates), count)
        variant = np.full(len(point), int(Variant.MAIN))
        rows = rows_at(points, self.tuning, RowNumbers(point, replicate, variant))
        values = np.zeros((replicates, count))
        began = time.process_time()
        for part in self.task.executor.run(self.program, rows):
            at = replicate[part.rows] - done, point[part.rows]
            values[at] = part.replicates.value
        self.seconds += time.process_time() - began
        self.values += list(values)

    def clear(self) -> None:
        """Forget all replicates and their time."""
        self.values, self.seconds = [], 0.0

    @property
    def seconds_per_replicate(self) -> float:
        """CPU seconds of one replicate at one point."""
        return self.seconds / (len(self.values) * len(self.task))

    def curve(self, defect: Floats) -> Curve:
        """Return CPU time per point and error of the mean of 1, 2, 4, ... replicates.

        The error is the root mean square over points and over all disjoint groups of that number of
        replicates. `defect` (points,) is the exact value of what the replicates estimate.
        """
        values, size, found = np.array(self.values), 1, []
        while size <= len(values):
            used = values[: len(values) // size * size]
            means = used.reshape(-1, size, values.shape[1]).mean(1)
            error = float(np.sqrt(np.mean((means - defect) ** 2)))
            found.append((size * self.seconds_per_replicate, error))
            size *= 2
        return found


def run_all(
    task: Task, starts: Sequence[Start], samplings: Sequence[Sampling]
) -> dict[str, list[Run]]:
    """Run all families for all starts, and return the runs of their members by family.

    The estimators run in turns, each for about RUN_SECONDS of CPU time. The first of the starts is
    the surrogate of the task.
    """
    first, *others = starts
    tuned = {name: (first, each) for name, each in estimator_families(first, samplings).items()}
    for other in others:
        tuned |= {name: (other, each) for name, each in other_families(other).items()}
    families = {
        name: [Run(task, task.program(start, *each), each.tuning) for each in members]
        for name, (start, members) in tuned.items()
    }
    runs = [run for members in families.values() for run in members]
    for run in runs:
        run.add(1)  # compiles
        run.clear()
        run.add(1)
    fewest, most = FEWEST_REPLICATES / ROUNDS, MOST_REPLICATES / ROUNDS
    for _ in range(ROUNDS):
        for run in (run for run in runs if run.seconds < RUN_SECONDS):
            replicates = RUN_SECONDS / ROUNDS / (run.seconds_per_replicate * len(task))
            run.add(int(np.clip(replicates, fewest, most)))
    return families


def error_at(curves: list[Curve], seconds: float) -> float:
    """Return the least error of a family at a CPU time.

    Between two points of a curve, the error is interpolated by the power law through both. It is
    infinite before the first point, and constant after the last.
    """
    found = []
    for curve in curves:
        times, errors = (np.log([max(point[k], 1e-300) for point in curve]) for k in (0, 1))
        found.append(np.exp(np.interp(np.log(seconds), times, errors, left=np.inf)))
    return float(min(found))


def time_to(curves: list[Curve], error: float) -> float:
    """Return the least CPU time at which a family reaches an error; infinite if it does not."""
    return min(_crossing(curve, error) for curve in curves)


def _crossing(curve: Curve, error: float) -> float:
    """Return the time at which one curve falls to an error; infinite if it does not.

    Between two points, the curve is interpolated by the power law through both.
    """
    before: Any = None
    for seconds, reached in curve:
        if reached <= error:
            if before is None or reached == before[1]:
                return seconds
            fraction = np.log(error / before[1]) / np.log(max(reached, 1e-300) / before[1])
            return float(before[0] * (seconds / before[0]) ** fraction)
        before = seconds, reached
    return float("inf")
