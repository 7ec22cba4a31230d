"""Extensions from outside: an estimator, a stepping scheme and a path law, through `correct`.

Each is defined in outside.py, in less than 80 lines. The mean of 64 replicates or more misses by 6
standard errors with probability 1e-7 (Student t, 63) per comparison, which is the false-fail rate.
"""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest
from outside import MonteCarlo, SinhBrownian, heun

import scasml
from helpers import SIGMAS
from scasml import Linearised, Picard, Problem
from scasml.paths import SCHEMES

X = np.array([[0.3, -0.2], [0.0, 0.5]])


@pytest.mark.parametrize("extension", [MonteCarlo, heun, SinhBrownian])
def test_extensions_are_short(extension):
    assert len(inspect.getsource(extension).splitlines()) < 80


class TestEstimator:
    """u = |x|^2 + 2 sigma^2 (T - t) solves the heat equation in two dimensions."""

    PROBLEM = Problem(dim=2, horizon=1.0, diffusion=0.5, terminal=lambda x: x @ x)

    def answer(self, surrogate=None, **options):
        options = {"method": MonteCarlo(), "replicates": 256, "safe": False} | options
        return scasml.correct(self.PROBLEM, surrogate, 0.2, X, **options)

    def test_it_is_right_within_its_error_bar(self):
        got, exact = self.answer(), np.sum(X**2, 1) + 2 * 0.25 * 0.8
        assert np.all(np.abs(got.value - exact) < SIGMAS * got.stderr + got.bias)
        assert np.all(np.abs(got.gradient - 2 * X) < SIGMAS * got.gradient_stderr + 1e-5)
        assert np.all(got.stderr < 0.02)
        assert np.all(got.bias < 1e-6)  # rounding
        assert got.steps.tolist() == [0, 0]

    def test_it_corrects_a_surrogate(self):
        """The surrogate solves the equation but not the terminal condition: no source is needed."""
        got = self.answer(surrogate=lambda t, x: 1.5 * (x @ x) + 1.5 * 2 * 0.25 * (1 - t))
        exact = np.sum(X**2, 1) + 2 * 0.25 * 0.8
        assert np.all(np.abs(got.value - exact) < SIGMAS * got.stderr + got.bias)

    def test_increments_cost_and_diagnosis(self):
        got = self.answer(replicates=10)
        (levels,) = got.levels
        assert levels.names == ("terminal",)
        np.testing.assert_allclose(levels.mean[:, 0], got.raw_value, rtol=1e-6)
        assert got.cost.evaluations.terminal == 2 * 10 * 16
        assert got.cost.random_numbers == 2 * 10 * 16 * 2
        assert "terminal" in got.diagnose().table
        assert got.choices[0].reason == "asked for"

    def test_a_tolerance(self):
        got = self.answer(replicates=None, rtol=0.05)
        assert set(got.status) == {"converged"}
        assert np.all(got.half_width() <= 0.05 * np.abs(got.value))


def test_a_stepping_scheme(monkeypatch):
    """dX = -X dt + sigma dW in steps of Heun's method, registered under its name.

    E X_T = e^-T x. In `Picard`, four steps have a bias of 14 % by Euler's method, and of 1.3 % by
    Heun's. `Linearised` has no bias with either, to a seventh of the bias of Euler's method.
    """
    problem = Problem(
        dim=2,
        horizon=1.0,
        drift=lambda t, x: -x,
        diffusion=lambda t, x: 0.1 + 0 * x,
        terminal=jnp.sum,
    )
    picard = lambda scheme: Picard(1, 64, sampling="rqmc", steps=4, scheme=scheme)
    linearised = lambda scheme: Linearised(steps=4, samples=64, scheme=scheme)
    run = lambda scheme, method=picard: scasml.correct(
        problem,
        None,
        0.0,
        np.array([1.0, 2.0]),
        method=method(scheme),
        replicates=64,
    )
    with pytest.raises(scasml.ScasmlError, match="scheme must be one of euler, milstein"):
        run("heun")
    monkeypatch.setitem(SCHEMES, "heun", heun)
    exact, got, euler = 3 * np.exp(-1.0), run("heun"), run("euler")
    assert abs(got.value - exact) < SIGMAS * got.stderr + 0.02 * exact
    assert abs(euler.value - exact) > SIGMAS * euler.stderr + 0.1 * exact
    assert abs(got.value - exact) < SIGMAS * got.stderr + 2 * got.bias  # as the pilot measured it
    for scheme in ("heun", "euler"):
        levelled = run(scheme, linearised)
        assert abs(levelled.value - exact) < SIGMAS * levelled.stderr + levelled.bias < 0.02 * exact


class TestPathLaw:
    """X = sinh(Y) for a Brownian motion Y, so E X_T = e^{sigma^2 (T - t)/2} x."""

    def answer(self, **options):
        problem = Problem(dim=2, horizon=1.0, dynamics=SinhBrownian(0.4), terminal=jnp.sum)
        return scasml.correct(problem, None, 0.2, X, safe=False, **options)

    def check(self, got):
        growth = np.exp(0.5 * 0.4**2 * 0.8)
        assert np.all(np.abs(got.value - growth * X.sum(1)) < SIGMAS * got.stderr + got.bias)
        allowed = SIGMAS * got.gradient_stderr + got.gradient_bias
        assert np.all(np.abs(got.gradient - growth) < allowed)

    def test_auto_draws_it_exactly(self):
        got = self.answer(method="auto", replicates=64)
        self.check(got)
        assert got.steps.tolist() == [0, 0]
        assert np.all(got.stderr < 0.01)
        assert set(self.answer(method="auto", atol=0.02).status) == {"converged"}

    def test_its_weights(self):
        """The gradient weight of the law differentiates E g(X_T) without a derivative of g."""
        self.check(self.answer(method=scasml.Picard(1, 256, gradient="centred"), replicates=64))

    def test_it_may_be_simulated_in_steps_too(self):
        """The coefficients describe the same process as `move`."""
        got = self.answer(method=scasml.Picard(1, 256, steps=32), replicates=64)
        assert got.steps.tolist() == [32, 32]
        self.check(got)
