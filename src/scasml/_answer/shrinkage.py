"""Never worse than the surrogate: how much of a correction to keep, given its noise.

Empirical Bayes: the defects of a batch are taken for draws from N(0, tau^2), so that a correction m with noise is one from
N(0, tau^2 + noise^2), and tau^2/(tau^2 + noise^2) of it is kept. The batch tells tau by its likelihood, which weighs each
correction by its own noise, and tells too if tau goes with the noise. Nothing is kept of a batch that noise alone explains.
"""

import numpy as np

from ..execution.moments import LEVEL, Floats, half_width

CANDIDATES = 120
# In twice the logarithm of a likelihood: how much likelier defects must be that go with the noise than defects that do not,
# 150 times, and how much less likely a smaller tau may be than the likeliest, 2.7 times.
EVIDENCE, DOUBT = 10.0, 2.0


def kept_share(correction: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
    """The share w of each correction to keep, between 0, the surrogate, and 1, the raw estimate; 1 where it cannot be told."""
    share = np.ones_like(correction)
    usable = np.flatnonzero(np.isfinite(correction) & np.isfinite(stderr) & (stderr > 0))
    if len(usable):
        bias = np.nan_to_num(bias)
        share[usable] = _shrink(correction[usable], count[usable], stderr[usable], bias[usable])
    return share


def _chance(points: int) -> float:
    """Of a false alarm: as for a single point for a few of them, and none to speak of for a batch, which need not take any."""
    return max((1 - LEVEL) / points**1.5, 1e-4)


def _shrink(m: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
    if len(m) == 1:
        return (np.abs(m) > half_width(LEVEL, count, stderr, bias)).astype(float)
    noise, freedom = _moderated(stderr**2, count - 1)
    noise = noise + bias**2
    share = _likely(m**2, noise, freedom) if _stands_out(m**2, noise, freedom) else np.zeros_like(m)
    # No point is moved further than its own error bar could explain, were it the worst of a million batches.
    limit = half_width(1 - 1e-2 * _chance(len(m)) / len(m), count, stderr, bias)
    return np.maximum(share, np.maximum(1 - limit / np.maximum(np.abs(m), 1e-300), 0))


def _moderated(variance: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Estimated variances, and their degrees of freedom, drawn toward each other as far as their scatter is that of estimates (Smyth 2004)."""
    from scipy.special import digamma, polygamma

    if len(variance) < 3:
        return variance, freedom
    logs = np.log(variance) - digamma(freedom / 2) + np.log(freedom / 2)
    scatter = np.var(logs, ddof=1) - np.mean(polygamma(1, freedom / 2))
    if scatter <= 0:
        return np.full_like(variance, np.exp(np.mean(logs))), np.full_like(freedom, np.sum(freedom))
    prior = 2 * _trigamma_inverse(scatter)
    common = np.exp(np.mean(logs) + digamma(prior / 2) - np.log(prior / 2))
    return (prior * common + freedom * variance) / (prior + freedom), prior + freedom


def _trigamma_inverse(value: float) -> float:
    from scipy.special import polygamma

    y = 0.5 + 1 / value
    for _ in range(20):  # Newton on 1/trigamma, which is nearly linear
        slope = polygamma(1, y)
        y += slope * (1 - slope / value) / polygamma(2, y)
    return float(y)


def _stands_out(squares: Floats, noise: Floats, freedom: Floats) -> bool:
    """Whether the corrections are larger than their noise, beyond chance.

    Each in units of its own noise: a few points that are sure are not drowned by many that are not. The sum of squares of
    t variables is compared with a chi-square of the same mean and variance.
    """
    from scipy.special import chdtri

    freedom = np.maximum(freedom, 5.0)  # below, the square of a t has no variance
    mean = np.sum(freedom / (freedom - 2))
    variance = np.sum(2 * freedom**2 * (freedom - 1) / ((freedom - 2) ** 2 * (freedom - 4)))
    scale, degrees = variance / (2 * mean), 2 * mean**2 / variance
    return bool(np.sum(squares / noise) > scale * chdtri(degrees, _chance(len(noise))))


def _likely(squares: Floats, noise: Floats, freedom: Floats) -> Floats:
    """tau^2/(tau^2 + noise) for the least tau that is likely: one for all, or one times the noise.

    By the likelihood of t variables: a noise that was estimated too small by chance makes no tau.
    """

    def best(shape: Floats) -> tuple[float, Floats]:
        low, high = np.min(noise / shape), np.max(np.maximum(squares, noise) / shape)
        tau2 = np.geomspace(1e-2 * low, high, CANDIDATES)[:, None] * shape
        total = tau2 + noise
        surprise = np.sum(
            np.log(total) + (freedom + 1) * np.log1p(squares / total / freedom), axis=1
        )
        least = np.flatnonzero(surprise <= surprise.min() + DOUBT)[0]
        return surprise.min(), (tau2 / total)[least]

    (one, share), (other, proportional) = best(np.ones_like(noise)), best(noise)
    return share if one <= other + EVIDENCE else proportional
