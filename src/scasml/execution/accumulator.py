"""The accumulator: running sums of the replicates of the points that one program serves.

`run` computes the replicates that bring every point to a target number, and adds them to the sums.
`estimate` returns value, count, standard error and bias of every point. `missing` and `add` are the
two halves of `run`.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import (
    AbstractLevelled,
    AbstractTunable,
    Evaluations,
    Tuning,
    Variant,
    total_evaluations,
)
from .executor import AbstractExecutor
from .moments import Extremes, Groups, Moments
from .noise_bias import NoiseBias
from .points import Points
from .program import Program, Replicates
from .rounding import last_digit, rounding_error
from .row_numbers import RowNumbers, rows_per_block, run_rows
from .steepness import steepness_at, terminal_slope
from .stopping import Estimate


class KnownBias(NamedTuple):
    """What is known of the bias before the run, mostly from pilots."""

    steps: Floats  # step bias of the value, (points,)
    gradient_steps: Floats  # step bias of the gradient, (points, d)
    omitted: Floats | float = 0.0  # bound on the increments that the tuning omits, (points,)


class Accumulator:
    """Sums over the replicates of some points, all computed by one program.

    Values and gradients in the sums are relative to the surrogate, as in `Replicates`.
    """

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
        # These two get their size from the first replicates. An estimator may leave them out.
        self.gradient_increments = Moments((count, 0, width), order=1)
        self.telescoping = Moments((count, 0))
        self.sizes = Moments((count, increments), order=1)
        self.extremes = Extremes(count)
        estimator, pairs = program.estimator, ()
        if isinstance(estimator, AbstractTunable):
            pairs = estimator.bias_variants(program.equation)
        self.noise = NoiseBias(pairs, count, dim, program.gradient, points.x.dtype)
        self.seconds, self.rows_run = 0.0, 0  # wall-clock time of these rows, without compilation
        self._terminal_slope: Floats | None = None
        self._biases: dict[str, Floats] | None = None  # valid until more rows are added
        self._rounding: tuple[Floats, Floats] = (np.zeros(count), np.zeros((count, dim)))
        if (start := program.start_model) is not None:
            self._rounding = rounding_error(executor, start, points.t, points.x)

    @property
    def count(self) -> NDArray[np.int64]:
        """The number of replicates of every point, without variants other than `MAIN`."""
        return self.value.count.astype(np.int64)

    @property
    def seconds_per_row(self) -> float:
        """Mean wall-clock time per row with all workers busy; 0 before any row is run."""
        return self.seconds / self.rows_run if self.rows_run else 0.0

    def run(self, targets: NDArray[np.int64]) -> Iterator[int]:
        """Bring every point to its target (points,) of replicates, and add the replicates.

        Yields the number of rows of each part once that part is added.
        """
        count, dim = self.points.x.shape
        # Rows are numbered block by block, so that memory does not grow with the replicates.
        block = max(rows_per_block(dim) // max(count, 1), 1)
        while len((wanted := self.missing(np.minimum(targets, self.count + block))).point):
            yield from self._run(wanted)

    def _run(self, wanted: RowNumbers) -> Iterator[int]:
        """Run rows and add their replicates; yield the number of rows of each part."""
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
        """Return the rows that bring every point to its target (points,) of replicates.

        The next replicate of every point comes first, then its variants, then the replicate after
        it, and so on.
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
        # The pair of one replicate is complete before that of the next replicate begins.
        order = np.lexsort((point, variant, replicate, turn))
        return RowNumbers(point[order], replicate[order], variant[order])

    def add(self, rows: RowNumbers, replicates: Replicates) -> None:
        """Add the replicates of these rows to the sums."""
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
        self.telescoping = self.telescoping.fitting(replicates.telescoping)
        self.telescoping.add(groups, replicates.telescoping)
        if self.program.gradient:
            self.gradient.add(groups, replicates.gradient)
            if slopes is not None:
                of_gradient = replicates.gradient_increments
                self.gradient_increments = self.gradient_increments.fitting(of_gradient)
                self.gradient_increments.add(groups, of_gradient)

    def estimate(self) -> Estimate:
        """Return the state of every point, without shrinkage."""
        with np.errstate(invalid="ignore"):
            value = self.surrogate_value + self.value.mean
            return Estimate(value, self.value.count, self.value.stderr, self.bias())

    def bias(self) -> Floats:
        """Return the bias of the value, (points,): the sum of its parts, NaN if one is unknown."""
        return sum(self.biases().values(), np.zeros(len(self.points)))

    def biases(self) -> dict[str, Floats]:
        """Return the parts of the bias of the value, (points,) each.

        "levels" is that of omitted levels and increments, "noise" that of noise inside F, "steps"
        that of the steps of paths, and "rounding" the rounding error.
        """
        if self._biases is None:
            self._biases = self._compute_biases()
        return self._biases

    def _compute_biases(self) -> dict[str, Floats]:
        program, known = self.program, self.known
        levels = program.estimator.level_bias(
            program.equation, self.increments.mean, self.sizes.mean
        )
        levels = np.where(self._is_too_steep(levels), np.nan, levels) + known.omitted
        last_digits = last_digit(self.points.x.dtype, self.surrogate_value, self.value.mean)
        return {
            "levels": levels,
            # Adding 0 * levels makes the noise bias NaN where the level bias is unknown.
            "noise": self.noise.value_bias() + 0 * levels,
            "steps": known.steps,
            "rounding": self._rounding[0] + last_digits,
        }

    def gradient_bias(self) -> Floats:
        """Return the bias of the gradient, shape (points, d); NaN where it is unknown."""
        last_digits = last_digit(self.points.x.dtype, self.surrogate_slope, self.gradient.mean)
        rounding = self._rounding[1] + last_digits
        estimator, sizes = self.program.estimator, self.sizes.mean
        if isinstance(estimator, AbstractLevelled):
            unknown = estimator.level_bias(self.program.equation, sizes, sizes)
            # The bound on omitted levels is that of the value. Its fraction of the increments of
            # the base does not depend on the units of x.
            base = np.maximum(np.sum(sizes[:, :2], 1), np.finfo(np.float32).tiny)
            unknown = np.where(self._is_too_steep(unknown), np.nan, unknown)
            omitted = (unknown + self.known.omitted / base)[:, None] * np.abs(self.gradient.mean)
            return omitted + self.known.gradient_steps + rounding
        # The omitted levels add this fraction of the last increment. The fraction is computed from
        # values and not from gradients, so it does not depend on the units of x.
        added = estimator.level_bias(self.program.equation, sizes, sizes)
        last = sizes[:, -1]
        fraction = np.divide(
            added, last, out=np.zeros_like(added), where=(last > 0) | np.isnan(added)
        )
        fraction = np.where(self._is_too_steep(fraction), np.nan, fraction)
        of_last = self.gradient_increments.mean
        last_slope = of_last[:, -1] if of_last.shape[1] else self.gradient.mean
        levels = fraction[:, None] * np.abs(last_slope)
        return levels + self.noise.gradient_bias() + self.known.gradient_steps + rounding

    def _is_too_steep(self, levels: Floats) -> NDArray[np.bool_]:
        """Return where F is too steep for a level bias to be trusted.

        Zero is trusted unless the estimator is an `AbstractLevelled`: then it means that levels
        correct the bias, and a steep F spoils their samples too.
        """
        estimator, equation = self.program.estimator, self.program.equation
        is_levelled = isinstance(estimator, AbstractLevelled)
        stated, never = (levels > 0) | is_levelled, np.zeros(len(levels), bool)
        if not (stated.any() and isinstance(estimator, AbstractTunable)):
            return never
        if not estimator.may_exceed_max_steepness(equation):
            return never
        t, x = self.points.t, self.points.x
        steep = steepness_at(self.executor, equation, t, x, *self._linearisation_point())
        return stated & estimator.exceeds_max_steepness(*steep)

    def _linearisation_point(self) -> tuple[Floats, Floats]:
        """Return the value (points,) and the gradient (points, d) at which F is differentiated."""
        program = self.program
        if program.start_model is not None:
            # The solution of the equation is the defect of the start. Zero stands for the start.
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
        """Return the cost of all replicates so far, with their variants."""
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
    """Return the missing replicates as a pair (point, replicate) of arrays (missing,).

    `have` and `targets` (points,) are the present and the wanted numbers of replicates.
    """
    missing = np.maximum(targets - have, 0)
    point = np.repeat(np.arange(len(have)), missing)
    first = np.repeat(np.cumsum(missing) - missing, missing)
    return point, have[point] + np.arange(len(point)) - first
