"""When to stop: sees counts, clocks and error bars only. What a point gets depends on that point alone, clocks apart."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .moments import LEVEL, Floats, half_width

DEFAULT_SECONDS = 1.0
# An error bar from fewer replicates is too often too small by chance, and would end the run.
FIRST = 16
# How many times more a point may get in one round, and how many more at least.
MOST_GROWTH, LEAST_GROWTH = 4.0, 1.25
# The estimate of the bias is believed to be too large for the tolerance after so many.
ENOUGH_FOR_BIAS = 64
MOST_REPLICATES = 2**20


class Budget(NamedTuple):
    """The user's stopping rules; the first that is reached ends a point. None at all: one second's worth."""

    replicates: int | None = None
    seconds: float | None = None
    rtol: float | None = None
    atol: float | None = None
    anytime: bool = False  # in rounds of at most twice as many, without end unless a rule says so

    @property
    def has_tolerance(self) -> bool:
        return self.rtol is not None or self.atol is not None

    @property
    def is_default(self) -> bool:
        return (
            self.replicates is None
            and self.seconds is None
            and not self.has_tolerance
            and not self.anytime
        )

    @property
    def most(self) -> int:
        """Replicates of one point."""
        return MOST_REPLICATES if self.replicates is None else self.replicates

    def tolerance(self, value: Floats) -> Floats:
        """How wide the 95 % interval may be to either side."""
        return np.maximum(self.atol or 0.0, (self.rtol or 0.0) * np.abs(value))

    def met(self, value: Floats, count: Floats, stderr: Floats, bias: Floats) -> NDArray[np.bool_]:
        enough = count >= min(FIRST, self.most)
        with np.errstate(invalid="ignore"):
            return enough & (self.needed(value, count, stderr, bias) <= count)

    def unreachable(self, value: Floats, count: Floats, bias: Floats) -> NDArray[np.bool_]:
        """Where no number of replicates helps."""
        return (count >= ENOUGH_FOR_BIAS) & (np.nan_to_num(bias) >= self.tolerance(value))

    def needed(self, value: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
        """How many replicates the tolerance takes by the 1/sqrt(N) law; infinite where the bias alone exceeds it."""
        bias, tolerance = np.nan_to_num(bias), self.tolerance(value)
        statistical = np.maximum(half_width(LEVEL, count, stderr, bias) - bias, 0)
        room = tolerance - bias
        with np.errstate(all="ignore"):
            needed = np.where(
                room > 0, count * (statistical / np.maximum(room, 1e-300)) ** 2, np.inf
            )
        return np.where((statistical == 0) & (room >= 0), 0.0, needed)

    def targets(
        self, value: Floats, count: Floats, stderr: Floats, bias: Floats
    ) -> NDArray[np.int64]:
        """How many replicates every point should have after the next round; its count, if it is done."""
        start = (
            FIRST
            if self.has_tolerance
            else 2
            if self.replicates is None or self.anytime
            else self.replicates
        )
        start = min(start, self.most)
        growth = 2.0 if self.anytime or not self.has_tolerance else MOST_GROWTH
        goal = growth * count
        if self.has_tolerance:
            with np.errstate(invalid="ignore"):
                needed = self.needed(value, count, stderr, bias)
                done = (needed <= count) & (count >= start) | self.unreachable(value, count, bias)
            goal = np.clip(
                1.05 * np.nan_to_num(needed, nan=0.0, posinf=1e300), LEAST_GROWTH * count, goal
            )
            goal = np.where(done, count, goal)
        goal = np.where(count < start, start, goal)
        # A NaN will not mend.
        goal = np.where((count > 0) & ~np.isfinite(value), count, goal)
        return np.minimum(np.ceil(goal), np.maximum(self.most, count)).astype(np.int64)

    def expected_stderr(self, value: Floats, deviation: Floats, seconds: float) -> Floats:
        """What the standard error should come to, of replicates that deviate so much and take so many seconds for all points."""
        allowed = np.inf if self.seconds is None else self.seconds
        allowed = DEFAULT_SECONDS if self.is_default else allowed
        count = min(self.most, max(2.0, allowed / max(seconds, 1e-6)))
        return np.maximum(deviation / np.sqrt(count), self.tolerance(value) / 2)

    def __str__(self) -> str:
        if self.is_default:
            return "one second's worth of replicates, for want of a stopping rule: name rtol=, seconds= or replicates= for more"
        named = {
            "rtol": self.rtol,
            "atol": self.atol,
            "seconds": self.seconds,
            "replicates": self.replicates,
        }
        rules = [f"{name}={value:g}" for name, value in named.items() if value is not None]
        return ", ".join(rules) or "no stopping rule"
