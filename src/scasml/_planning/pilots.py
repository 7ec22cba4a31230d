"""Pilots: a few replicates of a thinned estimator, and in how many steps they say that a path is to be taken.

Each looks at one point alone, from streams of its own, so it does not depend on the company the point is in.

Fine and coarse paths on the same noise tell the bias of the steps, to within the noise of their difference. While the two hardly know of one
another, the steps are too long to tell anything: more of them. Where they do and their difference is all noise, a larger pilot says as much as more steps
would, and every replicate to come is spared those. And a bias that shows takes more steps.
"""

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..estimators import AbstractEstimator
from ..estimators.base import HALF_THE_STEPS, ORDINARY
from ..execution import surrogate_at
from ..execution.moments import Floats
from ..execution.stopping import Budget
from .task import Control, Setting, Share

# Pilot replicates: their streams begin where those of no ordinary replicate ever get to.
PILOT = 2**31
PILOT_SHARE = 8  # one for so many ordinary ones
# A larger pilot has so many times more, and at most so many.
MORE_PILOTS, MOST_PILOTS = 4, 64
# Powers of four: points that differ a little then still share a kernel.
STEPS_FACTOR, MOST_STEPS, MOST_LEAPS = 4, 1024, 5
# Of the variance that the difference of two independent values would have: from there on fine and coarse paths do not know of one another.
APART = 0.25


@dataclass(frozen=True)
class Pilot:
    """What a few replicates of a thinned estimator say, at each point."""

    value: Floats  # of u
    defect: Floats  # of u less what was started from
    slope: Floats  # of grad u, if gradients are asked for
    increments: Floats  # their means, (points, increments)
    variance: Floats  # of the increments of a thinned replicate
    sizes: Floats
    bias: Floats  # of the steps
    noise: Floats  # in that
    apart: Floats  # the variance of what half the steps change, over that of two independent values
    gradient_bias: Floats
    rest: Floats  # how many times larger all increments are than those that tell of the steps
    seconds: float  # of one replicate at all points
    replicates: int

    def at(self, rows: NDArray[np.int64]) -> "Pilot":
        """Of these of its points alone."""
        return replace(
            self, **{name: a[rows] for name, a in vars(self).items() if isinstance(a, np.ndarray)}
        )

    def expected_stderr(self, budget: Budget, estimator: AbstractEstimator) -> Floats:
        """What the whole budget should come to."""
        deviation = np.sqrt(np.sum(self.variance * estimator.thinned()[1], 1))
        return budget.expected_stderr(self.value, deviation, self.seconds)

    @property
    def is_apart(self) -> NDArray[np.bool_]:
        """Where fine and coarse paths hardly know of one another, and their difference tells nothing."""
        return self.apart >= APART

    @property
    def size(self) -> Floats:
        """More than any bias of the steps is."""
        return np.sum(self.sizes, 1)

    @property
    def is_noise(self) -> NDArray[np.bool_]:
        """Where more replicates would tell a smaller bias, or that there is one."""
        return (self.noise > self.bias / 2) & ~self.is_apart

    @property
    def bias_of_many(self) -> Floats:
        """What is left of the bias of the steps once noise is told from it."""
        many = min(np.sqrt(self.replicates / MOST_PILOTS), 1.0)
        return np.where(self.is_noise, self.bias - (1 - many) * self.noise, self.bias)


def pilot(
    setting: Setting,
    control: Control,
    estimator: AbstractEstimator,
    points: NDArray[np.int64],
    rest: Floats | None = None,
) -> Pilot:
    """`rest` is that of an earlier pilot; with it only the increments that tell of the steps are run."""
    count = max(setting.pilots, (setting.budget.replicates or 0) // PILOT_SHARE)
    thin, _ = estimator.thinned()
    told = slice(estimator.steps_tell)
    if rest is not None and thin.counts is not None:
        thin = thin.allot(np.where(np.arange(thin.counts.shape[-1]) < told.stop, thin.counts, 0))
    kernel = setting.kernel(control, thin, points)
    here, dim, levels = len(points), setting.x.shape[1], len(thin.names)
    base, base_slope = np.zeros(here), np.zeros((here, dim))

    def run(version: int) -> tuple[Floats, Floats, Floats, Floats]:
        shapes = ((), (levels, dim), (levels,), (levels,))
        values, slopes, increments, sizes = (np.zeros((count, here, *shape)) for shape in shapes)
        point, replicate = np.tile(np.arange(here), count), np.repeat(np.arange(count), here)
        for part, row in kernel.run(point, PILOT + replicate, np.full(len(point), version)):
            at = replicate[part], point[part]
            values[at], increments[at], sizes[at] = row.value, row.increments, row.sizes
            if row.surrogate is not None:
                base[point[part]], base_slope[point[part]] = row.surrogate
            if setting.gradient:
                slopes[at] = row.gradient_increments
        return values, slopes, increments, sizes

    spent = thin.spent(control.equation, np.full(here, count))
    fine, fine_slopes, increments, sizes = run(ORDINARY)
    fine_slope, seconds = fine_slopes.sum(2), kernel.seconds_per_row * here
    coarse, coarse_slopes = increments, fine_slopes
    if estimator.discretises(control.equation):
        _, coarse_slopes, coarse, _ = run(HALF_THE_STEPS)
        spent += spent[told]
    setting.spent.extend(spent)
    start = base
    if control.model is not setting.surrogate:
        here_t, here_x = setting.t[points], setting.x[points]
        start = 0.0 if control.model is None else surrogate_at(control.model, here_t, here_x)[0]
    # Halving the steps multiplies the bias by 2^order: what it changes is 2^order - 1 of it.
    share, tiny = 2 ** estimator.order(control.equation) - 1, np.finfo(np.float32).tiny
    # The other increments have as much of it for their size.
    more = (
        np.sum(sizes, (0, 2)) / np.maximum(np.sum(sizes[..., told], (0, 2)), tiny)
        if rest is None
        else rest
    )
    with np.errstate(invalid="ignore"):  # a NaN is an outcome here, reported in the status
        size = lambda a: np.abs(a.mean(0)) / share
        noise = lambda a: a.std(0, ddof=1) / np.sqrt(count) / share
        halves = [np.sum(a[..., told], 2) for a in (increments, coarse)]
        change = halves[0] - halves[1]
        slope_change = np.sum((fine_slopes - coarse_slopes)[:, :, told], 2)
        return Pilot(
            value=base + fine.mean(0),
            defect=base + fine.mean(0) - start,
            slope=base_slope + fine_slope.mean(0),
            increments=increments.mean(0),
            variance=increments.var(0, ddof=1),
            sizes=sizes.mean(0),
            bias=more * (size(change) + noise(change)),
            noise=more * noise(change),
            apart=np.var(change, 0) / np.maximum(np.var(halves[0], 0) + np.var(halves[1], 0), tiny),
            gradient_bias=more[:, None] * (size(slope_change) + noise(slope_change)),
            rest=more,
            seconds=seconds,
            replicates=count,
        )


def steps(
    setting: Setting,
    control: Control,
    estimator: AbstractEstimator,
    points: NDArray[np.int64],
    first: Pilot | None = None,
) -> list[Share]:
    """Fine and coarse paths, coupled, tell the bias at each number of steps; "auto" goes on until it is below half a standard error.

    `first` is a pilot that was run already, with the fewest steps.
    """
    if not estimator.discretises(control.equation):
        return [
            Share(
                control,
                estimator,
                points,
                np.zeros(len(points)),
                np.zeros((len(points), setting.x.shape[1])),
            )
        ]
    asked = estimator.steps
    # How many steps, and replicates of the pilot: and the points there.
    waiting = {
        (estimator.fewest_steps if asked == "auto" else asked, setting.pilots): np.arange(
            len(points)
        )
    }
    shares, rest, run = [], None, first
    while waiting:
        count, pilots = min(waiting)
        rows = waiting.pop((count, pilots))
        settled = estimator.settle(steps=count).at(rows)
        if run is None:
            told = None if rest is None else rest[rows]
            run = pilot(replace(setting, pilots=pilots), control, settled, points[rows], told)
        rest = run.rest if rest is None else rest
        stderr = run.expected_stderr(setting.budget, settled)
        times = times_more_steps(run.bias, stderr, settled.order(control.equation))
        times = np.where(
            run.is_apart & (run.size > stderr / 2), np.maximum(times, STEPS_FACTOR), times
        )
        larger = run.is_noise & (run.replicates < MOST_PILOTS)
        enough = (times == 1) | (count >= MOST_STEPS) & ~larger | (asked != "auto")
        enough |= time.monotonic() > setting.deadline
        bias, gradient_bias = run.bias[enough], run.gradient_bias[enough]
        shares.append(Share(control, settled.at(enough), points[rows[enough]], bias, gradient_bias))
        # Go where it should be small enough, and look again.
        for row, more, again in zip(rows[~enough], times[~enough], larger[~enough], strict=True):
            to = (
                (count, MORE_PILOTS * run.replicates)
                if again
                else (min(count * int(more), MOST_STEPS), pilots)
            )
            waiting[to] = np.append(waiting.get(to, np.zeros(0, np.int64)), row)
        run = None
    return [share for share in shares if len(share.points)]


def times_more_steps(bias: Floats, stderr: Floats, order: int) -> NDArray[np.int64]:
    """How many times more bring this bias of the steps below half of that standard error."""
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = bias / (0.5 * stderr)
        leaps = np.ceil(np.log(excess) / np.log(STEPS_FACTOR) / order)
    # A NaN will not mend by more steps.
    return np.where(
        excess > 1, STEPS_FACTOR ** np.clip(np.nan_to_num(leaps), 1, MOST_LEAPS).astype(np.int64), 1
    )
