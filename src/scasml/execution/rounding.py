"""What floating point does to a value that no average over paths mends: that of the model a simulation starts from, or of g at the horizon.

Rounding along a path is another one in every replicate, and in their scatter; that of the start is the same in all of them. It is measured:
the start once more in double precision tells, with all that cancels inside of a model.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._support.precision import cast, use_dtype
from .moments import Floats

DOUBLE = np.dtype(np.float64)


def rounding_error(
    at: Callable[..., tuple[Floats, Floats]], model: Any, *points: NDArray[Any]
) -> tuple[Floats, Floats]:
    """Of the value and the slope that `at` finds of the model at these points, the last of which are the x, themselves rounded too."""
    x = points[-1]
    value, slope = at(model, *points)
    off, slope_off = np.zeros_like(value), np.zeros_like(slope)
    if x.dtype != DOUBLE:
        with use_dtype(DOUBLE):
            wide = _or_nothing(at, cast(model, DOUBLE), *(each.astype(DOUBLE) for each in points))
        if wide is not None:
            with np.errstate(invalid="ignore"):  # what is not finite is reported in the status
                off, slope_off = np.abs(wide[0] - value), np.abs(wide[1] - slope)
    with np.errstate(invalid="ignore", over="ignore"):
        return off + last_digit(x.dtype, np.linalg.norm(x * slope, axis=1)), slope_off


def last_digit(dtype: Any, *sizes: Floats) -> Floats:
    """Of numbers of these sizes that are added: a unit in the last place of each."""
    with np.errstate(invalid="ignore"):
        return np.finfo(dtype).eps * sum(np.nan_to_num(np.abs(each)) for each in sizes)


def _or_nothing(
    at: Callable[..., tuple[Floats, Floats]], *arguments: Any
) -> tuple[Floats, Floats] | None:
    """None of a model that is written for single precision alone, such as a loop that carries a float32."""
    try:
        return at(*arguments)
    except TypeError:
        return None
