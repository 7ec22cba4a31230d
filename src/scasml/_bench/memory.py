"""The peak memory of a large correction: n = 3, M = 8, d = 100, 1200 points, a 5 x 50 network."""

import time

import jax
import numpy as np

from .. import Picard, correct, problems
from ..surrogates import wrap
from .measuring import peak_gigabytes, tanh_network


def main(points: str = "1200") -> None:
    """Correct value and gradient at this number of points, and print memory and time."""
    problem, count = problems.hjb(100), int(points)
    surrogate = wrap(tanh_network(100), problem, inputs="tx")
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    answer = correct(
        problem,
        surrogate,
        rng.uniform(0, 1, count),
        rng.normal(size=(count, 100)),
        method=Picard(3, 8),
        replicates=1,
        with_gradient=True,
    )
    print(
        f"{len(answer.value)} points, n = 3, M = 8, d = 100, value and gradient: "
        f"peak {peak_gigabytes():.2f} GB resident (JAX {jax.__version__} and its compiler "
        f"included), {time.perf_counter() - start:.0f} s"
    )
