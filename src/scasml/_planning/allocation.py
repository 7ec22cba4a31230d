"""Allocation: the samples per increment that reach a standard error with the least work.

`allocate` takes a stopping rule, and the work and the variance of one sample of each increment. It
returns an `Allocation`. Work is counted from the code and not timed, so allocations are the same in
every run.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._support.types import Floats
from ..execution.stopping import StoppingRule
from .policy import DEFAULT_POLICY, Policy


class Allocation(NamedTuple):
    """The allocation at each point. Arrays without a stated shape are (points,)."""

    samples: NDArray[np.int32]  # of one replicate, (points, increments); 0 omits an increment
    stderr: Floats  # the standard error aimed for
    work: Floats  # the predicted work of all replicates
    omitted: Floats  # bound on what the omitted increments add


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

    - `rule`: the stopping rule of the user. Without a tolerance, the policy sets the size of a
      replicate, and `Allocation.stderr` is what the planned replicates reach.
    - `bounds`: fewest and most samples of each increment, each (increments,).
    - `work`: work of one sample of each increment, (increments,).
    - `value`: an estimate of the solution, (points,).
    - `variance`: variance of one sample of each increment, (points, increments).
    - `contribution`: bound on what each increment adds, of the same shape; None if no increment may
      be omitted; NaN where it is unknown.
    - `rate`: the exponent a in (variance of a replicate) ~ (its samples)^-a: 1, except for nets.
    - `smallest_error`: the smallest relative standard error to aim for; rounding hides smaller
      ones.
    - `policy`: the constants of the choice.
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
    total = np.maximum(replicates, rule.min_replicates) * replicate_work
    return Allocation(samples, target, total, omitted)


def _omit(
    samples: NDArray[np.int32],
    work: Floats,
    contribution: Floats,
    target: Floats,
    policy: Policy,
) -> Floats:
    """Set the entries of omitted increments in `samples` to 0, and bound what they add.

    The bound has shape (points,). It counts as bias, and the statistical error must be smaller by
    it. `target` (points,) is half the tolerance if there is one, and the standard error aimed for
    otherwise.

    The increments are tried from the last one backwards, and never the first two. An increment is
    omitted if all later ones are, if its fraction of the work exceeds (the bounds of it and all
    later ones) over the tolerance, and if that quotient is at most `largest_omission`.
    """
    omitted, may_omit = np.zeros(len(samples)), np.full(len(samples), True)
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
    """Return the samples of one replicate, (points, increments), powers of 2 within the bounds.

    Increment k has the variance v_k and the work c_k per sample. The least work for a standard
    error of 1 is (sum_k sqrt(v_k c_k))^2, with samples N_k proportional to sqrt(v_k / c_k).
    Increments that are not `included` (points, increments) get 0 samples.
    """
    fewest, most = bounds
    density = np.sqrt(included * variance / np.maximum(work, 1.0))
    scale = sample_scale(rule, fewest, work, variance, target, included, policy)
    numbers = np.clip(density * scale[:, None], fewest, most)
    return np.where(included, 2 ** np.round(np.log2(numbers)), 0).astype(np.int32)


def sample_scale(
    rule: StoppingRule,
    fewest: Floats,
    work: Floats,
    variance: Floats,
    target: Floats,
    included: NDArray[np.bool_],
    policy: Policy,
) -> Floats:
    """Return the factor s, (points,), with which increment k has s sqrt(v_k / c_k) samples.

    `work` is (increments,) or (points, increments). The other arguments are those of `allocate`;
    `included` (points, increments) says which increments are not omitted.
    """
    density = np.sqrt(included * variance / np.maximum(work, 1.0))
    root = np.sqrt(included * variance * work)
    largest = np.max(density, 1)
    if not rule.has_tolerance:
        return np.nan_to_num(policy.default_samples / np.max(density[:, :2], 1))
    minimum, net = rule.min_replicates, policy.net_size
    # Samples of the largest increment in all replicates together.
    samples = largest * np.sum(root, 1) / target**2
    # The work of a replicate whatever the size of its nets, such as their scrambling, and the size
    # of a net that takes as much work. The nets are at least that large.
    fixed = policy.replicate_overhead + (included * fewest * work)[:, 2:].sum(1)
    of_base = np.sum(density[:, :2] * np.broadcast_to(work, density.shape)[:, :2], 1)
    matching = fixed * largest / np.maximum(of_base, 1.0)
    # With sampling="rqmc" the samples of a replicate form a Sobol net. The variance of the mean
    # over a net of N samples falls as N^-1 to N^-3. A pilot has small nets, from which this
    # exponent cannot be estimated. The size is chosen as if the variance fell as N^-2.5. If it
    # falls more slowly, more replicates are nearly as efficient as larger ones. If it falls
    # faster, few paths are wasted.
    efficient = net * (samples / (net * minimum)) ** (1 / policy.net_rate_for_sizing)
    size = np.minimum(np.maximum(efficient, matching), np.maximum(samples / minimum, 1))
    return np.nan_to_num(size / largest)
