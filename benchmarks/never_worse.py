"""Never worse than the surrogate: mean squared errors over batches, raw and with `safe=True`."""

from typing import NamedTuple

import numpy as np

import scasml
from cases import Case, cases

BATCHES, POINTS = 200, 64
# The size and the roughness of what a surrogate is spoiled by: its correction stands out of its noise, equals it, drowns in it.
SPOILED = ((0.03, 1.0), (0.03, 8.0), (0.03, 30.0))
REPLICATES = (8, 32)


class Errors(NamedTuple):
    """Root mean squares over all batches, and the share of points made worse whose interval misses the solution."""

    surrogate: float
    raw: float
    safe: float
    worse: float


def errors(
    case: Case, size: float, roughness: float, replicates: int, batches: int = BATCHES
) -> Errors:
    squares, worse, surrogate = (
        np.zeros(3),
        0.0,
        case.surrogate(size, roughness),
    )  # one function: compiled once
    for batch in range(batches):
        t, x = case.points(POINTS, seed=1000 + batch)
        answer = scasml.correct(
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
        off = [np.abs(a - exact) for a in (answer.surrogate_value, answer.raw_value, answer.value)]
        squares += [np.mean(a**2) for a in off]
        low, high = answer.interval(0.95)
        worse += np.mean((off[2] > off[0]) & ((exact < low) | (exact > high)))
    return Errors(*np.sqrt(squares / batches), worse / batches)


def main() -> None:
    title = f"rms error over {BATCHES} batches of {POINTS}"
    print(
        f"{title:38} {'size':>6} {'rough':>6} {'replicates':>10} {'surrogate':>10} {'raw':>10} {'safe':>10} {'safe^2/best^2':>14} {'worse':>7}"
    )
    for case in cases():
        if case.solution is None:
            continue
        for size, roughness in SPOILED:
            for replicates in REPLICATES:
                e = errors(case, size, roughness, replicates)
                print(
                    f"{case.name:38} {size:>6} {roughness:>6} {replicates:>10} {e.surrogate:>10.2e} {e.raw:>10.2e} {e.safe:>10.2e} "
                    f"{(e.safe / min(e.surrogate, e.raw)) ** 2:>14.3f} {100 * e.worse:>5.1f} %",
                    flush=True,
                )
