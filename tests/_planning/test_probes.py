"""Probes of the smoothness of g and of the slopes of F where paths go."""

import jax.numpy as jnp
import numpy as np
import pytest

from helpers import task
from scasml import Linearised, Picard, Problem
from scasml._planning.probes import gradient_methods, slopes_jump
from scasml._planning.task import Start
from scasml.execution.stopping import StoppingRule

# Paths from the first point see the origin. Paths from the second stay far away from it.
X = np.array([[0.0], [50.0]], np.float32)


def problem(terminal=lambda x: jnp.sin(x[0]), nonlinearity=lambda t, x, u, z: u * z[0]):
    return Problem(dim=1, horizon=0.5, nonlinearity=nonlinearity, terminal=terminal)


def some(equation, **options):
    return task(equation, np.zeros(2, np.float32), X, StoppingRule(), **options)


def names(equation, estimator, **options):
    """Return the gradient method of each of the two points."""
    found = gradient_methods(some(equation, **options), Start("zero", equation, None), estimator)
    return [next(name for name, rows in found.items() if row in rows) for row in range(2)]


@pytest.mark.parametrize(
    ("terminal", "expected"),
    [
        (lambda x: jnp.sin(x[0]), ["pathwise", "pathwise"]),
        (lambda x: jnp.abs(x[0]), ["mixed", "pathwise"]),
        (lambda x: jnp.where(x[0] > 0, 1.0, 0.0), ["centred", "pathwise"]),
    ],
    ids=["smooth", "kink", "jump"],
)
def test_gradient_methods(terminal, expected):
    """Two Picard levels with a gradient differentiate g twice."""
    equation = problem(terminal)
    assert names(equation, Picard(2, 2), gradient=True) == expected
    assert names(equation, Picard(2, 2, gradient="weights"), gradient=True) == ["weights"] * 2


def test_a_kink_may_be_differentiated_once():
    equation = problem(lambda x: jnp.abs(x[0]))
    assert names(equation, Linearised()) == ["pathwise", "pathwise"]


def test_slopes_of_f_that_jump():
    """The start zero has u = 0, so the slope of |u - x| jumps where paths cross x = 0."""
    kinked = problem(nonlinearity=lambda t, x, u, z: jnp.abs(u - x[0]))
    start = Start("zero", kinked, None)
    assert slopes_jump(some(kinked), start).tolist() == [True, False]
    smooth = problem()
    assert slopes_jump(some(smooth), Start("zero", smooth, None)).tolist() == [False, False]
