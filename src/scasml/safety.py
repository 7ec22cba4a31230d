"""Never worse than the surrogate: how much of a correction to keep, given its noise.

Shrinking toward the surrogate by w leaves a squared error of (1 - w)^2 defect^2 + w^2 noise^2, of which Stein's formula
gives an unbiased estimate without knowing the defect, (1 - w)^2 m^2 + (2 w - 1) noise^2. Over a batch its minimum is
found among w = tau^2/(tau^2 + noise^2) for one tau, and among one w for all; and nothing is kept of a batch
of corrections that noise alone explains.
"""

import numpy as np

from .statistics import Floats, half_width

LEVEL = 0.95
CANDIDATES = 60


def kept_share(correction: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
    """The share w of each correction to keep, between 0, the surrogate, and 1, the raw estimate; 1 where it cannot be told."""
    share = np.ones_like(correction)
    usable = np.flatnonzero(np.isfinite(correction) & np.isfinite(stderr) & (stderr > 0))
    if len(usable):
        bias = np.nan_to_num(bias)
        share[usable] = _shrink(correction[usable], count[usable], stderr[usable], bias[usable])
    return share


def _shrink(m: Floats, count: Floats, stderr: Floats, bias: Floats) -> Floats:
    if len(m) == 1:
        return (np.abs(m) > half_width(LEVEL, count, stderr, bias)).astype(float)
    noise = stderr**2 + bias**2
    share = _least_risk(m**2, noise) if _is_significant(m, count, noise) else np.zeros_like(m)
    # No point is moved further than its own error bar could explain, were it the worst of the batch.
    limit = half_width(1 - (1 - LEVEL) / len(m), count, stderr, bias)
    return np.maximum(share, np.maximum(1 - limit / np.maximum(np.abs(m), 1e-300), 0))


def _is_significant(m: Floats, count: Floats, noise: Floats) -> bool:
    """Whether the sum of squares is larger than 95 % of those that noise makes: by a chi-square of the same mean and variance."""
    from scipy.special import chdtri

    freedom = np.maximum(count - 1, 5.0)  # below, the square of a t has no variance
    mean = np.sum(noise * freedom / (freedom - 2))
    variance = np.sum(noise**2 * 2 * freedom**2 * (freedom - 1) / ((freedom - 2) ** 2 * (freedom - 4)))
    scale, degrees = variance / (2 * mean), 2 * mean**2 / variance
    return bool(np.sum(m**2) > scale * chdtri(degrees, 1 - LEVEL))


def _least_risk(squares: Floats, noise: Floats) -> Floats:
    tau2 = np.geomspace(noise.min() * 1e-3, max(squares.max(), noise.max()) * 1e3, CANDIDATES)[:, None]
    candidates = np.concatenate(
        [tau2 / (tau2 + noise), np.broadcast_to(np.linspace(0, 1, CANDIDATES)[:, None], (CANDIDATES, len(noise)))]
    )
    risk = np.sum((1 - candidates) ** 2 * squares + (2 * candidates - 1) * noise, axis=1)
    return candidates[np.argmin(risk)]
