"""The exceptions of the library, and checks of arguments that raise them.

Each message is one sentence that names the argument, the value received and the remedy.
"""

import math
import numbers
import re
from collections.abc import Sequence
from typing import Any


class ScasmlError(Exception):
    """The base class of all exceptions that scasml raises on purpose."""


class ArgumentError(ScasmlError, ValueError):
    """An argument has the right type, but its value cannot be used."""


class ArgumentTypeError(ScasmlError, TypeError):
    """An argument has the wrong type."""


class FileError(ScasmlError, ValueError):
    """A file cannot be read or written as requested."""


class ToleranceError(ScasmlError):
    """A tolerance was missed in a call with `throw=True`. The answer is the attribute `answer`."""

    def __init__(self, answer: Any):
        missed = [int(i) for i in answer.missed]
        statuses = ", ".join(sorted({str(s) for s in answer.statuses[missed]}))
        super().__init__(
            f"the tolerance ({answer.rule}) was missed at point {listing(missed)} ({statuses}): "
            "see error.answer.diagnose(), and give more seconds or replicates, "
            "or a wider tolerance."
        )
        self.answer = answer


class MissingExtraError(ScasmlError, ImportError):
    """An optional dependency is not installed."""


def missing_extra(package: str, extra: str, what: str) -> MissingExtraError:
    """Return the error for `what`, which needs `package` from the optional group `extra`."""
    return MissingExtraError(
        f"{what} needs {package}, which is not installed: pip install 'scasml[{extra}]'."
    )


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first sentence of its message, for quoting.

    The message is cut to at most 120 characters.
    """
    text = " ".join(str(error).strip().split("\n")[0].split())
    text = re.split(r"[.!?] (?=[A-Z])", text)[0].rstrip(" .:")
    text = _cut(text, 120)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def brief(value: Any) -> str:
    """Return `repr(value)` on one line, cut to 60 characters, for quoting a received value."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a __repr__ of the user raised, or an int is too long to print
        text = f"an object of type {type(value).__name__}"
    return _cut(text, 60)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def listing(indices: Any) -> str:
    """Return a text such as `0, 4, 7, 9, 12 and 12 more`, which names points by their indices."""
    limit = 5
    shown = ", ".join(str(int(i)) for i in indices[:limit])
    rest = len(indices) - limit
    return shown if rest <= 0 else f"{shown} and {rest} more"


def whole(argument: str, value: Any, at_least: int, remedy: str) -> int:
    """Return `value` as an int.

    Raises ArgumentTypeError if it is not an integer, and ArgumentError if it is below `at_least`.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ArgumentTypeError(f"{argument} must be a whole number, got {brief(value)}: {remedy}.")
    if value < at_least:
        raise ArgumentError(f"{argument} must be at least {at_least}, got {value}: {remedy}.")
    return int(value)


def number(argument: str, value: Any, remedy: str) -> float:
    """Return `value` as a float.

    Raises ArgumentTypeError if it is not a real number, and ArgumentError if it is not finite.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentTypeError(f"{argument} must be a number, got {brief(value)}: {remedy}.")
    if not math.isfinite(value):
        raise ArgumentError(f"{argument} must be finite, got {brief(value)}: {remedy}.")
    return float(value)


def positive(argument: str, value: Any, remedy: str, or_zero: bool = False) -> float:
    """Return `value` as a positive float; with `or_zero`, zero is allowed too.

    Raises ArgumentTypeError if it is not a real number, and ArgumentError if it is out of range.
    """
    checked = number(argument, value, remedy)
    if checked < 0 or (checked == 0 and not or_zero):
        raise ArgumentError(
            f"{argument} must be {'at least 0' if or_zero else 'positive'}, "
            f"got {brief(value)}: {remedy}."
        )
    return checked


def one_of(argument: str, value: Any, allowed: Sequence[str]) -> Any:
    """Return `value` if it is one of the allowed words, and raise ArgumentError if it is not."""
    if not (isinstance(value, str) and value in allowed):
        raise ArgumentError(
            f"{argument} must be one of {', '.join(allowed)}, "
            f"got {brief(value)}: pick one of these."
        )
    return value
