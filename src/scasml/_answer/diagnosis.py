"""`diagnose`: what is wrong with an answer and what to do about it, in plain words.

`diagnose` takes a `Correction` and returns a `Diagnosis`. Each check is a function that takes the
answer and yields no or one `Finding`, or one for each accumulator.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._io.progress import duration
from .._support.errors import listing
from ..estimators import AbstractEstimator, AbstractLevelled, Linearised, Picard
from ..execution.stopping import Estimate
from .levels import Levels
from .status import Status

if TYPE_CHECKING:
    from .correction import Correction

# Expected fraction of the points whose tail seems heavy by chance.
FALSE_ALARMS = 0.001
# Difference between consecutive levels, in standard errors, above which they do not fit together.
TELESCOPING_ERRORS = 5.0
# Squared relative error of the variance, above which the error bar itself is uncertain.
LOOSE_VARIANCE = 0.1
# Fractions of the points above which a finding is reported: uncertain error bars, a bias above the
# standard error, and a surrogate that is useless or cannot be distinguished from the answer.
LOOSE_POINTS, BIASED_POINTS, SURROGATE_POINTS = 0.05, 0.1, 0.5
# Bias over the tolerance that is no finding. Plans leave out levels up to a bound of this size.
TOLERATED = 0.1


class Finding(NamedTuple):
    """One thing that is wrong, or worth knowing, about an answer."""

    # not finite | heavy tail | few replicates | bias | tolerance | surrogate | level | telescoping
    kind: str
    text: str  # one or two sentences for the user


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """All findings about an answer, and a table of the increments. It prints as text."""

    findings: tuple[Finding, ...]
    table: str

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings}

    def __str__(self) -> str:
        texts = [f"- {finding.text}" for finding in self.findings]
        texts = texts or ["- nothing is wrong that these checks can see"]
        return "\n".join([*texts, "", self.table])

    __repr__ = __str__


def diagnose(answer: "Correction") -> Diagnosis:
    """Run all checks on an answer, and return their findings."""
    checks = (
        _not_finite,
        _heavy_tails,
        _few_replicates,
        _unknown_bias,
        _large_bias,
        _missed_tolerance,
        _surrogate,
        _noisy_level,
        _telescoping,
    )
    findings = [finding for check in checks for finding in check(answer)]
    return Diagnosis(tuple(findings), _table(answer.levels))


def _not_finite(answer: "Correction") -> Iterable[Finding]:
    bad = np.flatnonzero(answer.statuses == Status.NOT_FINITE)
    if len(bad):
        yield Finding(
            "not finite",
            f"point {listing(bad)}: the surrogate, F, g or a path returned NaN or infinity; "
            "the other points are not touched by it. Look at the model there, or try "
            'dtype="float64" if something overflows.',
        )


def _heavy_tails(answer: "Correction") -> Iterable[Finding]:
    tested = np.isfinite(answer.tails.slope)
    heavy = np.flatnonzero(answer.tails.is_heavy)
    expected = FALSE_ALARMS * tested.sum()
    if len(heavy) > expected + 3 * np.sqrt(expected):
        slope = np.min(answer.tails.slope[heavy])
        yield Finding(
            "heavy tail",
            f"heavy tail at point {listing(heavy)}: the density of the replicates falls as "
            f"x^-{slope:.1f} (it must fall faster than x^-3 for a standard error to mean "
            "anything), so a rare large replicate will move the answer by more than its error "
            "bar. Use another method, a threshold, or a surrogate that is right where paths go "
            "far.",
        )


def _few_replicates(answer: "Correction") -> Iterable[Finding]:
    spread = answer.tails.variance_of_variance
    count = np.maximum(np.atleast_1d(answer.replicates), 1)
    with np.errstate(invalid="ignore"):  # `spread` of Gaussian replicates is 2/n
        is_loose = (spread > LOOSE_VARIANCE) & (spread > 6 / count) & ~answer.tails.is_heavy
    loose = np.flatnonzero(is_loose)
    if len(loose) > LOOSE_POINTS * len(spread):
        error = np.sqrt(np.nanmax(spread[loose])) / 2
        yield Finding(
            "few replicates",
            f"the error bar itself is known to {100 * error:.0f} % only at point "
            f"{listing(loose)}: Student's quantile allows for that, but more replicates would "
            "make it shorter by more than their number suggests.",
        )


def _unknown_bias(answer: "Correction") -> Iterable[Finding]:
    stderr, bias = np.atleast_1d(answer.stderr), np.atleast_1d(answer.bias)
    unknown = np.isnan(bias) & np.isfinite(stderr)
    if not unknown.any():
        return
    remedies = {
        Picard: "take two levels or more, full history in time and no threshold; or F is too "
        "steep in u or z for Picard over the time that is left",
        Linearised: "take remainder=8 paths inside the remainder instead of 0; or F is too steep "
        "in u to be linearised over the time that is left",
    }
    methods = {type(method) for method in _methods(answer, np.flatnonzero(unknown))}
    advice = "; ".join(remedies[kind] for kind in remedies if kind in methods)
    advice = advice or "look at its level_bias, which returned NaN"
    yield Finding(
        "bias",
        "the bias of this method cannot be told from its own levels, and is not in the interval: "
        f"{advice}.",
    )


def _large_bias(answer: "Correction") -> Iterable[Finding]:
    stderr, bias = np.atleast_1d(answer.stderr), np.atleast_1d(answer.bias)
    accepted = TOLERATED * answer.rule.tolerance(np.atleast_1d(answer.raw_value))
    with np.errstate(invalid="ignore"):
        is_large = (bias > stderr) & (bias > accepted) & (np.atleast_1d(answer.replicates) > 0)
    large = np.flatnonzero(is_large)
    if len(large) <= BIASED_POINTS * len(bias):
        return
    uses_picard = any(isinstance(method, Picard) for method in _methods(answer, large))
    cures = {
        "levels": "one more Picard level" if uses_picard else "a start nearer to the solution",
        "noise": "more samples per level (they stand inside F)",
        "steps": "more steps per path",
        "rounding": 'dtype="float64"',
    }
    sizes = {}
    for name in cures:
        parts = np.concatenate([np.atleast_1d(level.bias[name]) for level in answer.levels])
        sizes[name] = float(np.median(np.nan_to_num(parts)))
    cure = cures[max(sizes, key=lambda name: sizes[name])]
    yield Finding(
        "bias",
        f"the bias (about {np.nanmedian(bias[large]):.1g}) exceeds the standard error "
        f"({np.nanmedian(stderr[large]):.1g}) at {len(large)} of {len(bias)} points, so more "
        f"replicates hardly help: it takes {cure}, or a better surrogate.",
    )


def _missed_tolerance(answer: "Correction") -> Iterable[Finding]:
    value = np.atleast_1d(answer.raw_value)
    unmet = np.flatnonzero(answer.unmet & np.isfinite(value))
    if not len(unmet) or not answer.rule.has_tolerance:
        return
    count = np.atleast_1d(answer.replicates).astype(float)
    estimate = Estimate(value, count, np.atleast_1d(answer.stderr), np.atleast_1d(answer.bias))
    needed = answer.rule.needed(estimate)
    seconds, unreachable = 0.0, []
    for level in answer.levels:
        rows = np.intersect1d(level.points, unmet)
        finite = rows[np.isfinite(needed[rows])]
        missing = float(np.sum(needed[finite] - count[finite]))
        seconds += missing * level.seconds_per_replicate
        unreachable += rows[np.isposinf(needed[rows])].tolist()
    text = f"the tolerance is missed at point {listing(unmet)}"
    if seconds:
        time = duration(max(seconds, 1.0))
        text += f": by the 1/sqrt(N) law it takes about {time} more"
    if unreachable:
        text += (
            f"; at point {listing(sorted(unreachable))} no number of replicates will do, "
            "the bias alone exceeds it"
        )
    yield Finding("tolerance", text + ".")


def _surrogate(answer: "Correction") -> Iterable[Finding]:
    if not answer.has_surrogate:
        return
    raw, stderr = np.atleast_1d(answer.raw_value), np.atleast_1d(answer.stderr)
    error = np.abs(raw - np.atleast_1d(answer.surrogate_value))
    simulated = np.atleast_1d(answer.replicates) > 1
    with np.errstate(invalid="ignore"):
        useless = (error > 0.5 * np.abs(raw)) & (error > 3 * stderr) & simulated
        indistinct = (error < 2 * stderr) & simulated
    limit = SURROGATE_POINTS * max(simulated.sum(), 1)
    if useless.sum() > limit:
        yield Finding(
            "surrogate",
            f"the surrogate is off by more than half of the value at {useless.sum()} of "
            f"{simulated.sum()} points: it may be worse than none, so compare with surrogate "
            "None, or train it where the paths go.",
        )
    elif indistinct.sum() > limit:
        yield Finding(
            "surrogate",
            f"at {indistinct.sum()} of {simulated.sum()} points the correction cannot be told "
            "from its noise: the surrogate is right there to within the error bar, and it takes "
            "a smaller one to say more.",
        )


def _noisy_level(answer: "Correction") -> Iterable[Finding]:
    for level in answer.levels:
        # Pilots choose the levels of an `AbstractLevelled` and how often each is sampled.
        methods = _methods(answer, level.points)
        is_chosen = any(isinstance(method, AbstractLevelled) for method in methods)
        usable = np.isfinite(level.variance).all(1)
        if is_chosen or not usable.any():
            continue
        noise = np.mean(level.variance[usable], 0)
        signal = np.mean(level.mean[usable] ** 2, 0)
        last, total = len(noise) - 1, np.nansum(noise)
        if last >= 2 and noise[last] > 0.5 * total and noise[last] > 100 * signal[last] > 0:
            yield Finding(
                "level",
                f"{level.names[last]} makes {100 * noise[last] / total:.0f} % of the variance and "
                f"adds only {np.sqrt(signal[last]):.1g}: leave it out, or give it more samples.",
            )


def _telescoping(answer: "Correction") -> Iterable[Finding]:
    errors = [np.abs(level.telescoping).ravel() for level in answer.levels]
    worst = np.max(np.nan_to_num(np.concatenate([*errors, np.zeros(1)])))
    if worst > TELESCOPING_ERRORS:
        yield Finding(
            "telescoping",
            "the levels do not fit together: what one adds and the next takes off differ by "
            f"{worst:.0f} standard errors. F or the surrogate is not one function of its "
            "arguments, or has no second moment.",
        )


def _methods(answer: "Correction", points: NDArray[np.int64]) -> list[AbstractEstimator]:
    """Return the estimators that served any of these points."""
    choices = answer.choices
    return [choice.method for choice in choices if np.isin(choice.points, points).any()]


def _table(levels: Sequence[Levels]) -> str:
    """Return the text of a table with one row per increment of every accumulator.

    Columns are mean, variance and kurtosis, averaged over points, and the mean cost of one
    replicate. Increments that were never sampled have no row. With several accumulators, a line
    names the points of each.
    """
    width = max((len(name) for level in levels for name in level.names), default=10)
    width = max(width, 10)
    rows = [
        f"{'increment':>{width}} {'mean':>10} {'variance':>10} {'kurtosis':>9} "
        f"{'F and g':>9} {'random numbers':>15}   per replicate"
    ]
    for level in levels:
        if len(levels) > 1:
            rows.append(f"at point {listing(level.points)}:")
        for k, cost in enumerate(level.evaluations):
            if not any(cost) and not level.mean[:, k].any():
                continue
            columns = [a[:, k] for a in (level.mean, level.variance, level.kurtosis)]
            finite = [a[np.isfinite(a)] for a in columns]
            mean, variance, kurtosis = (float(np.mean(a)) if len(a) else np.nan for a in finite)
            replicates = max(level.replicates, 1)
            functions, numbers = cost.functions / replicates, cost.random_numbers / replicates
            rows.append(
                f"{level.names[k]:>{width}} {mean:>10.3g} {variance:>10.2g} {kurtosis:>9.1f} "
                f"{_count(functions):>9} {_count(numbers):>15}"
            )
    return "\n".join(rows)


def _count(number: float) -> str:
    """Return a mean number as text; levels that few replicates sample have less than one."""
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"
