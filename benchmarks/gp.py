"""Gaussian processes of 10,000 points: dense and sparse factor, CPU seconds, peak memory, and how far their answers are apart."""

import multiprocessing
import resource
import sys
from typing import Any, Literal

import jax
import numpy as np

from scasml import problems, surrogates
from surrogates import queries, relative

POINTS = 10_000


def fitted(factor: Literal["dense", "sparse"]) -> tuple[dict[str, Any], float, Any]:
    """Its record, the peak memory in GB of a process of its own, and values at 200 points."""
    problem = problems.burgers(20)
    model = surrogates.gp(problem, interior=POINTS, boundary=POINTS // 50, factor=factor)
    t, x = queries(problem, None, 200)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
    return dict(model.record), peak, np.asarray(jax.jit(jax.vmap(model))(t, x))


def main() -> None:
    values = {}
    for factor in ("dense", "sparse"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            record, peak, values[factor] = pool.apply(fitted, (factor,))
        print(
            f"Burgers 20d, sigma0 0.25, {POINTS:,} interior points, {factor}: {record['steps']} iterations, "
            f"{record['products']} products, {record['cpu_seconds']:.0f} CPU s, peak {peak:.2f} GB",
            flush=True,
        )
    problem = problems.burgers(20)
    t, x = queries(problem, None, 200)
    print(
        f"relative L2 error {relative(values['dense'], problem.exact(t, x)):.1e}; the two differ by {relative(values['sparse'], values['dense']):.1e}"
    )
