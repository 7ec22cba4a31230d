"""The bias that noise inside F causes, measured by variants of the first replicates.

An estimator that evaluates F at a sample mean is biased, because E F(mean) differs from F(E mean).
`NoiseBias` takes the last increments of the variants, and returns the bias at each point.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..estimators import Variant

# One in 16 replicates of a point runs a pair of variants, but at least 2 and at most 16 replicates.
# These are the first ones.
REPLICATES_PER_PAIR, MIN_PAIRS, MAX_PAIRS = 16, 2, 16


class NoiseBias:
    """The last increments of the variants of the first `MAX_PAIRS` replicates of every point.

    With a and b the means over the even and over the odd samples, there are two estimates of the
    bias. The one with the larger absolute value is reported:

    - the jackknife (F(a) + F(b))/2 - F((a + b)/2). A mean over half the samples has twice the
      variance, and so twice the bias.
    - (F(e) + F(-e))/2 - F(0) with e = (a - b)/2, the noise alone. It stays valid where the noise is
      so large that F hardly grows with it.

    Both have the same mean if F is quadratic.

    `pairs` is what `AbstractTunable.bias_variants` returns. Replicate r runs the pair number
    r % len(pairs). The first pair makes the jackknife, with the main variant. The second pair makes
    the estimate from the noise alone. Without pairs all biases are 0.
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
        # Rows arrive in the dtype of the simulation, so storage in that dtype loses no digits. Once
        # a pair is complete, only sums of its gradients are used.
        shape = (points, MAX_PAIRS // 2, dim) if self.gradient else (0, 0, 0)
        self._main, self._first = np.zeros(shape, dtype), np.zeros(shape, dtype)
        shape = (points, dim) if self.gradient else (0, 0)
        self._jackknife, self._alone = np.zeros(shape), np.zeros(shape)

    def due(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many replicates of each point should run their pair of variants, (points,).

        `targets` (points,) are the numbers of replicates that the points will have.
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
        """Add the last increments of rows: `value` (rows,) and the gradient `slope` (rows, d).

        `point`, `replicate` and `variant`, all (rows,), say where each row belongs.
        """
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
