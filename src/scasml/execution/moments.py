"""Moments of replicates, accumulated row by row.

Rows are added to a sum one after the other, in the order of their replicates. Pairwise merging
would round differently for every way of splitting the work; sequential sums do not.
"""

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats


class Groups:
    """The rows of one part of the work, grouped by the point that they belong to."""

    def __init__(self, point: NDArray[np.int64]):
        """`point` (rows,) is the index of the point of each row; a point may have several rows."""
        self.point = point
        self._order = np.argsort(point, kind="stable")
        ordered = point[self._order]
        self._starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self._lengths = np.diff(np.append(self._starts, len(point)))
        self.points = ordered[self._starts]  # each point once
        self.first = self._order[self._starts]  # the first row of each of these points

    def turns(self) -> list[NDArray[np.int64]]:
        """Return the first row of every point, then the second row of every point, and so on."""
        turn = np.arange(len(self.point)) - np.repeat(self._starts, self._lengths)
        return [self._order[turn == k] for k in range(int(self._lengths.max(initial=0)))]

    def add(self, total: Floats, rows: Floats) -> None:
        """Do total[point] += row for each of `rows`, one after the other.

        `rows` has the shape (rows, ...), and `total` has the shape (points, ...).
        """
        if len(self.points) < self._lengths.max(initial=0):
            for point, start, length in zip(self.points, self._starts, self._lengths, strict=True):
                own = rows[self._order[start : start + length]]
                total[point] = np.add.accumulate(np.concatenate([total[point][None], own]))[-1]
        else:
            for turn in self.turns():
                total[self.point[turn]] += rows[turn]


class Moments:
    """Counts, and sums of the powers 1 to `order` of deviations from the first replicate.

    `shape` is (points, ...), the shape of each sum and of each property. `count` has the shape
    (points,).
    """

    def __init__(self, shape: tuple[int, ...], order: int = 2):
        self.count = np.zeros(shape[0])
        self._origin = np.zeros(shape)
        self._sums = [np.zeros(shape) for _ in range(order)]

    def fitting(self, rows: Floats) -> "Moments":
        """Return these moments, or new ones if nothing was added yet and `rows` differ in shape."""
        shape = (len(self.count), *rows.shape[1:])
        is_fit = shape == self._origin.shape or self.count.any()
        return self if is_fit else Moments(shape, len(self._sums))

    def add(self, groups: Groups, rows: Floats) -> None:
        """Add `rows` of shape (rows, ...), whose points are those of `groups`."""
        new = self.count[groups.points] == 0
        self._origin[groups.points[new]] = rows[groups.first[new]]
        deviations = rows - self._origin[groups.point]
        power = np.ones_like(deviations)
        for total in self._sums:
            power = power * deviations
            groups.add(total, power)
        groups.add(self.count, np.ones(len(rows)))

    @property
    def _number(self) -> Floats:
        """The count as a divisor of the sums: of shape (points, 1, ...), and at least 1."""
        return np.maximum(self.count, 1).reshape(-1, *(1,) * (self._origin.ndim - 1))

    @property
    def mean(self) -> Floats:
        return self._origin + self._sums[0] / self._number

    def _central(self, k: int) -> Floats:
        """Return the mean of (value - mean)^k for k = 2 or 4."""
        raw = [1.0, *(s / self._number for s in self._sums)]
        m = raw[1]
        if k == 2:
            return np.maximum(raw[2] - m**2, 0)
        return np.maximum(raw[4] - 4 * m * raw[3] + 6 * m**2 * raw[2] - 3 * m**4, 0)

    @property
    def variance(self) -> Floats:
        """The variance of one replicate; NaN until there are two."""
        n = self._number
        return np.where(n > 1, self._central(2) * n / np.maximum(n - 1, 1), np.nan)

    @property
    def stderr(self) -> Floats:
        """The standard error of the mean; NaN until there are two replicates."""
        return np.sqrt(self.variance / self._number)

    @property
    def kurtosis(self) -> Floats:
        """The kurtosis: 3 for a Gaussian, at least 1; NaN where all values are equal."""
        spread = self._central(2)
        return np.divide(
            self._central(4), spread**2, out=np.full_like(spread, np.nan), where=spread > 0
        )

    @property
    def variance_of_variance(self) -> Floats:
        """The squared relative standard error of the variance; 2/n for n Gaussian replicates.

        Where it exceeds 0.1, the standard error of the mean is unreliable.
        """
        return (self.kurtosis - 1) / self._number


class Extremes:
    """The `kept` smallest and the `kept` largest values of every point.

    `low` and `high`, both (points, kept), are sorted. They begin as infinities.
    """

    kept = 32

    def __init__(self, points: int):
        self.low = np.full((points, self.kept), np.inf)
        self.high = np.full((points, self.kept), -np.inf)

    def add(self, groups: Groups, values: Floats) -> None:
        """Add values of shape (rows,), whose points are those of `groups`."""
        kept = self.kept
        for turn in groups.turns():
            point, value = groups.point[turn], values[turn]
            changes = (value < self.low[point, -1]) | (value > self.high[point, 0])
            point, value = point[changes], value[changes][:, None]
            self.low[point] = np.sort(np.concatenate([self.low[point], value], 1), 1)[:, :kept]
            self.high[point] = np.sort(np.concatenate([self.high[point], value], 1), 1)[:, -kept:]
