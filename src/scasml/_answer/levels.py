"""Statistics of a run that `diagnose` reads: moments of increments, tails of replicates.

`Levels.of` and `Tails.of` compute them from accumulators.
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
# A tail is heavy only if the kurtosis of n replicates exceeds 3, that of a Gaussian, by this number
# of standard errors sqrt(24/n). Gaussian replicates do so less than once in a thousand times.
KURTOSIS_ERRORS = 6.0
# The largest slope k without a variance. A tail is heavy only if Hill's estimate of k from n
# replicates is below this slope plus its possible error, max(SLOPE_ERROR / sqrt(n),
# MIN_SLOPE_ERROR).
SLOPE_WITHOUT_VARIANCE, SLOPE_ERROR, MIN_SLOPE_ERROR = 3.0, 8.0, 0.25
# Fraction of the replicates that count as the tail, and the least number of them.
TAIL_FRACTION, SMALLEST_TAIL = 1 / 20, 3


@dataclass(frozen=True, eq=False)
class Levels:
    """Statistics of the increments at the points of one accumulator.

    These are the usual statistics of multilevel Monte Carlo: mean, variance, kurtosis and cost of
    every increment, and whether levels telescope.
    """

    points: NDArray[np.int64]  # their indices in the arrays of the user
    names: tuple[str, ...]  # of the increments
    mean: Floats  # over replicates, (points, increments)
    variance: Floats  # of one replicate, (points, increments)
    kurtosis: Floats  # of one replicate, (points, increments)
    evaluations: tuple[Evaluations, ...]  # of each increment, over all replicates of all points
    replicates: int  # of all points together
    # Differences of levels in standard errors, (points, pairs). `Linearised` has no pairs.
    telescoping: Floats
    bias: dict[str, Floats]  # its parts "levels", "noise", "steps" and "rounding", each (points,)
    seconds_per_replicate: float  # wall-clock time with all workers busy

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
    """Tails of the distribution of the replicates at every point; all arrays are (points,).

    The checks are those of the transport code MCNP: the variance of the variance, and the exponent
    k of the tail of a density ~ x^-k. The variance exists only if k > 3.
    """

    kurtosis: Floats
    variance_of_variance: Floats  # squared relative error of the variance
    slope: Floats  # k in density ~ x^-k of the heavier tail; NaN from too few replicates
    is_heavy: NDArray[np.bool_]  # whether the variance probably does not exist

    @classmethod
    def of(cls, points: int, accumulators: Iterable[Accumulator]) -> "Tails":
        """Return the tails at the `points` points of a call; NaN where there are no replicates."""
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
    """Return Hill's estimate of k in density ~ x^-k, shape (points,).

    It is NaN for fewer than `REPLICATES_FOR_TAILS` replicates.

    **Arguments:**

    - `largest`: the largest deviations from the mean, in descending order, (points, kept).
    - `count`: replicates of each point, (points,).
    """
    kept = largest.shape[1]
    used = np.clip(count // (1 / TAIL_FRACTION), SMALLEST_TAIL, kept - 1).astype(int)
    log = np.log(np.maximum(largest, 1e-300))
    threshold = np.take_along_axis(log, used[:, None], 1)
    excess = np.where(np.arange(kept) < used[:, None], log - threshold, 0).sum(1)
    known = (count >= REPLICATES_FOR_TAILS) & (excess > 0)
    return np.where(known, 1 + used / np.maximum(excess, 1e-300), np.nan)
