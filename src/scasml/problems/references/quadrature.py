"""The double-exponential rule for integrals over the half line, as two references use it."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray


@functools.lru_cache(maxsize=32)
def double_exponential(first: float, last: float, step: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return nodes s and weights w, such that sum(w * f(s)) approximates int_0^inf f(s) ds.

    The rule is the trapezoidal rule in y for s = exp(y - exp(-y)). The values of y run from
    `first` to `last` in steps of `step`.
    """
    y = np.arange(first, last, step)
    nodes = np.exp(y - np.exp(-y))
    return nodes, step * nodes * (1 + np.exp(-y))
