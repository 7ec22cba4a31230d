"""The linearised equation: F = F(0) + a u + <b, z> + R, and the test for an affine F."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import rough, varying
from scasml import Problem
from scasml._equations.base import Solution
from scasml._equations.defect import Defect
from scasml._equations.linearised import LinearisedEquation
from scasml._equations.smoothness import is_affine
from scasml.surrogates import wrap


@pytest.mark.usefixtures("x64")
def test_the_linearised_equation_is_the_same_equation():
    """F(v, z) = F(0) + a v + <b, z> + R(v, z) for the defect too, and R is of second order.

    The test computes b from the tilt.
    """
    problem = varying("full")
    equation = Defect(problem, wrap(rough, problem))
    linear, t, x = LinearisedEquation(equation), jnp.asarray(0.3), jnp.array([0.2, -0.4, 0.3])
    drift, a = linear.tilt(t, x)
    b = jnp.linalg.solve(equation.diffusion(t, x), drift)
    key, rng = jax.random.key(0), np.random.default_rng(0)
    zero = Solution(jnp.zeros(()), jnp.zeros(3))
    for _ in range(5):
        v, z = jnp.asarray(rng.normal()), jnp.asarray(rng.normal(size=3))
        first_order = equation.source(t, x, key) + a * v + b @ z
        rest = linear.difference(t, x, Solution(v, z), zero)
        np.testing.assert_allclose(
            first_order + rest, equation.nonlinearity(t, x, v, z, key), rtol=1e-10
        )
        small = linear.difference(t, x, Solution(1e-4 * v, 1e-4 * z), zero)
        assert abs(small) < 1e-7 * (1 + abs(v) + jnp.linalg.norm(z)) ** 2


@pytest.mark.parametrize(
    ("f", "affine"),
    [
        (lambda t, x, u, z: -0.05 * u + 0.1 * jnp.sum(z) * x[0] + t, True),
        (lambda t, x, u, z: jnp.sin(x[0]) * u, True),
        (lambda t, x, u, z: u - u**3, False),
        (lambda t, x, u, z: -0.5 * z @ z, False),
        (lambda t, x, u, z: u * z[0], False),
        (lambda t, x, u, z: jnp.maximum(u, 0.0), False),
    ],
)
def test_affine(f, affine):
    problem = Problem(dim=3, horizon=1.0, nonlinearity=f, terminal=lambda x: jnp.sum(x))
    assert is_affine(problem) == affine
    surrogate = wrap(lambda t, x: jnp.sin(jnp.sum(x) + t), problem)
    assert is_affine(Defect(problem, surrogate)) == affine
