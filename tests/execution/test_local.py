"""The default executor: several threads, without deadlocks and with the settings of the caller."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import scasml
from helpers import heat
from scasml import Picard


@pytest.mark.parametrize(
    "code",
    [
        """
F = lambda t, x, u, z: jnp.linalg.solve(jnp.eye(40) * (1 + x[0] ** 2) + 0.1, z)[0]
problem = scasml.Problem(dim=40, horizon=1.0, nonlinearity=F, terminal=jnp.sum)
options = {"replicates": 16, "with_gradient": False, "method": scasml.Picard(2, 10)}
""",
        """
sigma = lambda t, x: jnp.eye(40) * (2 + jnp.tanh(x[0])) + 0.1
problem = scasml.Problem(dim=40, horizon=1.0, diffusion=sigma, terminal=jnp.sum)
options = {"replicates": 16, "method": scasml.Picard(1, 10, gradient="weights")}
""",
    ],
    ids=["in F", "in the weights"],
)
def test_a_factorisation_does_not_hang(code):
    """XLA's calls of LAPACK from two threads wait for each other.

    So programs with such calls run one at a time.
    """
    code = f"""
import jax.numpy as jnp, numpy as np, scasml
{code}
print(scasml.correct(problem, None, 0.0, np.ones(40), **options))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.startswith("u = ")


def test_all_threads_use_the_settings_of_the_caller():
    """One of these settings changes the random numbers, so all rows must see it."""
    problem, _ = heat()
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    run = lambda chunk: scasml.correct(
        problem, None, 0.0, x, method=Picard(1, 1), replicates=4, chunk=chunk
    )
    with jax.numpy_rank_promotion("allow"), jax.threefry_partitionable(False):
        assert run(None).value.tobytes() == run(256).value.tobytes()
