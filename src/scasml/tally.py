"""What the replicates run so far say, at the points that one settled estimator serves."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from .engine import Kernel
from .estimators import Evaluations
from .estimators.base import FIRST_HALF, ORDINARY, SECOND_HALF
from .plan import Share
from .statistics import Extremes, Floats, Groups, Moments

# Of so many replicates one is run again with either half of its inner samples.
HALVED_SHARE, LEAST_HALVED, MOST_HALVED = 16, 1, 16


class Tally:
    def __init__(self, share: Share, kernel: Kernel):
        self.share, self.kernel = share, kernel
        points, dim, levels = *kernel.x.shape, share.estimator.increments
        width = dim if kernel.gradient else 0
        self.surrogate_value, self.surrogate_slope = np.zeros(points), np.zeros((points, dim))
        self.value = Moments((points,), order=4)
        self.increments = Moments((points, levels), order=4)
        self.gradient = Moments((points, width))
        self.gradient_increments = Moments((points, levels, width), order=1)
        self.sizes = Moments((points, levels), order=1)
        self.telescoping = Moments((points, max(levels - 3, 0)))
        self.extremes = Extremes(points)
        # The last increment of the first replicates, and of their versions with half the samples inside F.
        versions = 3 if share.estimator.jackknifes(kernel.law) else 0
        self._last = np.full((versions, points, MOST_HALVED), np.nan)
        self._last_slope = np.full((versions, points, MOST_HALVED, width), np.nan)
        self._halved = np.zeros(points, np.int64)

    @property
    def count(self) -> NDArray[np.int64]:
        return self.value.count.astype(np.int64)

    def run(self, targets: NDArray[np.int64]) -> Iterator[int]:
        """Brings every point to its target, all of them abreast; yields the number of rows done, as they come."""
        point, replicate, version = self._work(targets)
        for part, rows in self.kernel.run(point, replicate, version):
            rows = jax.tree.map(lambda a: a.astype(np.float64), rows)
            with np.errstate(invalid="ignore", over="ignore"):  # a NaN is an outcome here, reported in the status
                self._add(point[part], replicate[part], version[part], rows)
            yield part.stop - part.start

    def _work(self, targets: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """(point, replicate, version): the next of every point and the halves of it, then the one after."""
        lists = [(*_missing(self.count, targets), ORDINARY)]
        if len(self._last):
            halves = np.minimum(np.clip(targets // HALVED_SHARE, LEAST_HALVED, MOST_HALVED), targets)
            again = _missing(self._halved, np.maximum(self._halved, halves))
            lists += [(*again, FIRST_HALF), (*again, SECOND_HALF)]
        point, replicate = (np.concatenate([each[i] for each in lists]) for i in (0, 1))
        version = np.concatenate([np.full(len(each[0]), each[2]) for each in lists])
        turn = np.maximum(replicate - self.count[point], 0)
        order = np.lexsort((point, version, turn))
        return point[order], replicate[order], version[order]

    def _add(self, point: NDArray[Any], replicate: NDArray[Any], version: NDArray[Any], rows: Any) -> None:
        if len(self._last):
            early = replicate < MOST_HALVED
            which = np.searchsorted([ORDINARY, FIRST_HALF, SECOND_HALF], version[early])
            self._last[which, point[early], replicate[early]] = rows.increments[early, -1]
            if self.kernel.gradient:
                self._last_slope[which, point[early], replicate[early]] = rows.gradient_increments[early, -1]
            second = version == SECOND_HALF
            self._halved[point[second]] = replicate[second] + 1
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
        """Of the levels not taken, of noise inside F, and of the steps."""
        levels = self.share.estimator.bias(self.kernel.law, self.increments.mean, self.sizes.mean)
        return {"levels": levels, "noise": _jackknife(self._last) + 0 * levels, "steps": self.share.bias}

    def bias(self) -> Floats:
        return sum(self.biases().values(), np.zeros(len(self.count)))

    def gradient_bias(self) -> Floats:
        method, law = self.share.estimator, self.kernel.law
        sizes = np.broadcast_to(self.sizes.mean[:, None], (*self.gradient.mean.shape, self.share.estimator.increments))
        levels = method.bias(law, np.moveaxis(self.gradient_increments.mean, 1, -1), sizes)
        return levels + _jackknife(self._last_slope) + self.share.gradient_bias

    def spent(self) -> Evaluations:
        """Of all replicates, the pilot's included."""
        method, law = self.share.estimator, self.kernel.law
        ordinary = int(self.count.sum()) + 2 * self.share.pilots * len(self.count)
        return method.cost(law).times(ordinary) + method.costs(law)[-1].times(2 * int(self._halved.sum()))


def _missing(have: NDArray[np.int64], targets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(point, replicate) from what each has to its target."""
    missing = np.maximum(targets - have, 0)
    point = np.repeat(np.arange(len(have)), missing)
    return point, have[point] + np.arange(len(point)) - np.repeat(np.cumsum(missing) - missing, missing)


def _jackknife(last: Floats) -> Any:
    """The mean of F over halves of the samples less that over all: doubling the noise doubles this bias, so it is its size."""
    if not len(last):
        return 0.0
    difference = (last[1] + last[2]) / 2 - last[0]
    seen = np.isfinite(difference)
    return np.abs(np.sum(np.where(seen, difference, 0), 1) / np.maximum(seen.sum(1), 1))
