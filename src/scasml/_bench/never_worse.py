"""Errors of the surrogate, of its raw correction, and of its correction with `safe=True`.

The benchmark checks, by errors over many batches of points, that a safe correction is on average
not worse than the surrogate.
"""

from typing import NamedTuple

import numpy as np

from .. import correct
from .known_solutions import Case, cases

BATCHES, POINTS_PER_BATCH = 200, 64
# Size and roughness of the error of a surrogate. The correction is much larger than its standard
# error, about as large, and much smaller.
PERTURBATIONS = ((0.03, 1.0), (0.03, 8.0), (0.03, 30.0))
REPLICATES = (8, 32)


class Errors(NamedTuple):
    """Root mean square errors over all points of all batches."""

    surrogate: float
    raw: float
    safe: float
    # Fraction of the points where the safe correction is worse than the surrogate, and the interval
    # misses the solution too.
    worse: float


def errors(
    case: Case, size: float, roughness: float, replicates: int, batches: int = BATCHES
) -> Errors:
    """Correct a surrogate with an error of that size and roughness, and return the errors.

    It is corrected at `batches` batches of points, with `replicates` replicates at each point.
    """
    squares, worse = np.zeros(3), 0.0
    surrogate = case.surrogate(size, roughness)  # one function for all batches: compiled once
    for batch in range(batches):
        t, x = case.points(POINTS_PER_BATCH, seed=1000 + batch)
        answer = correct(
            case.problem,
            surrogate,
            t,
            x,
            method=case.method,
            replicates=replicates,
            with_gradient=False,
            seed=batch,
        )
        exact = case.problem.exact(t, x)
        values = (answer.surrogate_value, answer.raw_value, answer.value)
        absolute = [np.abs(a - exact) for a in values]
        squares += [np.mean(a**2) for a in absolute]
        low, high = answer.interval(0.95)
        worse += np.mean((absolute[2] > absolute[0]) & ((exact < low) | (exact > high)))
    surrogate_error, raw, safe = np.sqrt(squares / batches)
    return Errors(surrogate_error, raw, safe, worse / batches)


def main() -> None:
    """Print the errors of all cases that have a surrogate."""
    title = f"rms error over {BATCHES} batches of {POINTS_PER_BATCH}"
    print(
        f"{title:38} {'size':>6} {'rough':>6} {'replicates':>10} {'surrogate':>10} {'raw':>10} "
        f"{'safe':>10} {'safe^2/best^2':>14} {'worse':>7}"
    )
    for case in cases():
        if case.solution is None:
            continue
        for size, roughness in PERTURBATIONS:
            for replicates in REPLICATES:
                found = errors(case, size, roughness, replicates)
                ratio = (found.safe / min(found.surrogate, found.raw)) ** 2
                print(
                    f"{case.name:38} {size:>6} {roughness:>6} {replicates:>10} "
                    f"{found.surrogate:>10.2e} {found.raw:>10.2e} {found.safe:>10.2e} "
                    f"{ratio:>14.3f} {100 * found.worse:>5.1f} %",
                    flush=True,
                )
