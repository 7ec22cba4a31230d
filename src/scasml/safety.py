"""Never worse than the surrogate: how much of a correction to keep, given its noise.

Shrinking toward the surrogate by w leaves a squared error of (1 - w)^2 defect^2 + w^2 noise^2, of which Stein's formula
gives an unbiased estimate without knowing the defect, (1 - w)^2 m^2 + (2 w - 1) noise^2. Over a batch its minimum is
found among w = tau^2/(tau^2 + noise^2) for one tau, and among one w for all; and nothing is kept of a batch
of corrections that noise alone explains.
"""

import numpy as np

from .statistics import LEVEL, Floats, half_width

CANDIDATES = 60


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
    # The bias is a size, more often too large than too small: it may say that a correction is worthless, not how much it is worth.
    is_worth = _stands_out(m**2, noise + bias**2, freedom)
    share = _least_risk(m**2, noise) if is_worth else np.zeros_like(m)
    # No point is moved further than its own error bar could explain, were it the worst of many batches.
    limit = half_width(1 - _chance(len(m)) / len(m), count, stderr, bias)
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

    Below twice the noise in the mean of squares the defect is smaller than the noise, and the surrogate better than its
    correction. Few points exceed that by chance too often: by a chi-square of the same mean and variance.
    """
    from scipy.special import chdtri

    freedom = np.maximum(freedom, 5.0)  # below, the square of a t has no variance
    mean = np.sum(noise * freedom / (freedom - 2))
    variance = np.sum(noise**2 * 2 * freedom**2 * (freedom - 1) / ((freedom - 2) ** 2 * (freedom - 4)))
    scale, degrees = variance / (2 * mean), 2 * mean**2 / variance
    return bool(np.sum(squares) > max(2 * np.sum(noise), scale * chdtri(degrees, _chance(len(noise)))))


def _least_risk(squares: Floats, noise: Floats) -> Floats:
    tau2 = np.geomspace(noise.min() * 1e-3, max(squares.max(), noise.max()) * 1e3, CANDIDATES)[:, None]
    candidates = np.concatenate(
        [tau2 / (tau2 + noise), np.broadcast_to(np.linspace(0, 1, CANDIDATES)[:, None], (CANDIDATES, len(noise)))]
    )
    risk = np.sum((1 - candidates) ** 2 * squares + (2 * candidates - 1) * noise, axis=1)
    return candidates[np.argmin(risk)]
