"""The bias that noise inside F causes, measured by variants of the first replicates.

An estimator that evaluates F at a sample mean is biased, because E F(mean) differs from F(E mean).
Two estimates of the size of that bias are kept, and the larger one is reported:

- the jackknife: the mean of F over the two halves of the samples, minus F over all samples. Half
  the samples have twice the noise variance, and so twice the bias;
- F of the noise alone minus F(0). It stays valid if the noise is so large that F no longer grows
  with it.

Both have the same mean if F is quadratic.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import Variant

# One replicate in 16 runs a pair of variants, and between 2 and 16 replicates of a point.
REPLICATES_PER_PAIR, MIN_PAIRS, MAX_PAIRS = 16, 2, 16


class NoiseBias:
    """Last increments of the variants of the first `MAX_PAIRS` replicates of every point.

    `pairs` are the pairs of variants: replicate r runs the pair number r modulo their number. The
    first pair is compared with the main variant.
    """

    def __init__(
        self,
        pairs: tuple[tuple[Variant, Variant], ...],
        points: int,
        dim: int,
        gradient: bool,
        dtype: np.dtype[Any],
    ):
        self.pairs, self.gradient = pairs, gradient and bool(pairs)
        self.count = np.zeros(points, np.int64)  # replicates whose pair of variants is complete
        variants = len(Variant) if pairs else 0
        self._value = np.full((variants, points, MAX_PAIRS), np.nan)
        # Rows arrive in the dtype of the simulation, so storing them in it loses no digits. Only
        # sums of the gradients are kept once a pair is complete.
        shape = (points, MAX_PAIRS // 2, dim) if self.gradient else (0, 0, 0)
        self._main, self._first = np.zeros(shape, dtype), np.zeros(shape, dtype)
        shape = (points, dim) if self.gradient else (0, 0)
        self._jackknife, self._alone = np.zeros(shape), np.zeros(shape)

    def due(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many replicates of each point should run their pair of variants.

        `targets` (points,) are the replicates that the points will have.
        """
        if not self.pairs:
            return self.count
        goal = np.clip(targets // REPLICATES_PER_PAIR, MIN_PAIRS, MAX_PAIRS)
        return np.maximum(self.count, np.minimum(goal, targets))

    def variants(self, replicate: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pair of variants of each replicate, shape (replicates, 2)."""
        return np.array(self.pairs, np.int64)[replicate % len(self.pairs)]

    def add(
        self,
        point: NDArray[np.int64],
        replicate: NDArray[np.int64],
        variant: NDArray[np.int64],
        value: Floats,
        slope: Floats | None,
    ) -> None:
        """Add the last increments of rows: `value` (rows,) and `slope` (rows, d)."""
        if not self.pairs:
            return
        early = replicate < MAX_PAIRS
        self._value[variant[early], point[early], replicate[early]] = value[early]
        if self.gradient and slope is not None:
            self._add_slopes(point[early], replicate[early], variant[early], slope[early])
        second = np.isin(variant, [pair[1] for pair in self.pairs])
        self.count[point[second]] = replicate[second] + 1

    def _add_slopes(
        self,
        point: NDArray[np.int64],
        replicate: NDArray[np.int64],
        variant: NDArray[np.int64],
        slope: Floats,
    ) -> None:
        # The rows of one point arrive in the order of its replicates, so these sums do not depend
        # on how rows are split into parts.
        for row in range(len(point)):
            p, r, v = int(point[row]), int(replicate[row]), int(variant[row])
            if v == Variant.MAIN and r % 2 == 0:
                self._main[p, r // 2] = slope[row]
            elif v in (Variant.HALF_A, Variant.NOISE):
                self._first[p, r // 2] = slope[row]
            elif v == Variant.HALF_B:
                mean = (self._first[p, r // 2].astype(np.float64) + slope[row]) / 2
                self._jackknife[p] += mean - self._main[p, r // 2]
            elif v == Variant.MINUS_NOISE:
                self._alone[p] += (self._first[p, r // 2].astype(np.float64) + slope[row]) / 2

    def value_bias(self) -> Floats | float:
        """Return the bias of the value, shape (points,)."""
        if not self.pairs:
            return 0.0
        last = self._value
        halves = (last[Variant.HALF_A] + last[Variant.HALF_B]) / 2
        alone = (last[Variant.NOISE] + last[Variant.MINUS_NOISE]) / 2
        jackknife = halves - last[Variant.MAIN]
        return np.maximum(np.abs(_mean(jackknife)), np.abs(_mean(alone)))

    def gradient_bias(self) -> Floats | float:
        """Return the bias of the gradient, shape (points, d)."""
        if not self.gradient:
            return 0.0
        halves = np.maximum((self.count + 1) // 2, 1)[:, None]
        alone = np.maximum(self.count // 2, 1)[:, None]
        return np.maximum(np.abs(self._jackknife / halves), np.abs(self._alone / alone))


def _mean(values: Floats) -> Floats:
    """Return the mean over replicates (the last axis) of the values that are not NaN."""
    known = np.isfinite(values)
    return np.sum(np.where(known, values, 0), 1) / np.maximum(known.sum(1), 1)
