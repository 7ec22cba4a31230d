"""How often the 95 % interval covers the solution: 1000 independent repeats, on problems of every kind, small and large budgets."""

from typing import Any, NamedTuple

import numpy as np

import scasml
from cases import Case, cases
from scasml import Linearised

REPEATS, SPOILED = 1000, 0.02
SMALL, LARGE = 8, 64
# None is the Picard iteration of the case.
METHODS = {"Picard": None, "Linearised": Linearised(samples=32), "auto": "auto"}


class Coverage(NamedTuple):
    name: str
    method: str
    replicates: int
    covered: float
    without_bias: float  # of the statistical interval alone
    bias: float  # stated, over the standard error; medians
    true_bias: float  # mean error over the mean standard error


def coverage(
    case: Case, replicates: int, repeats: int = REPEATS, method: str = "Picard", **options: Any
) -> Coverage:
    """Every repeat at a point of its own, from streams of its own."""
    t, x = case.points(repeats, seed=replicates)
    rules = options or {"replicates": replicates}
    answer = scasml.correct(
        case.problem,
        case.surrogate(SPOILED),
        t,
        x,
        method=METHODS[method] or case.method,
        with_gradient=False,
        **rules,
    )
    exact = case.problem.exact(t, x)

    def share(include_bias: bool) -> float:
        low, high = answer.interval(0.95, include_bias=include_bias)
        return float(np.mean((low <= exact) & (exact <= high)))

    error = answer.raw_value - exact
    with np.errstate(divide="ignore"):  # where nothing varies, all of the error is bias
        stated, true = (
            np.median(answer.bias / answer.stderr),
            np.mean(error) / np.mean(answer.stderr),
        )
    return Coverage(
        case.name, method, replicates, share(True), share(False), float(stated), float(true)
    )


def main(*methods: str) -> None:
    """Of all methods, or of those named."""
    print(
        f"{'95 % interval, ' + str(REPEATS) + ' repeats':45} {'method':>10} {'replicates':>10} {'covers':>8} {'without bias':>13} {'bias/stderr, stated and true':>30}"
    )
    for method in methods:
        if method not in METHODS:
            raise SystemExit(
                f"intervals knows {', '.join(METHODS)}, got {method!r}: name one of these."
            )
    for method in methods or METHODS:
        good = 0
        for case in cases():
            rows = [coverage(case, replicates, method=method) for replicates in (SMALL, LARGE)]
            good += all(0.93 <= row.covered <= 0.97 for row in rows)
            for row in rows:
                print(
                    f"{row.name:45} {row.method:>10} {row.replicates:>10} {100 * row.covered:>6.1f} % {100 * row.without_bias:>11.1f} % "
                    f"{row.bias:>21.2f} {row.true_bias:>8.2f}",
                    flush=True,
                )
        print(
            f"{method}: {good} of {len(cases())} problems between 93 and 97 % at both budgets",
            flush=True,
        )
