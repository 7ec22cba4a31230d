"""How many samples of each increment a replicate takes at a point, from the variances of a pilot and counted operations.

For increments of variance v_k and of c_k operations a sample, an error bar of one takes the work W = (sum_k sqrt(v_k c_k))^2, with N_k in
proportion to sqrt(v_k/c_k). Operations are counted off the code and not timed, so the numbers are the same in every run.

The variance of a net falls as N^-1 to N^-3, which the small ones of a pilot do not tell. A replicate is as large as would leave the fewest
replicates were it N^-2.5: if it falls slower, a few more replicates of it are nearly as good as larger ones; if faster, few paths are wasted.
And its paths take no less than what every replicate takes: its scrambles, and the fewest samples of the dear increments.

A last increment that is known to add at most b may be left out, and b added to the bias. The tolerance is then narrower by b, and the
work less by the share of the increment: it is left out where its share of the work is larger than that of b in the tolerance, and b
a small part of it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..execution.moments import Floats
from ..execution.stopping import FIRST, Budget

# Replicates that are counted on, and how large a net of the pilot is.
REPLICATES, NET = 32, 32
# By which power of their size the variance of nets is thought to fall, and by which it is counted on to.
RATE, COUNTED_ON = 2.5, 1.5
# Operations of a replicate, whatever its samples: its scrambles, and a hundred calls inside XLA (20 us in 10 dimensions, 90 in 100).
REPLICATE = 5e5
# Samples of a replicate where no tolerance says.
SAMPLES = 128
# Of the value: no error bar is smaller in float32.
SMALLEST = 1e-7
# Of the tolerance: what is left out is at most so much.
LEFT_OUT = 0.1


class Allocation(NamedTuple):
    """At each point."""

    counts: NDArray[np.int32]  # of each increment
    stderr: Floats  # that is aimed at
    work: Floats  # that it takes, in operations
    left_out: Floats  # at most what the increments add that are not taken


def allocate(
    budget: Budget,
    bounds: tuple[Floats, Floats],
    work: Floats,
    value: Floats,
    variance: Floats,
    adds: Floats | None = None,
    rate: float = 1.0,
) -> Allocation:
    """For the variance of one sample of each increment (points, increments), and at most what each of them adds, if the last may be left out.

    `rate` is the power of its size by which the variance of a replicate is counted on to fall: 1, but for nets.
    """
    tiny = np.finfo(np.float32).tiny
    variance = np.maximum(np.nan_to_num(variance), tiny)
    target = np.maximum(budget.tolerance(value) / 2, SMALLEST * np.abs(value) + tiny)
    counts = _counts(budget, bounds, work, variance, target, np.full(variance.shape, True))
    left_out = np.zeros(len(value))
    if not budget.has_tolerance:
        stderr = np.sqrt(np.sum(variance / counts, 1) / (budget.replicates or REPLICATES))
        target = np.maximum(stderr, target)
    if adds is not None and (budget.has_tolerance or budget.replicates):
        taken = np.full(len(value), True)
        for k in reversed(range(2, counts.shape[1])):
            of_work = counts[:, k] * work[k] / np.maximum(counts @ work, 1.0)
            of_tolerance = (left_out + adds[:, k]) / (2 * target)
            # Only the last of those that are left; and not where its size is unknown.
            out = taken & (of_work > of_tolerance) & (of_tolerance <= LEFT_OUT)
            left_out += np.where(out, adds[:, k], 0)
            counts[out, k] = 0
            taken = out
        counts = _counts(budget, bounds, work, variance, target, counts > 0)
    deviates = np.where(counts > 0, variance / np.maximum(counts, 1), 0)
    replicates = (
        np.sum(deviates * np.minimum(NET / np.maximum(counts, 1), 1) ** (rate - 1), 1) / target**2
    )
    return Allocation(
        counts, target, np.maximum(replicates, FIRST) * (counts @ work + REPLICATE), left_out
    )


def _counts(
    budget: Budget,
    bounds: tuple[Floats, Floats],
    work: Floats,
    variance: Floats,
    target: Floats,
    kept: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """Of the increments that are kept."""
    fewest, most = bounds
    share, root = np.sqrt(kept * variance / np.maximum(work, 1.0)), np.sqrt(kept * variance * work)
    largest = np.max(share, 1)
    if budget.has_tolerance:
        samples = largest * np.sum(root, 1) / target**2  # of any increment, in all replicates
        # What a replicate takes in any case, and a net that takes as long.
        least = REPLICATE + (kept * fewest * work)[:, 2:].sum(1)
        enough = least * largest / np.maximum(share[:, :2] @ work[:2], 1.0)
        net = np.minimum(
            np.maximum(NET * (samples / (NET * FIRST)) ** (1 / RATE), enough),
            np.maximum(samples / FIRST, 1),
        )
        scale = net / largest
    else:
        scale = SAMPLES / np.max(share[:, :2], 1)
    counts = np.clip(share * np.nan_to_num(scale)[:, None], fewest, most)
    return np.where(kept, 2 ** np.round(np.log2(counts)), 0).astype(np.int32)
