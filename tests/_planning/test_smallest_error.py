"""The smallest error that a plan aims for follows the precision of the simulation."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml._planning.allocation import allocate
from scasml.execution.stopping import StoppingRule

BOUNDS = np.array([32.0, 32.0, 2.0]), np.array([8192.0, 8192.0, 1024.0])


@pytest.mark.parametrize(("smallest", "reached"), [(2.2e-16, 0.5e-9), (1e-7, 1e-7)])
def test_the_target_of_an_allocation(smallest, reached):
    rule = StoppingRule(rtol=1e-9)
    variance = np.full((1, 3), 1e-16)
    found = allocate(rule, BOUNDS, np.ones(3), np.ones(1), variance, smallest_error=smallest)
    np.testing.assert_allclose(found.stderr, reached, rtol=1e-6)


def test_a_tolerance_below_single_precision():
    """In float64 a tolerance of 1e-9 is met: the remainder, 1e-8, is not omitted."""
    problem = scasml.Problem(
        dim=1,
        horizon=0.1,
        diffusion=0.1,
        nonlinearity=lambda t, x, u, z: 0.1 * u**2,
        terminal=lambda x: 1.0 + 1e-7 * jnp.sin(x[0]),
    )
    surrogate = lambda t, x: 1.0 / (1 - 0.1 * (0.1 - t)) - 1e-3
    answer = scasml.correct(
        problem, surrogate, 0.0, [0.3], rtol=1e-9, dtype="float64", with_gradient=False
    )
    assert answer.status == "converged"
