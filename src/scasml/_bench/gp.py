"""Gaussian processes of 10,000 points with a dense and with a sparse factor.

The benchmark prints CPU seconds, peak memory, and the difference of their values.
"""

import multiprocessing
from typing import Any, Literal

import jax
import numpy as np

from .. import problems, surrogates
from .measuring import peak_gigabytes, relative_error, uniform_points

INTERIOR_POINTS = 10_000


def fit(
    factor: Literal["dense", "sparse"], interior: int
) -> tuple[dict[str, Any], float, np.ndarray]:
    """Fit a Gaussian process to Burgers' equation in 20 dimensions.

    Returns the training record, the peak memory in GB, and values at 200 points, (200,). The peak
    memory is that of the whole process, so each fit needs a process of its own. `interior` is the
    number of interior points.
    """
    problem = problems.burgers(20)
    model = surrogates.gp(problem, interior=interior, boundary=interior // 50, factor=factor)
    t, x = uniform_points(problem, None, 200)
    return dict(model.record), peak_gigabytes(), np.asarray(jax.jit(jax.vmap(model))(t, x))


def main(interior: str = str(INTERIOR_POINTS)) -> None:
    """Print both fits, with the given number of interior points."""
    values = {}
    for factor in ("dense", "sparse"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            record, peak, values[factor] = pool.apply(fit, (factor, int(interior)))
        print(
            f"Burgers 20d, sigma0 0.25, {int(interior):,} interior points, {factor}: "
            f"{record['steps']} iterations, {record['products']} products, "
            f"{record['cpu_seconds']:.0f} CPU s, peak {peak:.2f} GB",
            flush=True,
        )
    problem = problems.burgers(20)
    t, x = uniform_points(problem, None, 200)
    print(
        f"relative L2 error {relative_error(values['dense'], problem.exact(t, x)):.1e}; "
        f"the two differ by {relative_error(values['sparse'], values['dense']):.1e}"
    )
