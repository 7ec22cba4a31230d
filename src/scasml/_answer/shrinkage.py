"""Shrinkage: how much of a correction to keep, given its noise.

`kept_share` computes the fractions for a batch of points from their corrections and errors. Here
`noise` (points,) is the variance s^2 = stderr^2 + bias^2 of the error of a correction, and
`freedom` (points,) holds the degrees of freedom of its estimate.
"""

import numpy as np

from .._support.types import Floats
from ..execution.intervals import LEVEL, half_width

# Number of values of tau that are compared.
TAU_VALUES = 120
# Differences in twice the log-likelihood. A tau proportional to s is used if it is more likely than
# a common tau by EVIDENCE (150 times). The smallest tau is used that is less likely than the best
# one by at most INDIFFERENCE (2.7 times).
EVIDENCE, INDIFFERENCE = 10.0, 2.0


def kept_share(correction: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
    """Return the fraction of each correction to keep, between 0 and 1, shape (points,).

    A correction that is smaller than its own error makes an answer worse than the surrogate.
    Keeping only a fraction of it avoids this on average.

    The fraction 0 keeps the surrogate and 1 keeps the raw estimate. It is 1 where the correction or
    its standard error is not finite, or the standard error is 0.

    **Arguments**, each of shape (points,):

    - `correction`: the raw estimate minus the surrogate.
    - `count`: the number of replicates.
    - `stderr`, `bias`: the errors of the raw estimate; an unknown bias, NaN, counts as 0.
    """
    share = np.ones_like(correction)
    usable = np.flatnonzero(np.isfinite(correction) & np.isfinite(stderr) & (stderr > 0))
    if len(usable):
        bias = np.nan_to_num(bias)
        share[usable] = _shrink(correction[usable], count[usable], stderr[usable], bias[usable])
    return share


def _false_alarm_rate(points: int) -> float:
    """Return the accepted probability that a batch without any defect keeps a correction.

    It is 5 % for a batch of one point, and falls with the number of points.
    """
    return max((1 - LEVEL) / points**1.5, 1e-4)


def _shrink(m: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
    """Return the fractions for corrections `m` whose standard errors are positive.

    The defects of a batch are modelled as draws from N(0, tau^2) (empirical Bayes). The error of a
    correction has the variance s^2, so the correction is a draw from N(0, tau^2 + s^2). The
    fraction tau^2/(tau^2 + s^2) of it is kept. The likelihood of the batch estimates tau. It also
    decides between one tau for all points and a tau proportional to s. If errors alone explain the
    sizes of the corrections, tau is 0.
    """
    if len(m) == 1:
        return (np.abs(m) > half_width(LEVEL, count, stderr, bias)).astype(float)
    variance, freedom = _moderated(stderr**2, count - 1)
    noise = variance + bias**2
    share = np.zeros_like(m)
    if _exceeds_noise(m**2, noise, freedom):
        share = _likely_share(m**2, noise, freedom)
    # Shrinkage moves a value by at most half of its interval at a level close to 1. A true
    # correction that is much larger than its error bar is therefore kept.
    level = 1 - 1e-2 * _false_alarm_rate(len(m)) / len(m)
    limit = half_width(level, count, stderr, bias)
    return np.maximum(share, np.maximum(1 - limit / np.maximum(np.abs(m), 1e-300), 0))


def _moderated(variance: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Shrink variances toward each other, as far as their scatter can be estimation error.

    This is the empirical Bayes method of Smyth (2004). `variance` and `freedom`, its degrees of
    freedom, have shape (points,). Returns the new variances and their degrees of freedom.
    """
    from scipy.special import digamma, polygamma

    if len(variance) < 3:
        return variance, freedom
    logs = np.log(variance) - digamma(freedom / 2) + np.log(freedom / 2)
    scatter = np.var(logs, ddof=1) - np.mean(polygamma(1, freedom / 2))
    if scatter <= 0:
        common = np.full_like(variance, np.exp(np.mean(logs)))
        return common, np.full_like(freedom, np.sum(freedom))
    prior = 2 * _trigamma_inverse(scatter)
    common = np.exp(np.mean(logs) + digamma(prior / 2) - np.log(prior / 2))
    return (prior * common + freedom * variance) / (prior + freedom), prior + freedom


def _trigamma_inverse(value: float) -> float:
    """Solve trigamma(y) = value by Newton's method on 1/trigamma, which is nearly linear."""
    from scipy.special import polygamma

    y = 0.5 + 1 / value
    for _ in range(20):
        slope = polygamma(1, y)
        y += slope * (1 - slope / value) / polygamma(2, y)
    return float(y)


def _exceeds_noise(squares: Floats, noise: Floats, freedom: Floats) -> bool:
    """Return whether the corrections are larger than their errors can explain.

    `squares` (points,) are the squared corrections. Each is divided by the variance of its own
    error, so that precise and imprecise points count alike. The quotients are squares of t
    variables. Their sum is compared with a quantile of a scaled chi-square variable of the same
    mean and variance.
    """
    from scipy.special import chdtri

    freedom = np.maximum(freedom, 5.0)  # with 4 or less, the square of a t variable has no variance
    mean = np.sum(freedom / (freedom - 2))
    variances = 2 * freedom**2 * (freedom - 1) / ((freedom - 2) ** 2 * (freedom - 4))
    variance = np.sum(variances)
    scale, degrees = variance / (2 * mean), 2 * mean**2 / variance
    return bool(np.sum(squares / noise) > scale * chdtri(degrees, _false_alarm_rate(len(noise))))


def _likely_share(squares: Floats, noise: Floats, freedom: Floats) -> Floats:
    """Return tau^2/(tau^2 + noise), shape (points,), for the estimated tau.

    tau is the smallest value whose deviance is within INDIFFERENCE of the best. tau^2 is common to
    all points, or proportional to `noise`. The likelihood is that of t variables, so a variance
    that was underestimated by chance does not inflate tau.
    """

    def best(shape: Floats) -> tuple[float, Floats]:
        low, high = np.min(noise / shape), np.max(np.maximum(squares, noise) / shape)
        tau2 = np.geomspace(1e-2 * low, high, TAU_VALUES)[:, None] * shape
        total = tau2 + noise
        terms = np.log(total) + (freedom + 1) * np.log1p(squares / total / freedom)
        deviance = np.sum(terms, axis=1)
        least = np.flatnonzero(deviance <= deviance.min() + INDIFFERENCE)[0]
        return deviance.min(), (tau2 / total)[least]

    (common, share), (scaled, scaled_share) = best(np.ones_like(noise)), best(noise)
    return share if common <= scaled + EVIDENCE else scaled_share
