"""What adaptivity saves and what it costs: 1000 points of mixed difficulty to rtol 1e-2."""

import numpy as np

import scasml
from scasml import Picard
from scasml.paths import GeometricBrownian
from timing import cpu_seconds

POINTS, RTOL = 1000, 1e-2


def problem() -> scasml.Problem:
    """A basket call near its strike and far from it, late and early: relative noise over a decade."""
    return scasml.problems.black_scholes_basket(10)


def main() -> None:
    equation, method = problem(), Picard(2, 10)
    assert isinstance(equation.dynamics, GeometricBrownian)
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 0.9, POINTS)
    x = rng.uniform(105, 140, POINTS)[:, None] * np.exp(
        0.05 * rng.normal(size=(POINTS, equation.dim))
    )
    ask = lambda **rules: scasml.correct(
        equation, None, t, x, method=method, with_gradient=False, **rules
    )
    adaptive = ask(rtol=RTOL)
    needed = adaptive.replicates
    worst = int(needed.max())
    total = int(needed.sum())
    met = np.mean(adaptive.statuses == "converged")
    off = np.abs(adaptive.raw_value - equation.exact(t, x))
    low, high = adaptive.interval(0.95)
    covered = np.mean((low <= equation.exact(t, x)) & (equation.exact(t, x) <= high))
    print(
        f"{POINTS} points to rtol {RTOL}: {100 * met:.1f} % converged, {total:,} replicates of {needed.min()} to {worst} each, over "
        f"{worst} everywhere: {total / (worst * POINTS):.3f} (aim 0.3); error within {RTOL} at {100 * np.mean(off <= RTOL * np.abs(equation.exact(t, x))):.1f} %, "
        f"interval covers {100 * covered:.1f} %"
    )
    # The same number of rows, in one round and the same at every point.
    each = round(total / POINTS)
    seconds = cpu_seconds(
        {"adaptive": lambda: ask(rtol=RTOL), "fixed": lambda: ask(replicates=each)}, rounds=3
    )
    rows = each * POINTS
    ratio = (seconds["adaptive"] / total) / (seconds["fixed"] / rows)
    print(f"CPU time of a replicate, adaptive / fixed: {ratio:.3f} (aim 1.1)")
