"""Moments of replicates, and the intervals that follow from them. Arrays only.

Rows are added to a sum one after the other, in the order of their replicates. Pairwise merging would
round differently for every way of cutting the work into pieces; this does not.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Of the interval that decides: when a point is done, and whether a correction is more than noise.
LEVEL = 0.95
NEWTON = 8


class Groups:
    """The rows of one piece of work by the point they belong to; a point may have several."""

    def __init__(self, point: NDArray[np.int64]):
        self.point = point
        self._order = np.argsort(point, kind="stable")
        ordered = point[self._order]
        self._starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self._lengths = np.diff(np.append(self._starts, len(point)))
        self.points = ordered[self._starts]
        self.first = self._order[self._starts]  # the first row of each of these points

    def turns(self) -> list[NDArray[np.int64]]:
        """The first row of every point, the second of every point that has one, and so on."""
        turn = np.arange(len(self.point)) - np.repeat(self._starts, self._lengths)
        return [self._order[turn == k] for k in range(int(self._lengths.max(initial=0)))]

    def add(self, total: Floats, rows: Floats) -> None:
        """total[point] += row, one row after the other."""
        if len(self.points) < self._lengths.max(initial=0):
            for point, start, length in zip(self.points, self._starts, self._lengths, strict=True):
                mine = rows[self._order[start : start + length]]
                total[point] = np.add.accumulate(np.concatenate([total[point][None], mine]))[-1]
        else:
            for turn in self.turns():
                total[self.point[turn]] += rows[turn]


class Moments:
    """Count and power sums up to `order` of the deviations from each element's first value, for (points, ...) elements."""

    def __init__(self, shape: tuple[int, ...], order: int = 2):
        self.count = np.zeros(shape[0])
        self._origin = np.zeros(shape)
        self._sums = [np.zeros(shape) for _ in range(order)]

    def add(self, groups: Groups, rows: Floats) -> None:
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
        """The count, with the axes of the elements; at least 1, to divide by."""
        return np.maximum(self.count, 1).reshape(-1, *(1,) * (self._origin.ndim - 1))

    @property
    def mean(self) -> Floats:
        return self._origin + self._sums[0] / self._number

    def _central(self, k: int) -> Floats:
        """The mean of (value - mean)^k."""
        raw = [1.0, *(s / self._number for s in self._sums)]
        m = raw[1]
        if k == 2:
            return np.maximum(raw[2] - m**2, 0)
        return np.maximum(raw[4] - 4 * m * raw[3] + 6 * m**2 * raw[2] - 3 * m**4, 0)

    @property
    def variance(self) -> Floats:
        """Of one replicate; NaN until there are two."""
        n = self._number
        # A NaN that the user's functions returned stays one.
        return np.where(n > 1, self._central(2) * n / np.maximum(n - 1, 1), np.nan)

    @property
    def stderr(self) -> Floats:
        """The standard error of the mean; NaN until there are two replicates."""
        return np.sqrt(self.variance / self._number)

    @property
    def kurtosis(self) -> Floats:
        """3 for a Gaussian, 1 at least; NaN where nothing varies."""
        spread = self._central(2)
        return np.divide(
            self._central(4), spread**2, out=np.full_like(spread, np.nan), where=spread > 0
        )

    @property
    def variance_of_variance(self) -> Floats:
        """The squared relative error of the variance; 2/n for a Gaussian. Above 0.1 the error bar itself is not known."""
        return (self.kurtosis - 1) / self._number


class Extremes:
    """The `kept` smallest and the `kept` largest values of every point."""

    def __init__(self, points: int, kept: int = 32):
        self.low, self.high = np.full((points, kept), np.inf), np.full((points, kept), -np.inf)

    def add(self, groups: Groups, values: Floats) -> None:
        kept = self.low.shape[1]
        for turn in groups.turns():
            point, value = groups.point[turn], values[turn]
            changes = (value < self.low[point, -1]) | (value > self.high[point, 0])
            point, value = point[changes], value[changes][:, None]
            self.low[point] = np.sort(np.concatenate([self.low[point], value], 1), 1)[:, :kept]
            self.high[point] = np.sort(np.concatenate([self.high[point], value], 1), 1)[:, -kept:]


def student_quantile(level: float, count: Any, bias: Any = 0.0) -> Floats:
    """How many standard errors either side of a mean of `count` Gaussian replicates cover `level`.

    With a bias of up to `bias` standard errors to either side: more by nearly as much, and not quite, since an error
    can only leave at one end. NaN for fewer than two replicates.
    """
    from scipy.special import gammaln, stdtr, stdtrit

    count, bias = np.broadcast_arrays(np.asarray(count, float), np.asarray(bias, float))
    freedom = np.maximum(count - 1, 1)
    c = np.asarray(stdtrit(freedom, 0.5 + level / 2))
    if np.any(bias > 0):
        # The coverage P(|T + bias| <= c) is concave from here on, so Newton's steps rise to the solution and stay below it.
        c = np.maximum(c, stdtrit(freedom, level) + bias)
        scale = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(freedom * np.pi)
        density = lambda x: np.exp(scale - (freedom + 1) / 2 * np.log1p(x**2 / freedom))
        for _ in range(NEWTON):
            missing = level - stdtr(freedom, c - bias) + stdtr(freedom, -c - bias)
            c = c + missing / (density(c - bias) + density(c + bias))
    return np.where(count > 1, c, np.nan)


def half_width(level: float, count: Any, stderr: Any, bias: Any) -> Floats:
    """Of the interval that covers `level`, for a bias of at most that size to either side; an unknown bias counts as none."""
    stderr, bias = np.asarray(stderr, float), np.nan_to_num(np.asarray(bias, float))
    relative = np.divide(
        bias, stderr, out=np.zeros(np.broadcast(bias, stderr).shape), where=stderr > 0
    )
    solved = np.minimum(relative, 1e4)  # beyond, what is added is the bias itself
    return np.where(
        stderr == 0, bias, (student_quantile(level, count, solved) + relative - solved) * stderr
    )
