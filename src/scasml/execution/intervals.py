"""Confidence intervals from a mean, its standard error and a bound on its bias."""

from typing import Any

import numpy as np

from .._support.types import Floats

# Level of the interval that decides when a point is done, and whether a correction is noise.
LEVEL = 0.95
NEWTON_STEPS = 8
# Largest ratio of bias to standard error for which the quantile is solved. Beyond it, the half
# width grows by as much as the bias.
LARGEST_RELATIVE_BIAS = 1e4


def student_quantile(level: float, count: Any, bias: Any = 0.0) -> Floats:
    """Return the half width, in standard errors, of an interval with the coverage `level`.

    **Arguments:**

    - `level`: probability between 0 and 1.
    - `count`: number of Gaussian replicates in the mean. Below 2 the result is NaN.
    - `bias`: largest absolute bias, in standard errors. The half width grows by a little less than
      `bias`, because a biased error leaves the interval mostly at one end.

    `count` and `bias` are broadcast against each other, and the result has their common shape.
    """
    from scipy.special import gammaln, stdtr, stdtrit

    count, bias = np.broadcast_arrays(np.asarray(count, float), np.asarray(bias, float))
    freedom = np.maximum(count - 1, 1)
    c = np.asarray(stdtrit(freedom, 0.5 + level / 2))
    if np.any(bias > 0):
        # The coverage P(|T + bias| <= c) is concave in c from here on. So Newton's steps increase
        # toward the solution and stay below it.
        c = np.maximum(c, stdtrit(freedom, level) + bias)
        scale = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(freedom * np.pi)
        density = lambda x: np.exp(scale - (freedom + 1) / 2 * np.log1p(x**2 / freedom))
        for _ in range(NEWTON_STEPS):
            missing = level - stdtr(freedom, c - bias) + stdtr(freedom, -c - bias)
            c = c + missing / (density(c - bias) + density(c + bias))
    return np.where(count > 1, c, np.nan)


def half_width(level: float, count: Any, stderr: Any, bias: Any) -> Floats:
    """Return the half width of the interval with the coverage `level`.

    The interval is for a mean over `count` replicates with the standard error `stderr`. `bias` is a
    bound on the absolute bias. NaN means that it is unknown, and counts as 0. The arrays are
    broadcast against each other.
    """
    stderr, bias = np.asarray(stderr, float), np.nan_to_num(np.asarray(bias, float))
    relative = np.divide(
        bias, stderr, out=np.zeros(np.broadcast(bias, stderr).shape), where=stderr > 0
    )
    solved = np.minimum(relative, LARGEST_RELATIVE_BIAS)
    quantile = student_quantile(level, count, solved) + relative - solved
    return np.where(stderr == 0, bias, quantile * stderr)
