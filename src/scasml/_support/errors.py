"""The errors a user can meet. Each message is one sentence: the argument, the value received, the remedy."""

import math
import numbers
import re
from collections.abc import Sequence
from typing import Any


class ScasmlError(Exception):
    """Anything scasml refuses."""


class ArgumentError(ScasmlError, ValueError):
    """An argument of the right kind with a value that cannot be used."""


class ArgumentTypeError(ScasmlError, TypeError):
    """An argument of the wrong kind."""


class FileError(ScasmlError, ValueError):
    """A file that cannot be read or written as asked."""


class ToleranceError(ScasmlError):
    """A tolerance was missed, with `throw=True`. The answer is not lost: it is here as `answer`."""

    def __init__(self, answer: Any):
        missed = [int(i) for i in answer.missed]
        statuses = ", ".join(sorted({str(s) for s in answer.statuses[missed]}))
        super().__init__(
            f"the tolerance ({answer.budget}) was missed at point {listing(missed)} ({statuses}): see error.answer.diagnose(), "
            "and give more seconds or replicates, or a wider tolerance."
        )
        self.answer = answer


class MissingExtraError(ScasmlError, ImportError):
    """An optional dependency that is not installed."""


def missing_extra(package: str, extra: str, what: str) -> MissingExtraError:
    return MissingExtraError(
        f"{what} needs {package}, which is not installed: pip install 'scasml[{extra}]'."
    )


def first_line(error: BaseException, limit: int = 120) -> str:
    """What another library said first, short enough to quote inside one sentence."""
    text = " ".join(str(error).strip().split("\n")[0].split())
    text = re.split(r"[.!?] (?=[A-Z])", text)[0].rstrip(" .:")
    text = text if len(text) <= limit else text[: limit - 3] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def brief(value: Any, limit: int = 60) -> str:
    """`repr` on one line and cut short, for quoting what was received."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # the user's own __repr__, or an int too long to print
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def listing(indices: Any, limit: int = 5) -> str:
    """`0, 4, 7 and 12 more`, for naming points by their index."""
    shown = ", ".join(str(int(i)) for i in indices[:limit])
    rest = len(indices) - limit
    return shown if rest <= 0 else f"{shown} and {rest} more"


def whole(argument: str, value: Any, at_least: int, remedy: str) -> int:
    """A whole number, or the refusal of what is not one."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ArgumentTypeError(f"{argument} must be a whole number, got {brief(value)}: {remedy}.")
    if value < at_least:
        raise ArgumentError(f"{argument} must be at least {at_least}, got {value}: {remedy}.")
    return int(value)


def number(argument: str, value: Any, remedy: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentTypeError(f"{argument} must be a number, got {brief(value)}: {remedy}.")
    if not math.isfinite(value):
        raise ArgumentError(f"{argument} must be finite, got {brief(value)}: {remedy}.")
    return float(value)


def positive(argument: str, value: Any, remedy: str, or_zero: bool = False) -> float:
    checked = number(argument, value, remedy)
    if checked < 0 or (checked == 0 and not or_zero):
        raise ArgumentError(
            f"{argument} must be {'at least 0' if or_zero else 'positive'}, got {brief(value)}: {remedy}."
        )
    return checked


def one_of(argument: str, value: Any, allowed: Sequence[str]) -> Any:
    """One of a few words."""
    if not (isinstance(value, str) and value in allowed):
        raise ArgumentError(
            f"{argument} must be one of {', '.join(allowed)}, got {brief(value)}: pick one of these."
        )
    return value
