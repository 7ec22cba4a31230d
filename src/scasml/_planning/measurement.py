"""Measurements: what a pilot finds out at each point.

`PilotSums` runs the replicates of a pilot and returns a `Measurement`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import AbstractTunable, Evaluations, Tuning, Variant
from ..execution.local import value_and_gradient
from ..execution.moments import Groups, Moments
from ..execution.row_numbers import RowNumbers, run_rows
from .policy import Policy
from .task import Start, Task

# Number of the first pilot replicate. No ordinary replicate has such a number.
FIRST_PILOT = 2**31


@dataclass(frozen=True, eq=False)
class Measurement:
    """What a pilot measured at each point. Arrays without a stated shape are (points,)."""

    value: Floats  # estimate of u
    defect: Floats  # estimate of u minus the start
    slope: Floats  # estimate of grad u, (points, d); without gradients that of the surrogate, or 0
    mean: Floats  # mean of each increment, (points, increments)
    variance: Floats  # of each increment of one pilot replicate, (points, increments)
    size: Floats  # mean absolute sample of each increment, (points, increments)
    step_bias: Floats  # estimated size of the step bias, plus its standard error
    step_noise: Floats  # standard error of the step bias
    coupling: Floats  # Var(fine - coarse) / (Var(fine) + Var(coarse)); 1 if independent
    gradient_step_bias: Floats  # as `step_bias`, for each component of the gradient, (points, d)
    seconds: float  # wall-clock time of one replicate at all points
    replicates: int  # of the pilot, at each point
    cost: Evaluations  # of the pilot, at all points together; zero for a subset of the points
    # The next three are zero for estimators that are no `AbstractLevelled`.
    square: Floats  # mean square of the samples of each increment, (points, increments)
    drawn: Floats  # number of these samples, (points, increments)
    level: NDArray[np.int64]  # base level

    def at(self, rows: NDArray[np.int64]) -> "Measurement":
        """Return the measurement of a subset of the points."""
        arrays = {name: a[rows] for name, a in vars(self).items() if isinstance(a, np.ndarray)}
        return replace(self, cost=Evaluations(), **arrays)

    @property
    def total_size(self) -> Floats:
        """The sum of the sizes of all increments, which is larger than any step bias."""
        return np.sum(self.size, 1)

    def is_uncoupled(self, policy: Policy) -> NDArray[np.bool_]:
        """Return where fine and coarse paths are nearly independent of each other.

        Their difference then does not measure the step bias.
        """
        return self.coupling >= policy.uncoupled

    def is_noise(self, policy: Policy) -> NDArray[np.bool_]:
        """Return where `step_bias` is mostly statistical error, which more replicates reduce."""
        return (self.step_noise > self.step_bias / 2) & ~self.is_uncoupled(policy)

    def step_bias_of_large_pilot(self, policy: Policy) -> Floats:
        """Predict the step bias that the largest pilot would measure."""
        noise_left = min(np.sqrt(self.replicates / policy.largest_pilot), 1.0)
        reduced = self.step_bias - (1 - noise_left) * self.step_noise
        return np.where(self.is_noise(policy), reduced, self.step_bias)


def joined(parts: Sequence[Measurement]) -> Measurement:
    """Return the measurements of several blocks of points as one."""
    first = parts[0]
    names = [name for name, a in vars(first).items() if isinstance(a, np.ndarray)]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    seconds = sum(part.seconds for part in parts)
    cost = sum((part.cost for part in parts), Evaluations())
    return replace(first, seconds=seconds, cost=cost, **arrays)


class PilotSums:
    """The replicates of one pilot, and sums of their gradients.

    `count` is the number of replicates at each point.
    """

    def __init__(self, task: Task, increments: int, count: int):
        points, dim = task.points.x.shape
        self.count = count
        self.value = np.zeros((count, points))
        self.fine, self.coarse, self.size = (
            np.zeros((count, points, increments)) for _ in range(3)
        )
        self.surrogate, self.surrogate_slope = np.zeros(points), np.zeros((points, dim))
        self.slope = np.zeros((points, dim))  # sum over replicates
        self.square = np.zeros((points, increments))  # sum over replicates
        self.slope_change = Moments((points, dim))
        self.slope_change_sum = np.zeros((points, dim))
        self.seconds = 0.0  # of one replicate at all points

    def run(
        self,
        task: Task,
        start: Start,
        estimator: AbstractTunable,
        tuning: Tuning,
        is_discretised: bool,
    ) -> None:
        """Run all replicates.

        If `is_discretised`, the variant with coarse steps follows each main replicate.
        """
        points = len(task.points)
        variants = [Variant.MAIN, Variant.COARSE_STEPS] if is_discretised else [Variant.MAIN]
        point = np.tile(np.arange(points), self.count * len(variants))
        replicate = np.repeat(np.arange(self.count), points * len(variants))
        variant = np.tile(np.repeat(np.array(variants, np.int64), points), self.count)
        numbers = RowNumbers(point, FIRST_PILOT + replicate, variant)
        program = task.program(start, estimator, tuning)
        # Gradients in the main rows of the present replicate.
        fine_slope = np.zeros_like(self.slope)
        compile_seconds, began = 0.0, time.perf_counter()
        for part in run_rows(task.executor, program, task.points, tuning, numbers):
            compile_seconds += part.compile_seconds
            found = jax.tree.map(lambda a: a.astype(np.float64), part.replicates)
            # One replicate of one variant after the other: a coarse row needs its main row.
            block = np.arange(part.rows.start, part.rows.stop) // points
            for k in np.unique(block):
                chosen = block == k
                each = np.arange(part.rows.start, part.rows.stop)[chosen]
                kind = variants[k % len(variants)]
                self._add(kind, point[each], replicate[each], found.at(chosen), fine_slope, task)
        elapsed = time.perf_counter() - began - compile_seconds
        self.seconds = elapsed / (self.count * len(variants))
        if not is_discretised:
            self.coarse = self.fine

    def _add(
        self,
        variant: Variant,
        point: NDArray[np.int64],
        replicate: NDArray[np.int64],
        found: Any,
        fine_slope: Floats,
        task: Task,
    ) -> None:
        """Add rows of one variant; `fine_slope` passes gradients from main to coarse rows."""
        if variant == Variant.COARSE_STEPS:
            self.coarse[replicate, point] = found.increments
        else:
            self.value[replicate, point] = found.value
            self.fine[replicate, point] = found.increments
            self.size[replicate, point] = found.sizes
            if found.square is not None:
                self.square[point] += found.square
            if found.surrogate is not None:
                self.surrogate[point], self.surrogate_slope[point] = found.surrogate
        if not task.gradient:
            return
        groups = Groups(point)
        if found.gradient_increments is None:
            groups.add(self.slope, found.gradient)
            return
        measured = np.sum(found.gradient_increments, 1)
        if variant == Variant.COARSE_STEPS:
            change = fine_slope[point] - measured
            with np.errstate(invalid="ignore", over="ignore"):
                self.slope_change.add(groups, change)
                groups.add(self.slope_change_sum, change)
        else:
            fine_slope[point] = measured
            groups.add(self.slope, measured)

    def measurement(
        self,
        task: Task,
        start: Start,
        doubling_change: int,
        cost: Evaluations,
    ) -> Measurement:
        """Return the measurement, whose cost was `cost`.

        The biases of coarse and fine paths differ by `doubling_change` = 2^order - 1 times the bias
        of the fine paths.
        """
        count, tiny = self.count, np.finfo(np.float32).tiny
        start_value: Any = self.surrogate
        if start.model is not task.surrogate:
            start_value = 0.0
            if start.model is not None:
                t, x = task.points.t, task.points.x
                start_value = value_and_gradient(task.executor, start.model, t, x)[0]
        divisor = max(doubling_change, 1)
        # A NaN is an outcome here. The status reports it.
        with np.errstate(invalid="ignore"):
            value = self.surrogate + self.value.mean(0)
            fine, coarse = np.sum(self.fine, 2), np.sum(self.coarse, 2)
            change = fine - coarse
            noise = change.std(0, ddof=1) / np.sqrt(count) / divisor
            slope_noise = np.nan_to_num(np.sqrt(self.slope_change.variance / count)) / divisor
            slope_bias = np.abs(self.slope_change_sum / count) / divisor + slope_noise
            variances = np.var(fine, 0) + np.var(coarse, 0)
            return Measurement(
                value=value,
                defect=value - start_value,
                slope=self.surrogate_slope + self.slope / count,
                mean=self.fine.mean(0),
                variance=self.fine.var(0, ddof=1),
                size=self.size.mean(0),
                step_bias=np.abs(change.mean(0)) / divisor + noise,
                step_noise=noise,
                coupling=np.var(change, 0) / np.maximum(variances, tiny),
                gradient_step_bias=slope_bias,
                seconds=self.seconds,
                replicates=count,
                cost=cost,
                square=self.square / count,
                drawn=np.zeros_like(self.square),
                level=np.zeros(len(self.slope), np.int64),
            )
