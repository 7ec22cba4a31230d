"""Stopping rules: how many replicates every point gets next.

A rule uses only counts, error bars and clocks. The replicates of a point depend on that point
alone, except where a clock ends the run.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from .intervals import LEVEL, half_width


class Estimate(NamedTuple):
    """The state of the points of one accumulator, each of shape (points,).

    `value` is the estimate of u, surrogate included, not shrunk.
    """

    value: Floats
    replicates: Floats
    stderr: Floats
    bias: Floats  # NaN if unknown


class StoppingRule(NamedTuple):
    """The user's stopping rules. A point is done when the first of them is reached.

    Without any rule the run simulates for `default_seconds`. The fields after `anytime` are the
    same for all users.
    """

    replicates: int | None = None  # most replicates of a point
    seconds: float | None = None  # wall-clock time since the call began
    rtol: float | None = None  # allowed half width of the 95 % interval, relative to |value|
    atol: float | None = None  # allowed half width; the larger of both tolerances applies
    anytime: bool = False  # rounds at most double the replicates, and only a rule ends the run
    default_seconds: float = 1.0  # of simulation, without any rule
    # Fewest replicates with which a tolerance counts as met. With fewer, an error bar is too often
    # too small by chance.
    min_replicates: int = 16
    max_replicates: int = 2**20  # of one point, if the user sets no number
    # Largest and smallest factor by which the replicates of a point grow in one round.
    max_growth: float = 4.0
    min_growth: float = 1.25
    doubling: float = 2.0  # factor of growth in a round without a tolerance
    margin: float = 1.05  # on the predicted number of replicates, so that few rounds more are run

    @property
    def has_tolerance(self) -> bool:
        return self.rtol is not None or self.atol is not None

    @property
    def is_default(self) -> bool:
        has_rule = self.replicates is not None or self.seconds is not None or self.has_tolerance
        return not has_rule and not self.anytime

    @property
    def replicates_for_bias(self) -> int:
        """Fewest replicates with which an estimated bias above the tolerance ends a point's run."""
        return 4 * self.min_replicates

    @property
    def most(self) -> int:
        """The largest number of replicates of one point."""
        return self.max_replicates if self.replicates is None else self.replicates

    def tolerance(self, value: Floats) -> Floats:
        """Return the largest half width of the 95 % interval that the user allows."""
        return np.maximum(self.atol or 0.0, (self.rtol or 0.0) * np.abs(value))

    def met(self, estimate: Estimate) -> NDArray[np.bool_]:
        """Return where the tolerance is met; only for rules with a tolerance.

        There the half width, bias included, is at most the tolerance after `min_replicates`
        replicates, or `most` if that is less. An unknown bias counts as 0.
        """
        enough = estimate.replicates >= min(self.min_replicates, self.most)
        with np.errstate(invalid="ignore"):
            return enough & (self.needed(estimate) <= estimate.replicates)

    def bias_limited(self, estimate: Estimate) -> NDArray[np.bool_]:
        """Return where the bias reaches the tolerance, so that no number of replicates meets it.

        Points with fewer than `replicates_for_bias` replicates do not count.
        """
        too_biased = np.nan_to_num(estimate.bias) >= self.tolerance(estimate.value)
        return (estimate.replicates >= self.replicates_for_bias) & too_biased

    def needed(self, estimate: Estimate) -> Floats:
        """Return how many replicates meet the tolerance, if the half width falls as 1/sqrt(N).

        The number is infinite where the bias alone reaches the tolerance.
        """
        value, count, stderr, bias = estimate
        bias, tolerance = np.nan_to_num(bias), self.tolerance(value)
        statistical = np.maximum(half_width(LEVEL, count, stderr, bias) - bias, 0)
        allowed = tolerance - bias
        with np.errstate(all="ignore"):
            ratio = statistical / np.maximum(allowed, 1e-300)
            needed = np.where(allowed > 0, count * ratio**2, np.inf)
        return np.where((statistical == 0) & (allowed >= 0), 0.0, needed)

    def next_counts(self, estimate: Estimate) -> NDArray[np.int64]:
        """Return the replicates that every point should have after the next round, (points,).

        With a tolerance a point first gets `min_replicates`, then the predicted number, between
        `min_growth` and `max_growth` times its count (`doubling` for `refine`). Without one it gets
        `replicates` at once, or 2 if they are None or for `refine`; then the count doubles. A count
        never grows beyond `most`. A point that is done keeps its present count.
        """
        value, count, _, _ = estimate
        start = 2 if self.replicates is None or self.anytime else self.replicates
        start = min(self.min_replicates if self.has_tolerance else start, self.most)
        growth = self.doubling if self.anytime or not self.has_tolerance else self.max_growth
        goal = growth * count
        if self.has_tolerance:
            with np.errstate(invalid="ignore"):
                needed = self.needed(estimate)
                done = (needed <= count) & (count >= start) | self.bias_limited(estimate)
            wanted = self.margin * np.nan_to_num(needed, nan=0.0, posinf=1e300)
            goal = np.where(done, count, np.clip(wanted, self.min_growth * count, goal))
        goal = np.where(count < start, start, goal)
        # More replicates do not help where the value is not finite.
        goal = np.where((count > 0) & ~np.isfinite(value), count, goal)
        return np.minimum(np.ceil(goal), np.maximum(self.most, count)).astype(np.int64)

    def expected_stderr(self, value: Floats, deviation: Floats, seconds: float) -> Floats:
        """Predict the standard error at the end of the run, (points,).

        `value` (points,) and `deviation` (points,) are the mean and the standard deviation of a
        replicate. `seconds` is the time of one replicate at all points.
        """
        allowed = np.inf if self.seconds is None else self.seconds
        allowed = self.default_seconds if self.is_default else allowed
        count = min(self.most, max(2.0, allowed / max(seconds, 1e-6)))
        return np.maximum(deviation / np.sqrt(count), self.tolerance(value) / 2)

    def __str__(self) -> str:
        if self.is_default:
            return (
                "one second's worth of replicates, for want of a stopping rule: "
                "name rtol=, seconds= or replicates= for more"
            )
        rules = {"rtol": self.rtol, "atol": self.atol}
        rules |= {"seconds": self.seconds, "replicates": self.replicates}
        named = [f"{name}={value:g}" for name, value in rules.items() if value is not None]
        return ", ".join(named) or "no stopping rule"
