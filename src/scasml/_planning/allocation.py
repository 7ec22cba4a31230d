"""Allocation: the samples per increment that reach a standard error with the least work.

For increments of variance v_k and work c_k per sample, a standard error of 1 needs the total work
W = (sum_k sqrt(v_k c_k))^2, with samples N_k proportional to sqrt(v_k / c_k). Work is counted from
the code and not timed, so allocations are the same in every run.

With sampling="rqmc" the samples of a replicate form a Sobol net. The variance of a net of N samples
falls as N^-1 to N^-3, which the small nets of a pilot do not show. The size of a replicate is
chosen as if the variance fell as N^-2.5. If it falls more slowly, more replicates do nearly as well
as larger ones. If it falls faster, few paths are wasted. Every replicate has a fixed overhead, such
as its scrambling. Its paths are given at least as much work as that overhead.

The last increments may be omitted where a pilot bounds what they add. The bound is then part of the
bias, and the tolerance of the rest is narrower by it. An increment is omitted if (its work over all
work) exceeds (its bound over the tolerance).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..execution.stopping import StoppingRule
from .policy import DEFAULT_POLICY, Policy


class Allocation(NamedTuple):
    """The allocation at each point."""

    samples: NDArray[np.int32]  # (points, increments)
    stderr: Floats  # the standard error aimed for
    work: Floats  # the predicted work
    omitted: Floats  # bound on the omitted increments


def allocate(
    rule: StoppingRule,
    bounds: tuple[Floats, Floats],
    work: Floats,
    value: Floats,
    variance: Floats,
    contribution: Floats | None = None,
    rate: float = 1.0,
    smallest_error: float = 1e-7,
    policy: Policy = DEFAULT_POLICY,
) -> Allocation:
    """Return the allocation for measured variances.

    **Arguments:**

    - `bounds`: fewest and most samples of each increment.
    - `work`: work of one sample of each increment.
    - `value`: the solution, (points,).
    - `variance`: variance of one sample of each increment, (points, increments).
    - `contribution`: bound on what each increment adds, of the same shape; None if no increment may
      be omitted; NaN where it is unknown.
    - `rate`: exponent of the variance of a replicate in its size: 1, except for nets.
    - `smallest_error`: relative error below which no error bar makes sense in this precision.
    """
    tiny = np.finfo(np.float32).tiny
    variance = np.maximum(np.nan_to_num(variance), tiny)
    target = np.maximum(rule.tolerance(value) / 2, smallest_error * np.abs(value) + tiny)
    included = np.full(variance.shape, True)
    samples = _samples(rule, bounds, work, variance, target, included, policy)
    omitted = np.zeros(len(value))
    if not rule.has_tolerance:
        replicates = rule.replicates or policy.planned_replicates
        stderr = np.sqrt(np.sum(variance / samples, 1) / replicates)
        target = np.maximum(stderr, target)
    if contribution is not None and (rule.has_tolerance or rule.replicates):
        omitted = _omit(samples, work, contribution, target, policy)
        samples = _samples(rule, bounds, work, variance, target, samples > 0, policy)
    remaining = np.where(samples > 0, variance / np.maximum(samples, 1), 0)
    reduction = np.minimum(policy.net_size / np.maximum(samples, 1), 1) ** (rate - 1)
    replicates = np.sum(remaining * reduction, 1) / target**2
    replicate_work = samples @ work + policy.replicate_overhead
    total = np.maximum(replicates, policy.min_replicates) * replicate_work
    return Allocation(samples, target, total, omitted)


def _omit(
    samples: NDArray[np.int32],
    work: Floats,
    contribution: Floats,
    target: Floats,
    policy: Policy,
) -> Floats:
    """Set the samples of omitted increments to 0, and return the bound on what they add."""
    omitted, may_omit = np.zeros(len(samples)), np.full(len(samples), True)
    # The first two increments are never omitted. An increment is omitted only if all later ones
    # are.
    for k in reversed(range(2, samples.shape[1])):
        of_work = samples[:, k] * work[k] / np.maximum(samples @ work, 1.0)
        of_tolerance = (omitted + contribution[:, k]) / (2 * target)
        omit = may_omit & (of_work > of_tolerance) & (of_tolerance <= policy.largest_omission)
        omitted += np.where(omit, contribution[:, k], 0)
        samples[omit, k] = 0
        may_omit = omit
    return omitted


def _samples(
    rule: StoppingRule,
    bounds: tuple[Floats, Floats],
    work: Floats,
    variance: Floats,
    target: Floats,
    included: NDArray[np.bool_],
    policy: Policy,
) -> NDArray[np.int32]:
    """Return the samples of the included increments, powers of 2 within the bounds."""
    fewest, most = bounds
    density = np.sqrt(included * variance / np.maximum(work, 1.0))
    root = np.sqrt(included * variance * work)
    largest = np.max(density, 1)
    if rule.has_tolerance:
        minimum, net = policy.min_replicates, policy.net_size
        # Samples of the largest increment in all replicates together.
        samples = largest * np.sum(root, 1) / target**2
        # The work of a replicate in any case, and the size of a net that takes as long.
        fixed = policy.replicate_overhead + (included * fewest * work)[:, 2:].sum(1)
        matching = fixed * largest / np.maximum(density[:, :2] @ work[:2], 1.0)
        efficient = net * (samples / (net * minimum)) ** (1 / policy.net_rate_for_sizing)
        size = np.minimum(np.maximum(efficient, matching), np.maximum(samples / minimum, 1))
        scale = size / largest
    else:
        scale = policy.default_samples / np.max(density[:, :2], 1)
    numbers = np.clip(density * np.nan_to_num(scale)[:, None], fewest, most)
    return np.where(included, 2 ** np.round(np.log2(numbers)), 0).astype(np.int32)
