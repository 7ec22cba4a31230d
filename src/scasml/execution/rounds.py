"""Rounds: run replicates where they are needed, until a stopping rule or a clock ends the run.

`Run` holds the accumulators of one call between its rounds. Progress is reported here and only
here.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._io.interruption import Interruption
from .._io.progress import Progress, Report
from .accumulator import Accumulator
from .intervals import LEVEL, half_width
from .stopping import Estimate, StoppingRule

# Seconds between two progress reports.
REPORT_SECONDS = 0.1


class Round(NamedTuple):
    """The state of a run after one round, over all points that have an error bar."""

    replicates: float  # mean number of replicates of a point
    seconds: float  # since the call began
    median: float  # median half width of the 95 % intervals
    worst: float  # largest half width
    bias: float  # median bias; an unknown bias counts as 0


class Run:
    """The accumulators of one call, between its rounds.

    `is_over` says that no round should follow, and `was_interrupted` that Ctrl-C was pressed.
    `is_late` says that the deadline passed before every point had an error bar. `history` has one
    `Round` for each round.
    """

    def __init__(
        self,
        rule: StoppingRule,
        accumulators: Sequence[Accumulator],
        began: float,
        points: int,
    ):
        """`began` is a time on the clock `time.monotonic`, at which the call began.

        `points` is the number of all points of the call, those included that need no simulation.
        """
        self.rule, self.accumulators, self.began, self.points = rule, accumulators, began, points
        self.deadline = np.inf if rule.seconds is None else began + rule.seconds
        self.is_over = self.is_late = self.was_interrupted = False
        self.history: list[Round] = []
        self._reported = 0.0

    def round(self, interruption: Interruption, report: Report | None) -> None:
        """Run one round: bring every point to the count that the stopping rule wants next.

        With a time limit, such as that of the default rule, or with more than one accumulator, the
        first round brings every point to two replicates only.

        The round ends early at the deadline or at Ctrl-C, once every point has an error bar. Before
        that, Ctrl-C raises KeyboardInterrupt. `report` receives the progress, unless it is None.
        """
        targets = [self.rule.next_counts(each.estimate()) for each in self.accumulators]
        has_clock = self.deadline < np.inf or self.rule.is_default
        if (has_clock or len(self.accumulators) > 1) and not self._has_error_bars():
            # Every point gets an error bar before any point gets more.
            least = min(2, self.rule.most)
            targets = [np.minimum(target, least) for target in targets]
        for accumulator, target in zip(self.accumulators, targets, strict=True):
            had_bars = self._has_error_bars()
            for _ in accumulator.run(target):
                self._report(report)
                self.is_late |= not had_bars and time.monotonic() > self.deadline
                had_bars = self._has_error_bars()
                if interruption.heard and not had_bars:
                    raise KeyboardInterrupt
                if had_bars and (interruption.heard or self._time_is_up()):
                    self.is_over = True
                    break
            if self.is_over:
                break
        self.is_over |= self._time_is_up() or self._is_done()
        self._report(report, last=True)
        self._add_to_history()
        # An interruption may come after the last row.
        self.was_interrupted = interruption.heard
        self.is_over |= interruption.heard

    def _is_done(self) -> bool:
        """Return whether the stopping rule wants no more replicates."""
        return all(
            (self.rule.next_counts(each.estimate()) <= each.count).all()
            for each in self.accumulators
        )

    def _has_error_bars(self) -> bool:
        """Return whether every point has the replicates that an error bar needs."""
        least = min(2, self.rule.most)
        return all((each.count >= least).all() for each in self.accumulators)

    def _simulated_seconds(self) -> float:
        return sum(each.seconds for each in self.accumulators)

    def _time_is_up(self) -> bool:
        if self.rule.is_default:
            return self._simulated_seconds() >= self.rule.default_seconds
        return time.monotonic() >= self.deadline

    def _report(self, report: Report | None, last: bool = False) -> None:
        """Report the progress, at most every `REPORT_SECONDS` except for the last report."""
        now = time.monotonic()
        if report is None or (now - self._reported < REPORT_SECONDS and not last):
            return
        self._reported = now
        simulated = sum(len(each.points) for each in self.accumulators)
        done, worst, left = self.points - simulated, np.nan, 0.0
        for accumulator in self.accumulators:
            part = _progress(self.rule, accumulator.estimate(), accumulator.seconds_per_row)
            done, worst, left = done + part[0], np.fmax(worst, part[1]), left + part[2]
        rows = int(sum(each.count.sum() for each in self.accumulators))
        if self.rule.is_default:
            left = self.rule.default_seconds - self._simulated_seconds()
        left = max(min(left, self.deadline - now), 0.0)
        left = 0.0 if last and self.is_over else left
        report(Progress(done, self.points, rows, float(worst), now - self.began, left))

    def _add_to_history(self) -> None:
        estimates = [each.estimate() for each in self.accumulators]
        count, stderr, bias = (
            np.concatenate([getattr(each, name) for each in estimates] or [[]])
            for name in ("replicates", "stderr", "bias")
        )
        known = (count > 1) & np.isfinite(stderr)
        if known.any():
            half = half_width(LEVEL, count[known], stderr[known], bias[known])
            self.history.append(
                Round(
                    replicates=float(np.mean(count[known])),
                    seconds=time.monotonic() - self.began,
                    median=float(np.median(half)),
                    worst=float(np.max(half)),
                    bias=float(np.median(np.nan_to_num(bias[known]))),
                )
            )


def _progress(
    rule: StoppingRule, estimate: Estimate, seconds_per_row: float
) -> tuple[int, float, float]:
    """Return the points that are done, the largest relative half width, and the seconds left."""
    value, count, stderr, bias = estimate
    goal = np.full(len(count), np.inf)
    if rule.has_tolerance:
        goal = rule.needed(estimate)
    goal = np.minimum(goal, rule.replicates or np.inf)
    goal = np.where(np.isfinite(value) | (count == 0), goal, 0)
    hopeless = (count > 0) & rule.bias_limited(estimate) & rule.has_tolerance
    waiting = ~(goal <= count) & ~hopeless
    left = 0.0
    if waiting.any():
        # Before the first rows are timed, the remaining time is unknown.
        missing = np.nan_to_num(goal - count, nan=np.inf, posinf=np.inf)
        left = float(np.sum(missing[waiting])) * (seconds_per_row or np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = half_width(LEVEL, count, stderr, bias) / np.abs(value)
    relative = relative[waiting]
    worst = float(np.nanmax(relative)) if np.isfinite(relative).any() else np.nan
    return int(np.sum(~waiting)), worst, left
