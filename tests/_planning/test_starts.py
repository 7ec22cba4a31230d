"""The starts that the automatic choice may use, and the tangent of an estimate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import heat, manufactured, rough
from scasml import Problem
from scasml._planning.starts import Tangent, given_start, offered_starts, tangent_start
from scasml.surrogates import wrap

PROBLEM, EXACT = manufactured()


def test_the_given_start_is_the_surrogate_or_zero():
    surrogate = wrap(rough, PROBLEM)
    assert given_start(PROBLEM, None, None).name == "zero"
    given = given_start(PROBLEM, surrogate, None)
    assert given.name == "the surrogate"
    assert given.model is surrogate


def test_the_offered_starts():
    """Smoothed g is offered if g is smooth and F depends on u or z."""
    names = lambda problem, surrogate=None: [
        start.name for start in offered_starts(problem, surrogate, None)
    ]
    assert names(PROBLEM) == ["smoothed g", "zero"]
    assert names(PROBLEM, wrap(rough, PROBLEM)) == ["the surrogate", "smoothed g", "zero"]
    assert names(heat()[0]) == ["zero"]
    kinked = Problem(
        dim=3,
        horizon=1.0,
        nonlinearity=lambda t, x, u, z: u**2,
        terminal=lambda x: jnp.max(x),
    )
    assert names(kinked) == ["zero"]


def test_a_rough_g_is_not_smoothed():
    """A kink of g would be a kink of the start at the horizon."""
    surrogate = wrap(rough, PROBLEM)
    digital = Problem(
        dim=3,
        horizon=1.0,
        nonlinearity=lambda t, x, u, z: u**2,
        terminal=lambda x: jnp.where(x[0] > 0, 1.0, 0.0),
    )
    found = offered_starts(digital, surrogate, None)
    assert [start.name for start in found] == ["the surrogate", "zero"]


@pytest.mark.usefixtures("x64")
def test_a_tangent_solves_the_equation_at_its_point():
    """Value and slope are those given, and the residual there is zero: a plane has no Hessian."""
    t0, x0 = np.asarray(0.2), np.array([0.1, -0.3, 0.4])
    value, slope = jax.value_and_grad(EXACT, 1)(jnp.asarray(t0), jnp.asarray(x0))
    tangent = Tangent(PROBLEM, t0, x0, np.asarray(value), np.asarray(slope))
    t, x = jnp.asarray(t0), jnp.asarray(x0)
    np.testing.assert_allclose(tangent(t, x), value, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(tangent, 1)(t, x), slope, rtol=1e-12)
    start = tangent_start(tangent)
    assert start.name == "tangent"
    np.testing.assert_allclose(start.equation.source(t, x, jax.random.key(0)), 0, atol=1e-12)
