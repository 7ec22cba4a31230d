"""The naive simulation with z by weights and by path derivative: the table of METHOD.md section 5, made again."""

import time

import numpy as np

import scasml
from scasml import Picard

POINTS = 100
SHAPES = ((1, 100), (2, 10), (2, 32), (3, 8))
# relative L2 error (CPU ms per point) of the prototype; None where it was not run
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


def cases() -> dict:
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(POINTS, 100))
    ball = (
        direction
        / np.linalg.norm(direction, axis=1, keepdims=True)
        * rng.uniform(size=(POINTS, 1)) ** (1 / 100)
    )
    return {
        "LQG 100d, T = 1": (scasml.problems.lqg(100, horizon=1.0), rng.uniform(0, 1, POINTS), ball),
        "Burgers 20d, sigma0 0.25": (
            scasml.problems.burgers(20),
            rng.uniform(0, 0.5, POINTS),
            rng.uniform(-0.5, 0.5, (POINTS, 20)),
        ),
    }


def main() -> None:
    print(
        "relative L2 error (CPU ms per point), surrogate=None, one replicate, 100 points; in brackets the prototype's"
    )
    for name, (problem, t, x) in cases().items():
        exact = problem.exact(t, x)
        for gradient in ("weights", "pathwise"):
            cells = []
            for (levels, samples), prototype in zip(SHAPES, PROTOTYPE[name, gradient], strict=True):
                method = Picard(levels, samples, gradient=gradient)
                scasml.correct(
                    problem, None, t[:1], x[:1], method=method, replicates=1, with_gradient=False
                )
                start = time.process_time()
                answer = scasml.correct(
                    problem, None, t, x, method=method, replicates=1, with_gradient=False
                )
                cpu = (time.process_time() - start) / POINTS * 1e3
                error = np.linalg.norm(answer.value - exact) / np.linalg.norm(exact)
                cells.append(
                    f"n={levels} M={samples}: {error:.1e} ({cpu:.1f}) [{prototype or 'not run'}]"
                )
            print(f"{name}, {gradient}: " + "; ".join(cells))
