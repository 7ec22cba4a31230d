"""The rounding error that averaging over replicates does not remove.

The rounding error along a path differs from replicate to replicate, so the standard error includes
it. The rounding error of the start is the same in all replicates. Values g(x) at points with t = T
have no replicates. These errors are measured by a second evaluation in float64.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._support.precision import cast, use_dtype
from .._support.types import Floats
from .executor import AbstractExecutor
from .local import value_and_gradient

DOUBLE = np.dtype(np.float64)


def rounding_error(
    executor: AbstractExecutor, model: Any, *columns: NDArray[Any]
) -> tuple[Floats, Floats]:
    """Return the rounding errors of a model's value (points,) and gradient (points, d).

    The columns are the arguments of the model, one row per point. The last column has the states x
    (points, d), in the dtype of the simulation. The rounding of x itself counts too.
    """
    x = columns[-1]
    value, slope = value_and_gradient(executor, model, *columns)
    error, slope_error = np.zeros_like(value), np.zeros_like(slope)
    if x.dtype != DOUBLE:
        exact = _in_double(executor, model, *columns)
        if exact is not None:
            with np.errstate(invalid="ignore"):  # values that are not finite get their own status
                error, slope_error = np.abs(exact[0] - value), np.abs(exact[1] - slope)
    with np.errstate(invalid="ignore", over="ignore"):
        return error + last_digit(x.dtype, np.linalg.norm(x * slope, axis=1)), slope_error


def last_digit(dtype: Any, *sizes: Floats) -> Floats:
    """Return the sum of eps |size| over the sizes, with the machine epsilon eps of `dtype`."""
    with np.errstate(invalid="ignore"):
        return np.finfo(dtype).eps * sum(np.nan_to_num(np.abs(size)) for size in sizes)


def _in_double(
    executor: AbstractExecutor, model: Any, *columns: NDArray[Any]
) -> tuple[Floats, Floats] | None:
    """Return value and gradient in float64, or None if the model runs in float32 only."""
    try:
        with use_dtype(DOUBLE):
            wide = (column.astype(DOUBLE) for column in columns)
            return value_and_gradient(executor, cast(model, DOUBLE), *wide)
    except TypeError:
        return None
