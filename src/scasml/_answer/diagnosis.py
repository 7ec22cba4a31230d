"""What the replicates say about themselves, level by level, and in plain words what is wrong and what to do.

The checks are those of multilevel Monte Carlo (mean, variance, kurtosis and cost of every level, and whether the levels
telescope) and of MCNP (the variance of the variance, and the slope of the tail of the density, which must be steeper than -3
for a variance to exist).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._equations.problem import AbstractEquation
from .._io.progress import duration
from .._support.errors import listing
from ..estimators.base import Evaluations
from ..execution.moments import Floats

# Below so many replicates a tail cannot be told.
ENOUGH_FOR_TAILS = 256
# A Gaussian's kurtosis exceeds 3 by more than this many of its standard errors, sqrt(24/n), less than once in a thousand.
KURTOSIS_ERRORS = 6.0
# A slope of 3 is the last with a variance; Hill's estimate from few replicates errs by this much above it.
STEEP_ENOUGH, SLOPE_ERROR, LEAST_SLOPE_ERROR = 3.0, 8.0, 0.25
FALSE_ALARMS = 0.001
TELESCOPING_ERRORS = 5.0


@dataclass(frozen=True)
class Levels:
    """Of the points that one estimator served: moments of each increment over replicates, and the parts of the bias."""

    points: NDArray[np.int64]
    names: tuple[str, ...]  # of the increments
    mean: Floats  # (points, increments)
    variance: Floats
    kurtosis: Floats
    evaluations: tuple[Evaluations, ...]  # of each increment of all replicates
    replicates: int
    telescoping: Floats  # in standard errors
    bias: dict[str, Floats]
    seconds_per_replicate: float

    @classmethod
    def of(cls, points: NDArray[np.int64], tally: Any, equation: AbstractEquation) -> "Levels":
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            off = tally.telescoping.mean / tally.telescoping.stderr
            return cls(
                points=points,
                names=tally.share.estimator.names,
                mean=tally.increments.mean,
                variance=tally.increments.variance,
                kurtosis=tally.increments.kurtosis,
                evaluations=tuple(tally.share.estimator.spent(equation, tally.count)),
                replicates=int(np.sum(tally.count)),
                telescoping=off,
                bias=tally.biases(),
                seconds_per_replicate=tally.kernel.seconds_per_row,
            )


@dataclass(frozen=True)
class Tails:
    """Of every point, over its replicates."""

    kurtosis: Floats
    variance_of_variance: Floats
    slope: Floats  # of the density: the exponent of the heavier tail; NaN from too few replicates
    is_heavy: NDArray[np.bool_]

    @classmethod
    def of(cls, points: int, tallies: Iterable[tuple[NDArray[np.int64], Any]]) -> "Tails":
        kurtosis, spread, slope = (np.full(points, np.nan) for _ in range(3))
        count = np.zeros(points)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            for at, tally in tallies:
                kurtosis[at], spread[at] = tally.value.kurtosis, tally.value.variance_of_variance
                count[at], mean = tally.value.count, tally.value.mean
                low, high = tally.extremes.low, tally.extremes.high
                slope[at] = np.fmin(
                    tail_slope(high[:, ::-1] - mean[:, None], count[at]),
                    tail_slope(mean[:, None] - low, count[at]),
                )
            peaked = kurtosis > 3 + KURTOSIS_ERRORS * np.sqrt(24 / count)
            flat = slope < STEEP_ENOUGH + np.maximum(
                SLOPE_ERROR / np.sqrt(count), LEAST_SLOPE_ERROR
            )
            return cls(kurtosis, spread, slope, peaked & flat)


def tail_slope(largest: Floats, count: Floats) -> Floats:
    """Hill's estimate of k in density ~ x^-k, from the largest deviations, in falling order, of `count`."""
    kept = largest.shape[1]
    used = np.clip(count // 20, 3, kept - 1).astype(int)
    log = np.log(np.maximum(largest, 1e-300))
    threshold = np.take_along_axis(log, used[:, None], 1)
    excess = np.where(np.arange(kept) < used[:, None], log - threshold, 0).sum(1)
    return np.where(
        (count >= ENOUGH_FOR_TAILS) & (excess > 0), 1 + used / np.maximum(excess, 1e-300), np.nan
    )


class Finding(NamedTuple):
    kind: str  # not finite | heavy tail | bias | tolerance | surrogate | level | telescoping | few replicates
    text: str


@dataclass(frozen=True, repr=False)
class Diagnosis:
    findings: tuple[Finding, ...]
    table: str

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings}

    def __str__(self) -> str:
        texts = [f"- {finding.text}" for finding in self.findings] or [
            "- nothing is wrong that these checks can see"
        ]
        return "\n".join([*texts, "", self.table])

    __repr__ = __str__


def diagnose(answer: Any) -> Diagnosis:
    """Of a `Correction`."""
    checks = (_finite, _tails, _few, _bias, _tolerance, _surrogate, _levels, _telescoping)
    findings = [finding for check in checks for finding in check(answer)]
    return Diagnosis(tuple(findings), _table(answer.levels))


def _finite(answer: Any) -> Iterable[Finding]:
    bad = np.flatnonzero(np.atleast_1d(answer.status) == "not finite")
    if len(bad):
        yield Finding(
            "not finite",
            f"point {listing(bad)}: the surrogate, F, g or a path returned NaN or infinity; the other points are not "
            'touched by it. Look at the model there, or try dtype="float64" if something overflows.',
        )


def _tails(answer: Any) -> Iterable[Finding]:
    tested = np.isfinite(answer.tails.slope)
    heavy = np.flatnonzero(answer.tails.is_heavy)
    expected = FALSE_ALARMS * tested.sum()
    if len(heavy) > expected + 3 * np.sqrt(expected):
        worst = heavy[np.argmin(answer.tails.slope[heavy])]
        yield Finding(
            "heavy tail",
            f"heavy tail at point {listing(heavy)}: the density of the replicates falls as x^-{answer.tails.slope[worst]:.1f} "
            "(it must fall faster than x^-3 for a standard error to mean anything), so a rare large replicate will move the "
            "answer by more than its error bar. Use another method, a threshold, or a surrogate that is right where paths go far.",
        )


def _few(answer: Any) -> Iterable[Finding]:
    spread, count = (
        answer.tails.variance_of_variance,
        np.maximum(np.atleast_1d(answer.replicates), 1),
    )
    with np.errstate(invalid="ignore"):  # 2/n is what a Gaussian has
        loose = np.flatnonzero((spread > 0.1) & (spread > 6 / count) & ~answer.tails.is_heavy)
    if len(loose) > 0.05 * len(answer.tails.slope):
        error = np.sqrt(np.nanmax(answer.tails.variance_of_variance[loose])) / 2
        yield Finding(
            "few replicates",
            f"the error bar itself is known to {100 * error:.0f} % only at point {listing(loose)}: Student's quantile allows for "
            "that, but more replicates would make it shorter by more than their number suggests.",
        )


def _bias(answer: Any) -> Iterable[Finding]:
    stderr, bias = np.atleast_1d(answer.stderr), np.atleast_1d(answer.bias)
    if np.isnan(bias[np.isfinite(stderr)]).any():
        yield Finding(
            "bias",
            "the bias of this method cannot be told from its own levels, and is not in the interval: take two levels or more, "
            "full history in time and no threshold; or F is too steep in u or z for Picard over the time that is left.",
        )
    with np.errstate(invalid="ignore"):
        large = np.flatnonzero((bias > stderr) & (np.atleast_1d(answer.replicates) > 0))
    if len(large) > 0.1 * len(bias):
        cures = {
            "levels": "one more Picard level",
            "noise": "more samples per level (they stand inside F)",
            "steps": "more steps per path",
            "rounding": 'dtype="float64"',
        }
        parts = {
            name: float(
                np.median(
                    np.nan_to_num(np.concatenate([level.bias[name] for level in answer.levels]))
                )
            )
            for name in cures
        }
        cure = cures[max(parts, key=lambda name: parts[name])]
        yield Finding(
            "bias",
            f"the bias (about {np.nanmedian(bias[large]):.1g}) exceeds the standard error ({np.nanmedian(stderr[large]):.1g}) at "
            f"{len(large)} of {len(bias)} points, so more replicates hardly help: it takes {cure}, or a better surrogate.",
        )


def _tolerance(answer: Any) -> Iterable[Finding]:
    unmet = np.flatnonzero(answer.unmet & np.isfinite(np.atleast_1d(answer.raw_value)))
    if not len(unmet) or not answer.budget.has_tolerance:
        return
    count, value = np.atleast_1d(answer.replicates).astype(float), np.atleast_1d(answer.raw_value)
    needed = answer.budget.needed(
        value, count, np.atleast_1d(answer.stderr), np.atleast_1d(answer.bias)
    )
    seconds, endless = 0.0, []
    for level in answer.levels:
        mine = np.intersect1d(level.points, unmet)
        reachable = mine[np.isfinite(needed[mine])]
        seconds += float(np.sum(needed[reachable] - count[reachable])) * level.seconds_per_replicate
        endless += mine[np.isposinf(needed[mine])].tolist()
    text = f"the tolerance is missed at point {listing(unmet)}"
    if seconds:
        text += f": by the 1/sqrt(N) law it takes about {duration(max(seconds, 1.0))} more"
    if endless:
        text += f"; at point {listing(sorted(endless))} no number of replicates will do, the bias alone exceeds it"
    yield Finding("tolerance", text + ".")


def _surrogate(answer: Any) -> Iterable[Finding]:
    if not answer.has_surrogate:
        return
    off, raw = (
        np.abs(np.atleast_1d(answer.raw_value - answer.surrogate_value)),
        np.abs(np.atleast_1d(answer.raw_value)),
    )
    stderr = np.atleast_1d(answer.stderr)
    simulated = np.atleast_1d(answer.replicates) > 1
    with np.errstate(invalid="ignore"):
        useless, silent = (
            (off > 0.5 * raw) & (off > 3 * stderr) & simulated,
            (off < 2 * stderr) & simulated,
        )
    if useless.sum() > 0.5 * max(simulated.sum(), 1):
        yield Finding(
            "surrogate",
            f"the surrogate is off by more than half of the value at {useless.sum()} of {simulated.sum()} points: it may be worse "
            "than none, so compare with surrogate None, or train it where the paths go.",
        )
    elif silent.sum() > 0.5 * max(simulated.sum(), 1):
        yield Finding(
            "surrogate",
            f"at {silent.sum()} of {simulated.sum()} points the correction cannot be told from its noise: the surrogate is right there "
            "to within the error bar, and it takes a smaller one to say more.",
        )


def _levels(answer: Any) -> Iterable[Finding]:
    for level in answer.levels:
        usable = np.isfinite(level.variance).all(1)
        if not usable.any():
            continue
        noise, signal = np.mean(level.variance[usable], 0), np.mean(level.mean[usable] ** 2, 0)
        last = len(noise) - 1
        if (
            last >= 2
            and noise[last] > 0.5 * np.nansum(noise)
            and noise[last] > 100 * signal[last] > 0
        ):
            yield Finding(
                "level",
                f"{level.names[last]} makes {100 * noise[last] / np.nansum(noise):.0f} % of the variance and adds only "
                f"{np.sqrt(signal[last]):.1g}: leave it out, or give it more samples.",
            )


def _telescoping(answer: Any) -> Iterable[Finding]:
    off = [np.abs(level.telescoping).ravel() for level in answer.levels if level.telescoping.size]
    worst = np.max(np.nan_to_num(np.concatenate(off)), initial=0.0) if off else 0.0
    if worst > TELESCOPING_ERRORS:
        yield Finding(
            "telescoping",
            f"the levels do not fit together: what one adds and the next takes off differ by {worst:.0f} "
            "standard errors. F or the surrogate is not one function of its arguments, or has no second moment.",
        )


def _table(levels: Sequence[Levels]) -> str:
    rows = [
        f"{'increment':>10} {'mean':>10} {'variance':>10} {'kurtosis':>9} {'F and g':>9} {'random numbers':>15}   per replicate"
    ]
    for level in levels:
        for k, cost in enumerate(level.evaluations):
            columns = [
                a[:, k][np.isfinite(a[:, k])] for a in (level.mean, level.variance, level.kurtosis)
            ]
            mean, variance, kurtosis = (float(np.mean(a)) if len(a) else np.nan for a in columns)
            functions, numbers = (
                n / max(level.replicates, 1) for n in (cost.functions, cost.random_numbers)
            )
            rows.append(
                f"{level.names[k]:>10} {mean:>10.3g} {variance:>10.2g} {kurtosis:>9.1f} {functions:>9,.0f} {numbers:>15,.0f}"
            )
    return "\n".join(rows)
