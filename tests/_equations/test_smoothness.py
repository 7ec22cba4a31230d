"""What the code of g and F says about kinks, jumps and affinity."""

import jax
import jax.numpy as jnp
import pytest

import scasml
from scasml._equations.defect import Defect
from scasml._equations.smoothness import (
    is_affine,
    may_have_kinks,
    nonlinearity_may_be_rough,
    terminal_may_be_rough,
)
from scasml.surrogates import wrap


def problem_with(nonlinearity=None, terminal=jnp.sum):
    return scasml.Problem(dim=3, horizon=1.0, nonlinearity=nonlinearity, terminal=terminal)


@pytest.mark.parametrize(
    ("terminal", "rough"),
    [
        (lambda x: jnp.sin(x @ x), False),
        (lambda x: jnp.max(x), True),
        (lambda x: jnp.where(x[0] > 0, 1.0, 0.0), True),
        (lambda x: jnp.sum(x > 0), True),
        (lambda x: jax.jit(lambda y: jnp.abs(y[0]))(x), True),
        (lambda x: jnp.where(jnp.arange(3) > 0, x, -x)[0], False),
        (lambda x: jnp.maximum(1.0, 2.0) * x[0], False),
    ],
    ids=["smooth", "max", "where", "count", "in jit", "constant predicate", "of constants"],
)
def test_terminal(terminal, rough):
    assert terminal_may_be_rough(problem_with(terminal=terminal)) == rough


# F, and whether it may be rough in (x, u, z), may have kinks in (u, z), and is affine in (u, z).
NONLINEARITIES = {
    "cubic": (lambda t, x, u, z: u - u**3, False, False, False),
    "affine": (lambda t, x, u, z: jnp.sin(x[0]) * u + z @ x, False, False, True),
    "rough in x": (lambda t, x, u, z: jnp.max(x) * u, True, False, True),
    "selected by x": (lambda t, x, u, z: jnp.where(x[0] > 0, u, 2 * u), True, False, True),
    "selected by u": (lambda t, x, u, z: jnp.where(u > 0, u, 2 * u), True, True, False),
    "rough in t": (lambda t, x, u, z: jnp.floor(t) * u, False, False, True),
    "branches": (
        lambda t, x, u, z: jax.lax.cond(x[0] > 0, lambda u: u, lambda u: 2 * u, u),
        True,
        True,
        True,
    ),
    "loop": (
        lambda t, x, u, z: jax.lax.scan(lambda c, a: (c * a, None), u, x)[0],
        False,
        False,
        True,
    ),
    "clipped gradient": (lambda t, x, u, z: jnp.clip(z, -1, 1) @ x, True, True, False),
    "in jit": (jax.jit(lambda t, x, u, z: u * z[0]), False, False, False),
}


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_nonlinearity(name):
    nonlinearity, rough, kinks, affine = NONLINEARITIES[name]
    problem = problem_with(nonlinearity)
    defect = Defect(problem, wrap(lambda t, x: jnp.sin(jnp.sum(x)) * t, problem))
    for equation in (problem, defect):
        assert nonlinearity_may_be_rough(equation) == rough
        assert may_have_kinks(equation) == kinks
        assert is_affine(equation) == affine


def test_a_linear_problem_is_affine_and_smooth():
    problem = problem_with()
    assert is_affine(problem)
    assert not nonlinearity_may_be_rough(problem)
    assert not may_have_kinks(problem)
