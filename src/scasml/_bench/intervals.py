"""How often the 95 % interval covers the solution, on problems of every kind.

For every case of `known_solutions` and every method, one call of `correct` answers 1000 random
points. The fraction of the points whose interval contains the solution is the coverage. It is
printed for a small and for a large number of replicates.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import Linearised, correct
from .known_solutions import Case, cases

# Points of a case. Each of them is an independent repeat of the experiment.
REPEATS = 1000
# Size of the wave that makes a surrogate of the solution of a case.
PERTURBATION = 0.02
# Numbers of replicates.
SMALL, LARGE = 8, 64
# None stands for the Picard iteration of the case.
METHODS = {"Picard": None, "Linearised": Linearised(samples=32), "auto": "auto"}


class Coverage(NamedTuple):
    """How often intervals cover the solution, and how large the bias is."""

    name: str
    method: str
    replicates: int
    covered: float  # fraction of the points whose interval covers the solution
    without_bias: float  # the same for intervals that the stated bias does not widen
    bias: float  # median over points of (stated bias / standard error)
    true_bias: float  # mean error over mean standard error


def coverage(
    case: Case, replicates: int, repeats: int = REPEATS, method: str = "Picard", **options: Any
) -> Coverage:
    """Correct at `repeats` points and count the intervals that cover the solution.

    `method` is a key of METHODS. `options` are stopping rules of `correct` in place of the number
    of replicates, which is then only the seed of the points.
    """
    t, x = case.points(repeats, seed=replicates)
    rules = options or {"replicates": replicates}
    answer = correct(
        case.problem,
        case.surrogate(PERTURBATION),
        t,
        x,
        method=METHODS[method] or case.method,
        with_gradient=False,
        **rules,
    )
    exact = case.problem.exact(t, x)

    def covered(include_bias: bool) -> float:
        low, high = answer.interval(0.95, include_bias=include_bias)
        return float(np.mean((low <= exact) & (exact <= high)))

    error = answer.raw_value - exact
    with np.errstate(divide="ignore"):  # the standard error is 0 if replicates do not vary
        stated = float(np.median(answer.bias / answer.stderr))
        true = float(np.mean(error) / np.mean(answer.stderr))
    return Coverage(case.name, method, replicates, covered(True), covered(False), stated, true)


def main(*methods: str) -> None:
    """Print the coverage of all methods, or of the methods with these names."""
    for method in methods:
        if method not in METHODS:
            raise SystemExit(
                f"intervals knows {', '.join(METHODS)}, got {method!r}: name one of these."
            )
    print(
        f"{f'95 % interval, {REPEATS} repeats':45} {'method':>10} {'replicates':>10} "
        f"{'covers':>8} {'without bias':>13} {'bias/stderr, stated and true':>30}"
    )
    for method in methods or METHODS:
        within = 0
        for case in cases():
            found = [coverage(case, replicates, method=method) for replicates in (SMALL, LARGE)]
            within += all(0.93 <= each.covered <= 0.97 for each in found)
            for each in found:
                print(
                    f"{each.name:45} {each.method:>10} {each.replicates:>10} "
                    f"{100 * each.covered:>6.1f} % {100 * each.without_bias:>11.1f} % "
                    f"{each.bias:>21.2f} {each.true_bias:>8.2f}",
                    flush=True,
                )
        print(
            f"{method}: {within} of {len(cases())} problems between 93 and 97 % at both budgets",
            flush=True,
        )
