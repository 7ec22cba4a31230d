"""How an answer prints: one line for one point, a table for several.

`one_line` and `table` take a `Correction` and return text.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..execution.intervals import LEVEL
from .status import Status

if TYPE_CHECKING:
    from .correction import Correction

# Bias over half width, up to which an answer prints "no bias".
INVISIBLE_BIAS = 1e-3
# Statuses that `one_line` mentions.
MENTIONED = {
    Status.KEPT_SURROGATE,
    Status.BIAS_ABOVE_TOLERANCE,
    Status.BIAS_UNKNOWN,
    Status.OVER_TIME,
    Status.INTERRUPTED,
}
# Points that a table shows at most.
SHOWN = 6


def one_line(answer: "Correction") -> str:
    """Return `u = 4.5903 +- 0.0021 (95 %), no bias, surrogate 4.62, 64 replicates, 3.1 s`.

    The answer has one point and no axis of points.
    """
    half, value = float(answer.half_width(LEVEL)), float(answer.value)
    digits = _digits(half, value)
    bias = _bias_words(float(answer.bias), half)
    if answer.status == Status.NOT_FINITE:
        parts = [
            f"u = {answer.value} (not finite: the surrogate or the simulation returned NaN or "
            "infinity here)"
        ]
    elif not np.isfinite(half):
        parts = [f"u = {value:.{digits}f} with no error bar from one replicate", bias]
    elif answer.kept_share == 1:
        parts = [f"u = {value:.{digits}f} +- {half:.{digits}f} (95 %)", bias]
    else:
        low, high = answer.interval(LEVEL)
        parts = [f"u = {value:.{digits}f} (95 %: {low:.{digits}f} to {high:.{digits}f})", bias]
    missed = answer.status == Status.BUDGET_EXHAUSTED and answer.rule.has_tolerance
    if answer.status in MENTIONED or missed:
        parts.append(str(answer.status))
    if answer.has_surrogate:
        parts.append(f"surrogate {answer.surrogate_value:.{digits}f}")
    count = int(answer.replicates)
    names = {0: "no replicates", 1: "1 replicate"}
    timed = " (one second's worth)" if count and answer.rule.is_default else ""
    replicates = names.get(count, f"{count} replicates") + timed
    return ", ".join([*parts, replicates, f"{answer.cost.seconds:.1f} s"])


def table(answer: "Correction") -> str:
    """Return the first points of an answer, and the counts of all statuses if there are more."""
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
    half, statuses = answer.half_width(LEVEL), answer.statuses
    for i in range(min(points, SHOWN)):
        digits = _digits(float(half[i]), float(answer.value[i]))
        surrogate = "none"
        if answer.has_surrogate:
            surrogate = f"{answer.surrogate_value[i]:.{digits}f}"
        rows.append(
            f"{i:>7} {answer.t[i]:>7.4f} {answer.value[i]:>14.{digits}f} "
            f"{half[i]:>10.{digits}f} {answer.bias[i]:>8.1g} {surrogate:>14}  {statuses[i]}"
        )
    if points > SHOWN:
        names, counts = np.unique(statuses.astype(str), return_counts=True)
        summary = (f"{count} {name}" for name, count in zip(names, counts, strict=True))
        rows.append("    ... " + ", ".join(summary))
    return "\n".join([head, *rows])


def _digits(half_width: float, value: float) -> int:
    """Return the number of decimals that shows two significant digits of the error bar."""
    size = half_width if np.isfinite(half_width) and half_width > 0 else abs(value) * 1e-4
    if not (np.isfinite(size) and size > 0):
        return 4
    return int(np.clip(1 - np.floor(np.log10(size)), 0, 12))


def _bias_words(bias: float, half_width: float) -> str:
    """Return the bias in words; a bias far below the half width counts as none."""
    if np.isnan(bias):
        return "bias unknown"
    return "no bias" if bias <= INVISIBLE_BIAS * half_width else f"of which bias {bias:.1g}"
