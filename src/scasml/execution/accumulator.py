"""The accumulator: running sums of the replicates of the points that one program serves.

`rows` lists the rows that bring every point to a number of replicates. `add` adds their replicates.
`estimate` returns value, count, standard error and bias of every point.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import AbstractTunable, Evaluations, Tuning, Variant, total_evaluations
from .executor import AbstractExecutor
from .moments import Extremes, Groups, Moments
from .noise_bias import NoiseBias
from .points import Points
from .program import Program, Replicates
from .rounding import last_digit, rounding_error
from .row_numbers import RowNumbers, run_rows
from .steepness import steepness_at, terminal_slope
from .stopping import Estimate


class KnownBias(NamedTuple):
    """Biases that pilots measured before the run, at each point."""

    steps: Floats  # of the value, (points,)
    gradient_steps: Floats  # of the gradient, (points, d)
    omitted: Floats | float = 0.0  # bound on the increments that the tuning omits
    factor: float = 1.0  # how many times larger the level bias may be than the increments show


class Accumulator:
    """Sums over the replicates of some points, all computed by one program."""

    def __init__(
        self,
        executor: AbstractExecutor,
        program: Program,
        points: Points,
        tuning: Tuning,
        known: KnownBias,
    ):
        self.executor, self.program, self.points = executor, program, points
        self.tuning, self.known = tuning, known
        count, dim = points.x.shape
        increments = len(program.estimator.increments)
        width = dim if program.gradient else 0
        self.surrogate_value, self.surrogate_slope = np.zeros(count), np.zeros((count, dim))
        self.value = Moments((count,), order=4)
        self.increments = Moments((count, increments), order=4)
        self.gradient = Moments((count, width))
        self.gradient_increments = Moments((count, increments, width), order=1)
        self.sizes = Moments((count, increments), order=1)
        self.telescoping = Moments((count, max(increments - 3, 0)))
        self.extremes = Extremes(count)
        estimator, pairs = program.estimator, ()
        if isinstance(estimator, AbstractTunable):
            pairs = estimator.bias_variants(program.equation)
        self.noise = NoiseBias(pairs, count, dim, program.gradient, points.x.dtype)
        self.seconds, self.rows_run = 0.0, 0  # wall-clock time without compilation
        self._terminal_slope: Floats | None = None
        self._biases: dict[str, Floats] | None = None  # valid until more rows are added
        self._rounding: tuple[Floats, Floats] = (np.zeros(count), np.zeros((count, dim)))
        if (start := program.start_model) is not None:
            self._rounding = rounding_error(executor, start, points.t, points.x)

    @property
    def count(self) -> NDArray[np.int64]:
        """Replicates of every point."""
        return self.value.count.astype(np.int64)

    @property
    def seconds_per_row(self) -> float:
        """Wall-clock time of a row with all workers busy; 0 while unknown."""
        return self.seconds / self.rows_run if self.rows_run else 0.0

    def run(self, targets: NDArray[np.int64]) -> Iterator[int]:
        """Bring every point to its target; yield the number of rows of each part as it arrives."""
        wanted = self.missing(targets)
        parts = run_rows(self.executor, self.program, self.points, self.tuning, wanted)
        while True:
            began = time.perf_counter()
            part = next(parts, None)
            if part is None:
                return
            elapsed = time.perf_counter() - began - part.compile_seconds
            self.seconds += max(elapsed, 0.0)
            self.rows_run += part.rows.stop - part.rows.start
            replicates = jax.tree.map(lambda a: a.astype(np.float64), part.replicates)
            # A NaN is an outcome here. The status reports it.
            with np.errstate(invalid="ignore", over="ignore"):
                self.add(wanted.at(part.rows), replicates)
            yield part.rows.stop - part.rows.start

    def missing(self, targets: NDArray[np.int64]) -> RowNumbers:
        """Return the rows that bring every point to its target.

        The next replicate of every point comes first, with its variants, then the one after it.
        """
        point, replicate = _missing(self.count, targets)
        variant = np.full(len(point), int(Variant.MAIN))
        if self.noise.pairs:
            again = _missing(self.noise.count, self.noise.due(targets))
            pairs = self.noise.variants(again[1])
            point, replicate = (
                np.concatenate([a, b, b]) for a, b in zip((point, replicate), again, strict=True)
            )
            variant = np.concatenate([variant, *pairs.T])
        turn = np.maximum(replicate - self.count[point], 0)
        order = np.lexsort((point, variant, turn))
        return RowNumbers(point[order], replicate[order], variant[order])

    def add(self, rows: RowNumbers, replicates: Replicates) -> None:
        """Add the replicates of rows."""
        self._biases = None
        point, slopes = rows.point, replicates.gradient_increments
        self.noise.add(
            point,
            rows.replicate,
            rows.variant,
            replicates.increments[:, -1],
            None if slopes is None else slopes[:, -1],
        )
        is_main = rows.variant == Variant.MAIN
        if not is_main.any():
            return
        point, replicates = point[is_main], replicates.at(is_main)
        groups = Groups(point)
        if replicates.surrogate is not None:
            self.surrogate_value[point], self.surrogate_slope[point] = replicates.surrogate
        self.value.add(groups, replicates.value)
        self.extremes.add(groups, replicates.value)
        self.increments.add(groups, replicates.increments)
        self.sizes.add(groups, replicates.sizes)
        self.telescoping.add(groups, replicates.telescoping)
        if self.program.gradient:
            self.gradient.add(groups, replicates.gradient)
            self.gradient_increments.add(groups, replicates.gradient_increments)

    def estimate(self) -> Estimate:
        """Return the state of every point, without shrinkage."""
        with np.errstate(invalid="ignore"):
            value = self.surrogate_value + self.value.mean
            return Estimate(value, self.value.count, self.value.stderr, self.bias())

    def bias(self) -> Floats:
        """Return the bias of the value: the sum of its parts."""
        return sum(self.biases().values(), np.zeros(len(self.points)))

    def biases(self) -> dict[str, Floats]:
        """Return the parts of the bias: omitted levels, noise inside F, steps, rounding."""
        if self._biases is None:
            self._biases = self._compute_biases()
        return self._biases

    def _compute_biases(self) -> dict[str, Floats]:
        program, known = self.program, self.known
        levels = program.estimator.level_bias(
            program.equation, self.increments.mean, self.sizes.mean
        )
        levels = known.factor * levels
        levels = np.where(self._is_too_steep(levels), np.nan, levels) + known.omitted
        last_digits = last_digit(self.points.x.dtype, self.surrogate_value, self.value.mean)
        return {
            "levels": levels,
            "noise": self.noise.value_bias() + 0 * levels,
            "steps": known.steps,
            "rounding": self._rounding[0] + last_digits,
        }

    def gradient_bias(self) -> Floats:
        """Return the bias of the gradient, shape (points, d)."""
        estimator, sizes = self.program.estimator, self.sizes.mean
        # The fraction of the last increment that the omitted levels add. It comes from values, so
        # it does not depend on the units of x.
        added = estimator.level_bias(self.program.equation, sizes, sizes)
        last = sizes[:, -1]
        fraction = np.divide(
            added, last, out=np.zeros_like(added), where=(last > 0) | np.isnan(added)
        )
        fraction = np.where(self._is_too_steep(fraction), np.nan, self.known.factor * fraction)
        levels = fraction[:, None] * np.abs(self.gradient_increments.mean[:, -1])
        last_digits = last_digit(self.points.x.dtype, self.surrogate_slope, self.gradient.mean)
        rounding = self._rounding[1] + last_digits
        return levels + self.noise.gradient_bias() + self.known.gradient_steps + rounding

    def _is_too_steep(self, levels: Floats) -> NDArray[np.bool_]:
        """Return where F is too steep for a positive level bias to be trusted."""
        estimator = self.program.estimator
        stated = levels > 0
        if stated.any() and isinstance(estimator, AbstractTunable):
            steep = steepness_at(
                self.executor,
                self.program.equation,
                self.points.t,
                self.points.x,
                *self._linearisation_point(),
            )
            stated &= estimator.exceeds_max_steepness(*steep)
        return stated

    def _linearisation_point(self) -> tuple[Floats, Floats]:
        """Return value and gradient at which the steepness of F is evaluated."""
        program = self.program
        if program.start_model is not None:
            # The solution of the equation is the defect. At the start it is zero.
            return np.zeros(len(self.points)), np.zeros_like(self.surrogate_slope)
        if program.gradient:
            slope = self.surrogate_slope + self.gradient.mean
        elif not program.equation.uses_z:
            slope = np.zeros_like(self.surrogate_slope)
        else:
            if self._terminal_slope is None:
                self._terminal_slope = terminal_slope(self.executor, program.equation, self.points)
            slope = self._terminal_slope
        return self.surrogate_value + self.value.mean, slope

    def evaluations(self) -> Evaluations:
        """Return the cost of all replicates so far."""
        program = self.program
        cost = lambda replicates: total_evaluations(
            program.estimator, program.equation, self.tuning, replicates
        )
        # The variants of a replicate compute its last increment only.
        variants = cost(2 * self.noise.count)[-1:]
        return sum([*cost(self.count), *variants], Evaluations())


def _missing(
    have: NDArray[np.int64], targets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (point, replicate) of the replicates between what each point has and its target."""
    missing = np.maximum(targets - have, 0)
    point = np.repeat(np.arange(len(have)), missing)
    first = np.repeat(np.cumsum(missing) - missing, missing)
    return point, have[point] + np.arange(len(point)) - first
