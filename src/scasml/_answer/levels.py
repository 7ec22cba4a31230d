"""Statistics of a run that `diagnose` reads: moments of increments, tails of replicates.

The statistics are those of multilevel Monte Carlo (mean, variance, kurtosis and cost of every
level, and whether levels telescope) and of the code MCNP (the variance of the variance, and the
slope of the tail of the density, which must be steeper than -3 for a variance to exist).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import Evaluations, total_evaluations
from ..execution.accumulator import Accumulator

# Replicates below which the slope of a tail is unknown.
REPLICATES_FOR_TAILS = 256
# A Gaussian's kurtosis exceeds 3 by more than this many standard errors, sqrt(24/n), less than once
# in a thousand times.
KURTOSIS_ERRORS = 6.0
# A density with this slope has just no variance. Hill's estimate of the slope from n replicates is
# above it by SLOPE_ERROR / sqrt(n), and by at least MIN_SLOPE_ERROR.
SLOPE_WITHOUT_VARIANCE, SLOPE_ERROR, MIN_SLOPE_ERROR = 3.0, 8.0, 0.25
# Fraction of the replicates that count as the tail, and the fewest replicates that do.
TAIL_FRACTION, SMALLEST_TAIL = 1 / 20, 3


@dataclass(frozen=True, eq=False)
class Levels:
    """Statistics of the increments at the points of one accumulator."""

    points: NDArray[np.int64]  # the user's numbers
    names: tuple[str, ...]  # of the increments
    mean: Floats  # (points, increments)
    variance: Floats
    kurtosis: Floats
    evaluations: tuple[Evaluations, ...]  # of each increment, over all replicates
    replicates: int
    telescoping: Floats  # differences in standard errors
    bias: dict[str, Floats]  # its parts: levels, noise, steps, rounding
    seconds_per_replicate: float

    @classmethod
    def of(cls, accumulator: Accumulator) -> "Levels":
        """Return the statistics of an accumulator."""
        program = accumulator.program
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            telescoping = accumulator.telescoping.mean / accumulator.telescoping.stderr
            evaluations = total_evaluations(
                program.estimator, program.equation, accumulator.tuning, accumulator.count
            )
            return cls(
                points=accumulator.points.index,
                names=program.estimator.increments,
                mean=accumulator.increments.mean,
                variance=accumulator.increments.variance,
                kurtosis=accumulator.increments.kurtosis,
                evaluations=tuple(evaluations),
                replicates=int(np.sum(accumulator.count)),
                telescoping=telescoping,
                bias=accumulator.biases(),
                seconds_per_replicate=accumulator.seconds_per_row,
            )


@dataclass(frozen=True, eq=False)
class Tails:
    """Tails of the replicates at every point."""

    kurtosis: Floats
    variance_of_variance: Floats
    slope: Floats  # k in density ~ x^-k of the heavier tail; NaN from too few replicates
    is_heavy: NDArray[np.bool_]

    @classmethod
    def of(cls, points: int, accumulators: Iterable[Accumulator]) -> "Tails":
        """Return the tails of `points` points; NaN where there are no replicates."""
        kurtosis, spread, slope = (np.full(points, np.nan) for _ in range(3))
        count = np.zeros(points)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            for each in accumulators:
                at, value, extremes = each.points.index, each.value, each.extremes
                kurtosis[at], spread[at] = value.kurtosis, value.variance_of_variance
                count[at], mean = value.count, value.mean[:, None]
                above = tail_slope(extremes.high[:, ::-1] - mean, count[at])
                below = tail_slope(mean - extremes.low, count[at])
                slope[at] = np.fmin(above, below)
            peaked = kurtosis > 3 + KURTOSIS_ERRORS * np.sqrt(24 / count)
            margin = np.maximum(SLOPE_ERROR / np.sqrt(count), MIN_SLOPE_ERROR)
            return cls(kurtosis, spread, slope, peaked & (slope < SLOPE_WITHOUT_VARIANCE + margin))


def tail_slope(largest: Floats, count: Floats) -> Floats:
    """Return Hill's estimate of k in density ~ x^-k.

    `largest` holds the largest deviations of each point in descending order, of `count` replicates.
    """
    kept = largest.shape[1]
    used = np.clip(count // (1 / TAIL_FRACTION), SMALLEST_TAIL, kept - 1).astype(int)
    log = np.log(np.maximum(largest, 1e-300))
    threshold = np.take_along_axis(log, used[:, None], 1)
    excess = np.where(np.arange(kept) < used[:, None], log - threshold, 0).sum(1)
    known = (count >= REPLICATES_FOR_TAILS) & (excess > 0)
    return np.where(known, 1 + used / np.maximum(excess, 1e-300), np.nan)
