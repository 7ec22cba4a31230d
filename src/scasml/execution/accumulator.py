"""What the replicates run so far say, at the points that one settled estimator serves."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from .._planning.task import Share
from ..estimators import Evaluations
from ..estimators.base import FIRST_HALF, MINUS_NOISE, NOISE, ORDINARY, SECOND_HALF
from . import Kernel, surrogate_at
from .moments import Extremes, Floats, Groups, Moments
from .rounding import last_digit, rounding_error
from .steepness import steepness_at

# Of so many replicates one is run again twice: the even ones with either half of the samples inside F, the odd ones with noise alone there.
AGAIN_SHARE, LEAST_AGAIN, MOST_AGAIN = 16, 2, 16
PAIRS = ((FIRST_HALF, SECOND_HALF), (NOISE, MINUS_NOISE))


class Tally:
    def __init__(self, share: Share, kernel: Kernel):
        self.share, self.kernel = share, kernel
        points, dim, levels = *kernel.x.shape, len(share.estimator.names)
        width = dim if kernel.gradient else 0
        self.surrogate_value, self.surrogate_slope = np.zeros(points), np.zeros((points, dim))
        self.value = Moments((points,), order=4)
        self.increments = Moments((points, levels), order=4)
        self.gradient = Moments((points, width))
        self.gradient_increments = Moments((points, levels, width), order=1)
        self.sizes = Moments((points, levels), order=1)
        self.telescoping = Moments((points, max(levels - 3, 0)))
        self.extremes = Extremes(points)
        # By version, the last increment of the first replicates.
        versions = 1 + MINUS_NOISE if share.estimator.jackknifes(kernel.equation) else 0
        self._last = np.full((versions, points, MOST_AGAIN), np.nan)
        self._last_slope = np.full((versions, points, MOST_AGAIN, width), np.nan)
        self._again = np.zeros(points, np.int64)
        self._known: dict[str, Floats] | None = None  # the biases, until more rows come
        self._rounding: tuple[Floats, Floats] = (np.zeros(points), np.zeros((points, dim)))
        if kernel.control is not None:
            self._rounding = rounding_error(surrogate_at, kernel.control, kernel.t, kernel.x)

    @property
    def count(self) -> NDArray[np.int64]:
        return self.value.count.astype(np.int64)

    def run(self, targets: NDArray[np.int64]) -> Iterator[int]:
        """Brings every point to its target, all of them abreast; yields the number of rows done, as they come."""
        point, replicate, version = self._work(targets)
        for part, rows in self.kernel.run(point, replicate, version):
            rows = jax.tree.map(lambda a: a.astype(np.float64), rows)
            with np.errstate(
                invalid="ignore", over="ignore"
            ):  # a NaN is an outcome here, reported in the status
                self._add(point[part], replicate[part], version[part], rows)
            yield part.stop - part.start

    def _work(self, targets: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """(point, replicate, version): the next of every point and the versions of it, then the one after."""
        point, replicate = _missing(self.count, targets)
        version = np.full(len(point), ORDINARY)
        if len(self._last):
            goal = np.minimum(np.clip(targets // AGAIN_SHARE, LEAST_AGAIN, MOST_AGAIN), targets)
            again = _missing(self._again, np.maximum(self._again, goal))
            pairs = np.array(PAIRS)[again[1] % len(PAIRS)]
            point, replicate = (
                np.concatenate([a, b, b]) for a, b in zip((point, replicate), again, strict=True)
            )
            version = np.concatenate([version, *pairs.T])
        turn = np.maximum(replicate - self.count[point], 0)
        order = np.lexsort((point, version, turn))
        return point[order], replicate[order], version[order]

    def _add(
        self, point: NDArray[Any], replicate: NDArray[Any], version: NDArray[Any], rows: Any
    ) -> None:
        self._known = None
        if len(self._last):
            early = replicate < MOST_AGAIN
            at = version[early], point[early], replicate[early]
            self._last[at] = rows.increments[early, -1]
            if self.kernel.gradient:
                self._last_slope[at] = rows.gradient_increments[early, -1]
            second = (version == SECOND_HALF) | (version == MINUS_NOISE)
            self._again[point[second]] = replicate[second] + 1
        ordinary = version == ORDINARY
        if not ordinary.any():
            return
        point, rows = point[ordinary], jax.tree.map(lambda a: a[ordinary], rows)
        groups = Groups(point)
        if rows.surrogate is not None:
            self.surrogate_value[point], self.surrogate_slope[point] = rows.surrogate
        self.value.add(groups, rows.value)
        self.extremes.add(groups, rows.value)
        for name in ("increments", "sizes", "telescoping"):
            getattr(self, name).add(groups, getattr(rows, name))
        if self.kernel.gradient:
            self.gradient.add(groups, rows.gradient)
            self.gradient_increments.add(groups, rows.gradient_increments)

    def estimate(self) -> Floats:
        """The raw corrected value."""
        return self.surrogate_value + self.value.mean

    def biases(self) -> dict[str, Floats]:
        """Of the levels not taken, of noise inside F, of the steps, and of rounding what all replicates share."""
        if self._known is None:
            self._known = self._biases()
        return self._known

    def _biases(self) -> dict[str, Floats]:
        levels = self.share.estimator.bias(
            self.kernel.equation, self.increments.mean, self.sizes.mean
        )
        levels = self.share.control.doubt * levels
        levels = np.where(self._is_lost(levels), np.nan, levels)
        levels = levels + self.share.left_out
        return {
            "levels": levels,
            "noise": _noise_inside(self._last) + 0 * levels,
            "steps": self.share.bias,
            "rounding": self._rounding[0]
            + last_digit(self.kernel.x.dtype, self.surrogate_value, self.value.mean),
        }

    def bias(self) -> Floats:
        return sum(self.biases().values(), np.zeros(len(self.count)))

    def gradient_bias(self) -> Floats:
        method, equation = self.share.estimator, self.kernel.equation
        sizes = np.broadcast_to(
            self.sizes.mean[:, None], (*self.gradient.mean.shape, len(self.share.estimator.names))
        )
        levels = method.bias(equation, np.moveaxis(self.gradient_increments.mean, 1, -1), sizes)
        levels = self.share.control.doubt * levels
        levels = np.where(self._is_lost(levels[:, 0])[:, None], np.nan, levels)
        rounded = self._rounding[1] + last_digit(
            self.kernel.x.dtype, self.surrogate_slope, self.gradient.mean
        )
        return levels + _noise_inside(self._last_slope) + self.share.gradient_bias + rounded

    def _is_lost(self, levels: Floats) -> NDArray[np.bool_]:
        """Where the increments do not tell of those to come; not asked where there are none, or nothing is told anyway."""
        told = levels > 0
        if told.any():
            # At what was started from, where there is anything: the estimate may be all noise.
            u, slope = np.zeros(len(self.count)), np.zeros_like(self.surrogate_slope)
            if self.kernel.control is None and self.kernel.surrogate is None:
                u, slope = self.value.mean, self.gradient.mean if self.kernel.gradient else slope
            steep = steepness_at(self.kernel.equation, self.kernel.t, self.kernel.x, u, slope)
            told &= self.share.estimator.is_lost(*steep)
        return told

    def spent(self) -> Evaluations:
        """By all replicates."""
        method, equation = self.share.estimator, self.kernel.equation
        again = method.spent(equation, 2 * self._again)[-1:]
        return sum([*method.spent(equation, self.count), *again], Evaluations())


def _missing(
    have: NDArray[np.int64], targets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(point, replicate) from what each has to its target."""
    missing = np.maximum(targets - have, 0)
    point = np.repeat(np.arange(len(have)), missing)
    return point, have[point] + np.arange(len(point)) - np.repeat(
        np.cumsum(missing) - missing, missing
    )


def _noise_inside(last: Floats) -> Any:
    """The size of the bias of F at a noisy U: the larger of two estimates, equal in the mean where F is quadratic.

    By jackknife, the mean of F over halves of the samples less that over all: doubling the noise doubles the bias. And F of
    the noise alone less F at the surrogate: that holds too where the noise is so large that F no longer grows with it.
    """
    if not len(last):
        return 0.0
    jackknife = (last[FIRST_HALF] + last[SECOND_HALF]) / 2 - last[ORDINARY]
    alone = (last[NOISE] + last[MINUS_NOISE]) / 2
    return np.maximum(np.abs(_mean(jackknife)), np.abs(_mean(alone)))


def _mean(values: Floats) -> Floats:
    """Over replicates, of those that there are."""
    seen = np.isfinite(values)
    return np.sum(np.where(seen, values, 0), 1) / np.maximum(seen.sum(1), 1)
