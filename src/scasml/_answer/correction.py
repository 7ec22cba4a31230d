"""The answer: values, error bars, what they cost, and why each point stopped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._equations.problem import AbstractEquation, Problem
from .._io import plots, tables
from .._support.errors import ArgumentError
from ..estimators.base import AbstractEstimator, Evaluations
from ..execution.moments import LEVEL, half_width
from ..execution.stopping import Budget
from .diagnosis import Diagnosis, Levels, Tails, diagnose

CONVERGED = "converged"
EXHAUSTED = "budget exhausted"
NOT_FINITE = "not finite"
KEPT = "kept the surrogate"
TOO_BIASED = "bias above tolerance"
UNKNOWN = "bias unknown"
LATE = "over time"
INTERRUPTED = "interrupted"
# Of an error bar: a bias that is not worth a word.
UNSEEN = 1e-3


class Round(NamedTuple):
    """How far a run was after a round: replicates per point, seconds, half of the 95 % interval, its median and maximum, and the median bias."""

    replicates: float
    seconds: float
    median: float
    worst: float
    bias: float


class Choice(NamedTuple):
    """The points that one estimator served, what it started from ("the surrogate", ...), and why it was taken."""

    points: NDArray[np.int64]
    method: AbstractEstimator
    control: str
    reason: str


class Preparation(NamedTuple):
    """The surrogate of an answer by `solve`, whether it was "trained" or "loaded", and in how many seconds."""

    surrogate: Any
    verb: str
    seconds: float


@dataclass(frozen=True)
class Cost:
    """What the whole answer took. `functions` is the paper's FE, `random_numbers` its RV or RN, summed over points and replicates."""

    evaluations: Evaluations
    replicates: int
    seconds: float

    @property
    def functions(self) -> int:
        return self.evaluations.functions

    @property
    def random_numbers(self) -> int:
        return self.evaluations.random_numbers


@dataclass(frozen=True, repr=False)
class Correction:
    """Corrected values at the points asked for; NumPy float64 arrays, or scalars for a scalar query.

    `value` is `surrogate_value` plus the share `kept_share` of the raw correction (all of it with `safe=False`);
    `raw_value` has all of it. `stderr` is the standard error of the raw value, over replicates: the statistical part of
    the error. `bias` is an estimate of the size of the rest, NaN where it cannot be told. So for
    `gradient_stderr` and `gradient_bias`. `steps` is how many a path was taken in, 0 for paths drawn exactly;
    `gradient_method` is what `gradient="auto"` came to.
    """

    t: Any
    x: Any
    value: Any
    stderr: Any
    surrogate_value: Any
    correction: Any
    raw_value: Any
    kept_share: Any
    bias: Any
    gradient: NDArray[Any] | None
    gradient_stderr: NDArray[Any] | None
    gradient_bias: NDArray[Any] | None
    status: Any
    replicates: Any
    steps: Any
    gradient_method: Any
    cost: Cost
    method: AbstractEstimator | Literal["auto"]  # as asked for
    problem: AbstractEquation
    has_surrogate: bool
    budget: Budget
    stopped: str
    history: tuple[Round, ...]
    levels: tuple[Levels, ...]
    tails: Tails
    choices: tuple[Choice, ...] = ()  # who served which points, and why
    preparation: Preparation | None = None  # of an answer by `solve`

    def interval(self, level: float = 0.95, include_bias: bool = True) -> tuple[Any, Any]:
        """The Student t confidence interval about the raw value, widened for a bias of either sign.

        It does not shrink with `safe`: its coverage is that of the raw estimate, and the value may lie off its
        middle. A bias that cannot be told is not in it.
        """
        if (
            isinstance(level, bool)
            or not isinstance(level, int | float | np.number)
            or not 0 < float(level) < 1
        ):
            raise ArgumentError(
                f"level must be between 0 and 1, got {level!r}: pass 0.95 for a 95 % interval."
            )
        half = self._half_width(float(level), include_bias)
        return self.raw_value - half, self.raw_value + half

    def _half_width(self, level: float, include_bias: bool = True) -> Any:
        return half_width(level, self.replicates, self.stderr, self.bias if include_bias else 0.0)[
            ()
        ]

    @property
    def statuses(self) -> NDArray[Any]:
        """`status` as an array, of one element for a scalar query."""
        return np.atleast_1d(np.asarray(self.status, object))

    @property
    def missed(self) -> NDArray[np.int64]:
        """The points that missed a tolerance that was asked for, or have no finite answer."""
        return np.flatnonzero(np.atleast_1d(self.unmet))

    @property
    def unmet(self) -> NDArray[np.bool_]:
        fine = (
            [CONVERGED, KEPT]
            if self.budget.has_tolerance
            else [CONVERGED, KEPT, EXHAUSTED, INTERRUPTED, LATE]
        )
        return ~np.isin(self.statuses.astype(str), fine)

    def diagnose(self) -> Diagnosis:
        """In plain words what is wrong and what to do, and the levels with their mean, variance, kurtosis and cost."""
        return diagnose(self)

    def exact(self) -> Any:
        """The reference solution at the same points, or None if the problem has none."""
        known = isinstance(self.problem, Problem) and self.problem.reference is not None
        return self.problem.exact(self.t, self.x) if known else None  # type: ignore[union-attr]

    def save(self, path: str | Path) -> None:
        """Write to .csv, .npy (one record per point) or .npz (one array per quantity)."""
        tables.write(path, self.columns(gradient=True))

    def columns(self, gradient: bool = False) -> dict[str, NDArray[Any]]:
        """Every quantity by name, one row per point; gradients as (B, d)."""
        lower, upper = self.interval(LEVEL)
        columns: dict[str, Any] = {
            "t": self.t,
            "x": np.atleast_2d(self.x),
            "value": self.value,
            "stderr": self.stderr,
            "lower95": lower,
            "upper95": upper,
            "surrogate": self.surrogate_value,
            "correction": self.correction,
            "raw_value": self.raw_value,
            "kept_share": self.kept_share,
            "bias": self.bias,
            "replicates": self.replicates,
            "steps": self.steps,
            "status": self.status,
        }
        if gradient and self.gradient is not None:
            for name in ("gradient", "gradient_stderr", "gradient_bias"):
                columns[name] = np.atleast_2d(getattr(self, name))
        return {name: np.atleast_1d(column) for name, column in columns.items()}

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` over `point` and `axis` (extra `io`)."""
        return tables.to_xarray(
            self.columns(gradient=True), {"stopped": self.stopped, "method": str(self.method)}
        )

    def plot(self, ax: Any = None) -> Any:
        """Surrogate, corrected value with its 95 % interval, and the exact value where known (extra `plot`)."""
        return plots.correction(
            value=np.atleast_1d(self.value),
            interval=tuple(np.atleast_1d(end) for end in self.interval(LEVEL)),
            surrogate=np.atleast_1d(self.surrogate_value) if self.has_surrogate else None,
            exact=None if (exact := self.exact()) is None else np.atleast_1d(exact),
            ax=ax,
        )

    def plot_convergence(self, ax: Any = None) -> Any:
        """Half of the 95 % interval after every round against the 1/sqrt(N) line (extra `plot`)."""
        if not self.history:
            raise ArgumentError(
                "history is empty, got no replicates at any point: ask for points before the horizon."
            )
        replicates, _, median, worst, bias = (
            np.array(column) for column in zip(*self.history, strict=True)
        )
        return plots.convergence(
            replicates=replicates, median=median, worst=worst, bias=bias, ax=ax
        )

    def __str__(self) -> str:
        text = _one_line(self) if np.ndim(self.value) == 0 else _table(self)
        return text if self.preparation is None else f"{text}\n{self.shares()}"

    def shares(self) -> str:
        """What share of the time of `solve` went where."""
        if (made := self.preparation) is None:
            return "corrected only"
        share = 100 * made.seconds / (made.seconds + self.cost.seconds)
        return (
            f"{made.verb} a {made.surrogate.kind} in {made.seconds:.1f} s ({share:.0f} %), "
            f"corrected it in {self.cost.seconds:.1f} s ({100 - share:.0f} %)"
        )

    __repr__ = __str__


def _digits(half_width: float, value: float) -> int:
    """Decimals that show two figures of the error bar."""
    size = half_width if np.isfinite(half_width) and half_width > 0 else abs(value) * 1e-4
    return (
        int(np.clip(1 - np.floor(np.log10(size)), 0, 12)) if np.isfinite(size) and size > 0 else 4
    )


def _bias_words(bias: float, half: float) -> str:
    """Where there is only that of rounding, and it does not show, none."""
    return (
        "bias unknown"
        if np.isnan(bias)
        else "no bias"
        if bias <= UNSEEN * half
        else f"of which bias {bias:.1g}"
    )


def _one_line(answer: Correction) -> str:
    half, value = float(answer._half_width(LEVEL)), float(answer.value)
    digits = _digits(half, value)
    if answer.status == NOT_FINITE:
        parts = [
            f"u = {answer.value} (not finite: the surrogate or the simulation returned NaN or infinity here)"
        ]
    elif not np.isfinite(half):
        parts = [
            f"u = {value:.{digits}f} with no error bar from one replicate",
            _bias_words(float(answer.bias), half),
        ]
    elif answer.kept_share == 1:
        parts = [
            f"u = {value:.{digits}f} +- {half:.{digits}f} (95 %)",
            _bias_words(float(answer.bias), half),
        ]
    else:
        low, high = answer.interval(LEVEL)
        parts = [
            f"u = {value:.{digits}f} (95 %: {low:.{digits}f} to {high:.{digits}f})",
            _bias_words(float(answer.bias), half),
        ]
    if answer.status in (KEPT, TOO_BIASED, UNKNOWN, LATE, INTERRUPTED) or (
        answer.status == EXHAUSTED and answer.budget.has_tolerance
    ):
        parts.append(answer.status)
    if answer.has_surrogate:
        parts.append(f"surrogate {answer.surrogate_value:.{digits}f}")
    count = int(answer.replicates)
    runs = "no replicates" if count == 0 else "1 replicate" if count == 1 else f"{count} replicates"
    timed = " (one second's worth)" if count and answer.budget.is_default else ""
    return ", ".join([*parts, runs + timed, f"{answer.cost.seconds:.1f} s"])


def _table(answer: Correction, shown: int = 6) -> str:
    points = len(answer.value)
    simulated = answer.replicates[answer.replicates > 0]
    least, most = int(np.min(simulated, initial=2**62)), int(np.max(simulated, initial=0))
    each = f"{most}" if least >= most else f"{least} to {most}"
    head = (
        f"{points} points, {each} replicates each, {answer.cost.seconds:.1f} s ({answer.stopped})"
    )
    rows = [
        f"{'point':>7} {'t':>7} {'u':>14} {'+- 95 %':>10} {'bias':>8} {'surrogate':>14}  status"
    ]
    half = answer._half_width(LEVEL)
    for i in range(min(points, shown)):
        digits = _digits(float(half[i]), float(answer.value[i]))
        surrogate = f"{answer.surrogate_value[i]:.{digits}f}" if answer.has_surrogate else "none"
        rows.append(
            f"{i:>7} {answer.t[i]:>7.4f} {answer.value[i]:>14.{digits}f} {half[i]:>10.{digits}f} "
            f"{answer.bias[i]:>8.1g} {surrogate:>14}  {answer.status[i]}"
        )
    if points > shown:
        names, counts = np.unique(answer.status, return_counts=True)
        rows.append(
            "    ... "
            + ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))
        )
    return "\n".join([head, *rows])
