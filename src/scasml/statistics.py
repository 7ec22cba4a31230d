"""Moments of replicates, merged as they arrive, and what follows from them. Arrays only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations, elementwise over arrays of one shape."""

    count: Floats
    mean: Floats
    squares: Floats

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> "Moments":
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape))

    def merge(self, other: "Moments") -> "Moments":
        """Chan's formula. Where one side is empty the other is returned bit for bit."""
        count = self.count + other.count
        share = np.divide(other.count, count, out=np.zeros_like(count), where=count > 0)
        delta = np.subtract(other.mean, self.mean, out=np.zeros_like(count), where=(self.count > 0) & (other.count > 0))
        mean = np.where(self.count > 0, self.mean + delta * share, other.mean)
        squares = self.squares + other.squares + delta**2 * self.count * share
        return Moments(count, mean, squares)

    @classmethod
    def of(cls, values: Floats) -> "Moments":
        """One replicate."""
        return cls(np.ones_like(values), values, np.zeros_like(values))

    def part(self, where: slice) -> "Moments":
        """A view of some of the elements."""
        return Moments(self.count[where], self.mean[where], self.squares[where])

    def update(self, where: slice, values: Floats) -> None:
        """Merge one more replicate of the elements `where`, in place."""
        view = self.part(where)
        merged = view.merge(Moments.of(values))
        view.count[...], view.mean[...], view.squares[...] = merged.count, merged.mean, merged.squares

    @property
    def stderr(self) -> Floats:
        """The standard error of the mean; NaN until there are two replicates."""
        freedom = self.count - 1
        variance = np.divide(self.squares, freedom, out=np.full_like(self.squares, np.nan), where=freedom > 0)
        return np.sqrt(variance / np.maximum(self.count, 1))


def student_quantile(level: float, count: NDArray[np.float64]) -> Floats:
    """How many standard errors either side cover `level` for a mean of `count` Gaussian replicates."""
    from scipy.special import stdtrit

    freedom = np.maximum(np.asarray(count) - 1, 1)
    return np.where(np.asarray(count) > 1, stdtrit(freedom, 0.5 + level / 2), np.nan)
