"""Checks of the coefficients at the points and along probe paths, by the user's point numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import task
from scasml import Problem
from scasml._planning.checks import refuse
from scasml.execution.stopping import StoppingRule


def problem(**coefficients):
    """Return a linear problem with coefficients that depend on x."""
    return Problem(dim=2, horizon=1.0, terminal=jnp.sum, **coefficients)


def check(equation, x, is_discretised=False, **options):
    """Run the checks at the states x."""
    t = np.zeros(len(x), np.float32)
    some = task(equation, t, np.asarray(x, np.float32), StoppingRule(), **options)
    refuse(some, is_discretised)


def test_states_outside_the_domain():
    equation = problem(diffusion=lambda t, x: jnp.sqrt(x))
    check(equation, [[1.0, 2.0]])
    with pytest.raises(scasml.ScasmlError, match=r"diffusion\(t, x\).*not finite at point 1: "):
        check(equation, [[1.0, 2.0], [1.0, -1.0]])


def test_singular_coefficients():
    equation = problem(diffusion=lambda t, x: jnp.outer(x, x) + 0.0 * t)
    with pytest.raises(scasml.ScasmlError, match="got a singular one at point 0, 1: "):
        check(equation, [[1.0, 2.0], [1.0, -1.0]])


def test_paths_that_leave_the_domain():
    """From 0.1 a probe path steps below zero, where the square root is not defined."""
    equation = problem(diffusion=lambda t, x: jnp.sqrt(x))
    check(equation, [[0.1, 0.1]])
    with pytest.raises(scasml.ScasmlError, match="along simulated paths from point 0: "):
        check(equation, [[0.1, 0.1]], is_discretised=True)


def test_messages_name_the_points_of_the_user():
    """The first point lies at the horizon, where no path starts."""
    equation = problem(diffusion=lambda t, x: jnp.sqrt(x))
    t, x = np.array([1.0, 0.0, 0.0]), np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    with pytest.raises(scasml.ScasmlError, match="not finite at point 2: "):
        scasml.correct(equation, None, t, x, replicates=2)
