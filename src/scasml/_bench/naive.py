"""The simulation from zero with z by weights and by path derivatives.

The benchmark prints relative L2 errors and CPU times, beside those of a prototype of the library.
"""

import time
from typing import Any

import numpy as np

from .. import Picard, Problem, correct, problems

EVALUATION_POINTS = 100
# Levels and samples of the Picard iterations.
LEVELS_AND_SAMPLES = ((1, 100), (2, 10), (2, 32), (3, 8))
# "Relative L2 error (CPU ms per point)" of the prototype for each of LEVELS_AND_SAMPLES; None where
# it was not run.
PROTOTYPE = {
    ("LQG 100d, T = 1", "weights"): ("3.7e-3 (0.4)", "2.1 (1.1)", None, "578 (13)"),
    ("LQG 100d, T = 1", "pathwise"): ("3.7e-3 (0.4)", "3.1e-3 (1.3)", "1.0e-3 (9)", "1.4e-3 (14)"),
    ("Burgers 20d, sigma0 0.25", "weights"): ("5.2e-2 (0.4)", "2.4e-2 (0.6)", None, "1.3e-2 (3.2)"),
    ("Burgers 20d, sigma0 0.25", "pathwise"): (
        "5.2e-2 (0.1)",
        "1.7e-2 (0.3)",
        "5.5e-3 (0.9)",
        "9.3e-3 (1.3)",
    ),
}


def problems_and_points() -> dict[str, tuple[Problem, Any, Any]]:
    """Return problems with times (points,) and states (points, d), uniform in a ball or a box."""
    rng, count = np.random.default_rng(0), EVALUATION_POINTS
    direction = rng.normal(size=(count, 100))
    unit = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    ball = unit * rng.uniform(size=(count, 1)) ** (1 / 100)
    return {
        "LQG 100d, T = 1": (problems.lqg(100, horizon=1.0), rng.uniform(0, 1, count), ball),
        "Burgers 20d, sigma0 0.25": (
            problems.burgers(20),
            rng.uniform(0, 0.5, count),
            rng.uniform(-0.5, 0.5, (count, 20)),
        ),
    }


def main() -> None:
    """Print errors and CPU time for every problem, gradient method and size."""
    print(
        "relative L2 error (CPU ms per point), surrogate=None, one replicate, "
        f"{EVALUATION_POINTS} points; in brackets: the prototype"
    )
    for name, (problem, t, x) in problems_and_points().items():
        exact = problem.exact(t, x)
        for gradient in ("weights", "pathwise"):
            cells = []
            for (levels, samples), prototype in zip(
                LEVELS_AND_SAMPLES, PROTOTYPE[name, gradient], strict=True
            ):
                method = Picard(levels, samples, gradient=gradient)
                simulate = lambda t, x, problem=problem, method=method: correct(
                    problem, None, t, x, method=method, replicates=1, with_gradient=False
                )
                simulate(t[:1], x[:1])  # compiles
                start = time.process_time()
                answer = simulate(t, x)
                milliseconds = (time.process_time() - start) / len(t) * 1e3
                error = np.linalg.norm(answer.value - exact) / np.linalg.norm(exact)
                cells.append(
                    f"n={levels} M={samples}: {error:.1e} ({milliseconds:.1f}) "
                    f"[{prototype or 'not run'}]"
                )
            print(f"{name}, {gradient}: " + "; ".join(cells), flush=True)
