"""The factor phi with v = phi w: its derivatives, and answers with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import SIGMAS
from scasml import Defect, problems
from scasml._bench.hard import hard_problems
from scasml._equations.linearised import LinearisedEquation
from scasml.estimators._factor import Factor, factor_of, factor_suits
from scasml.surrogates import wrap

PROBLEM = problems.burgers(3, 1.0)


def surrogate(t, x):
    """Return the solution, 5 % off."""
    return 0.95 * jax.nn.sigmoid(t + jnp.sum(x))


EQUATION = Defect(PROBLEM, wrap(surrogate, PROBLEM))
T, X = jnp.asarray(0.1), jnp.asarray([0.2, -0.1, 0.4])


@pytest.mark.usefixtures("x64")
def test_w_solves_the_equation_with_the_new_drift_and_potential():
    """v = phi w turns the linearised operator applied to v into phi times that applied to w."""
    t, x = jnp.asarray(0.1, float), jnp.asarray([0.2, -0.1, 0.4], float)
    factor = factor_of(EQUATION, 0.5, t, x)
    assert factor is not None
    w = lambda t, x: jnp.sin(x[0] + 2 * x[1] - t) + x[2] ** 2
    v = lambda t, x: jnp.exp(factor.log(t, x)) * w(t, x)
    tilt = LinearisedEquation(EQUATION).tilt(t, x)

    def applied(f, drift, potential):
        mu = EQUATION.drift(t, x) + drift
        trace = jnp.trace(jax.hessian(f, 1)(t, x)) * EQUATION.diffusion(t, x) ** 2
        first = jax.grad(f, 0)(t, x) + mu @ jax.grad(f, 1)(t, x)
        return first + 0.5 * trace + potential * f(t, x)

    got = jnp.exp(factor.log(t, x)) * applied(w, *factor.tilted(t, x, *tilt))
    np.testing.assert_allclose(got, applied(v, *tilt), rtol=1e-10)


def test_delta_is_relative_to_phi_at_the_query():
    factor = factor_of(EQUATION, 0.5, T, X)
    slope = jnp.mean(jax.grad(surrogate, 1)(T, X))
    np.testing.assert_allclose(factor.delta, 0.5 * jnp.abs(slope), rtol=1e-4)
    np.testing.assert_allclose(jnp.exp(factor.log(T, X)), jnp.abs(slope) * np.sqrt(1.25), rtol=1e-4)


def test_a_factor_suits_an_equation_whose_F_does_not_depend_on_x():
    """The sources of `hard_problems` depend on x, and Burgers' F does not."""
    assert factor_suits(EQUATION)
    assert not factor_suits(PROBLEM)
    for name in ("control", "cubic"):
        hard = hard_problems()[name]()
        assert not factor_suits(Defect(hard.problem, wrap(hard.surrogate, hard.problem)))


def test_no_factor_without_a_surrogate():
    assert factor_of(PROBLEM, 0.5, T, X) is None
    assert factor_of(EQUATION, 0.0, T, X) is None


@pytest.mark.parametrize("gradient", ["pathwise", pytest.param("centred", marks=pytest.mark.slow)])
def test_answers_are_right(gradient, monkeypatch):
    """Value and gradient are within SIGMAS standard errors; a wrong potential is seen."""
    method = scasml.Linearised(2, 64, gradient=gradient, factor=0.5)
    x = np.array([0.2, -0.1, 0.4])
    run = lambda **options: scasml.correct(
        PROBLEM, surrogate, 0.0, x, method=method, replicates=256, safe=False, **options
    )
    exact = float(PROBLEM.exact(0.0, x))
    got = run()
    assert abs(got.value - exact) < SIGMAS * got.stderr + got.bias
    slope = exact * (1 - exact)
    error = np.abs(got.gradient - slope)
    assert np.all(error < SIGMAS * got.gradient_stderr + got.gradient_bias)
    if gradient == "pathwise":
        right = Factor.tilted

        def wrong(self, t, x, drift, potential):
            drift, new = right(self, t, x, drift, potential)
            return drift, 2 * potential - new

        monkeypatch.setattr(Factor, "tilted", wrong)
        jax.clear_caches()
        spoiled = run(seed=1, with_gradient=False)
        assert abs(spoiled.value - exact) > SIGMAS * spoiled.stderr
