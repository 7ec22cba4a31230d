"""Peak memory of a large correction: n = 3, M = 8, d = 100, 1200 points, a 5 x 50 tanh network."""

import resource
import sys
import time

import jax
import numpy as np

import scasml
from residual import network
from scasml import Picard
from scasml.surrogates import wrap


def main(points: int = 1200) -> None:
    problem = scasml.problems.hjb(100)
    surrogate = wrap(network(100), problem, inputs="tx")
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    answer = scasml.correct(
        problem,
        surrogate,
        rng.uniform(0, 1, points),
        rng.normal(size=(points, 100)),
        method=Picard(3, 8),
        replicates=1,
        with_gradient=True,
    )
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
    print(
        f"{len(answer.value)} points, n = 3, M = 8, d = 100, value and gradient: peak {peak:.2f} GB resident "
        f"(JAX {jax.__version__} and its compiler included), {time.perf_counter() - start:.0f} s"
    )
