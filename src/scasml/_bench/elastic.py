"""What adaptive numbers of replicates save and cost: 1000 points of a basket call to rtol 1e-2.

An adaptive run gives each point the replicates that its tolerance needs. A uniform run gives all
points the same number. Some points are near the strike and some far from it, at early and late
times. The relative standard deviation of a replicate varies by a factor of ten between them.
"""

from typing import Any

import numpy as np

from .. import Correction, Picard, correct, problems
from .measuring import cpu_seconds

BATCH_POINTS, RTOL = 1000, 1e-2


def main() -> None:
    """Print replicates and CPU time of an adaptive run over those of a uniform run."""
    problem, method = problems.black_scholes_basket(10), Picard(2, 10)
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 0.9, BATCH_POINTS)
    x = rng.uniform(105, 140, BATCH_POINTS)[:, None] * np.exp(
        0.05 * rng.normal(size=(BATCH_POINTS, problem.dim))
    )

    def ask(**rules: Any) -> Correction:
        return correct(problem, None, t, x, method=method, with_gradient=False, **rules)

    adaptive = ask(rtol=RTOL)
    replicates = adaptive.replicates
    most, total = int(replicates.max()), int(replicates.sum())
    converged = np.mean(adaptive.statuses == "converged")
    exact = problem.exact(t, x)
    accurate = np.mean(np.abs(adaptive.raw_value - exact) <= RTOL * np.abs(exact))
    low, high = adaptive.interval(0.95)
    covered = np.mean((low <= exact) & (exact <= high))
    print(
        f"{BATCH_POINTS} points to rtol {RTOL}: {100 * converged:.1f} % converged; "
        f"{total:,} replicates, {replicates.min()} to {most} per point; "
        f"over {most} at every point: {total / (most * BATCH_POINTS):.3f} (aim 0.3); "
        f"error within {RTOL} at {100 * accurate:.1f} %; interval covers {100 * covered:.1f} %"
    )
    # The same number of rows, in one round and equally many at every point.
    uniform = round(total / BATCH_POINTS)
    seconds = cpu_seconds(
        {"adaptive": lambda: ask(rtol=RTOL), "uniform": lambda: ask(replicates=uniform)}, rounds=3
    )
    ratio = (seconds["adaptive"] / total) / (seconds["uniform"] / (uniform * BATCH_POINTS))
    print(f"CPU time of a replicate, adaptive / uniform: {ratio:.3f} (aim 1.1)")
