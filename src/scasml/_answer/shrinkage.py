"""Shrinkage: how much of a correction to keep, given its noise.

Keeping less of a noisy correction makes the answer better, on average, than the surrogate.

The defects of a batch are taken as draws from N(0, tau^2) (empirical Bayes). A correction m with
noise is then a draw from N(0, tau^2 + noise^2), and the fraction tau^2/(tau^2 + noise^2) of it is
kept. The likelihood of the batch estimates tau. It weights each correction by its own noise, and
decides between one tau for all points and a tau proportional to the noise of each point. If noise
alone explains a batch, nothing is kept.
"""

import numpy as np

from .._support.types import Floats
from ..execution.intervals import LEVEL, half_width

# Values of tau that are compared.
TAU_VALUES = 120
# Differences in twice the log-likelihood. A tau proportional to the noise must be this much more
# likely (150 times) than a common tau. A smaller tau is preferred if it is this much less likely
# (2.7 times) at most.
EVIDENCE, INDIFFERENCE = 10.0, 2.0


def kept_share(correction: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
    """Return the fraction of each correction to keep.

    0 keeps the surrogate, 1 the raw estimate. The fraction is 1 where it cannot be estimated. All
    arguments have shape (points,).
    """
    share = np.ones_like(correction)
    usable = np.flatnonzero(np.isfinite(correction) & np.isfinite(stderr) & (stderr > 0))
    if len(usable):
        bias = np.nan_to_num(bias)
        share[usable] = _shrink(correction[usable], count[usable], stderr[usable], bias[usable])
    return share


def _false_alarm_rate(points: int) -> float:
    """Return the probability that noise alone is taken for a correction.

    It is 5 % for one point, and falls with the size of the batch.
    """
    return max((1 - LEVEL) / points**1.5, 1e-4)


def _shrink(m: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
    """Return the fractions for corrections `m` whose standard errors are positive."""
    if len(m) == 1:
        return (np.abs(m) > half_width(LEVEL, count, stderr, bias)).astype(float)
    variance, freedom = _moderated(stderr**2, count - 1)
    noise = variance + bias**2
    share = np.zeros_like(m)
    if _exceeds_noise(m**2, noise, freedom):
        share = _likely_share(m**2, noise, freedom)
    # No point moves further than its own error bar could explain, even in a million batches.
    level = 1 - 1e-2 * _false_alarm_rate(len(m)) / len(m)
    limit = half_width(level, count, stderr, bias)
    return np.maximum(share, np.maximum(1 - limit / np.maximum(np.abs(m), 1e-300), 0))


def _moderated(variance: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Shrink estimated variances toward each other, as far as their scatter is estimation noise.

    Returns the variances and their degrees of freedom (Smyth 2004).
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
    """Return whether the corrections are larger than their noise, beyond chance.

    Each square is divided by its own noise, so that a few precise points count as much as many
    noisy ones. The sum of squares of t variables is compared with a scaled chi-square of the same
    mean and variance.
    """
    from scipy.special import chdtri

    freedom = np.maximum(freedom, 5.0)  # below 5, the square of a t variable has no variance
    mean = np.sum(freedom / (freedom - 2))
    variances = 2 * freedom**2 * (freedom - 1) / ((freedom - 2) ** 2 * (freedom - 4))
    variance = np.sum(variances)
    scale, degrees = variance / (2 * mean), 2 * mean**2 / variance
    return bool(np.sum(squares / noise) > scale * chdtri(degrees, _false_alarm_rate(len(noise))))


def _likely_share(squares: Floats, noise: Floats, freedom: Floats) -> Floats:
    """Return tau^2/(tau^2 + noise) for the smallest tau that is likely enough.

    tau is common to all points, or proportional to the noise. The likelihood is that of t
    variables, so a noise that was underestimated by chance does not inflate tau.
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
