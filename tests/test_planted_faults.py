"""The oracles of test_picard.py, test_paths.py and test_diffusions.py fail on planted faults.

An oracle that cannot fail proves nothing. Each test plants one fault in the library and checks that
an oracle fails.
"""

import equinox as eqx
import jax.numpy as jnp
import pytest
import test_diffusions
import test_paths
import test_picard as oracle

from scasml import Defect, Picard, Problem
from scasml._sampling.times import FullHistory
from scasml.estimators import _iterates
from scasml.paths import SCHEMES, Gaussian, General, GeometricBrownian, Jump, Stepped

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("programs_anew")]


def must_fail(check, *args):
    with pytest.raises(AssertionError):
        check(*args)


@pytest.fixture
def wrong_sign(monkeypatch):
    right = Defect.source
    monkeypatch.setattr(Defect, "source", lambda self, t, x, key: -right(self, t, x, key))


@pytest.fixture
def forgotten_subtraction(monkeypatch):
    """At l = 1 the older iterate is not subtracted. Two public codes have this fault."""
    monkeypatch.setattr(
        Problem, "difference", lambda self, t, x, new, old: self.nonlinearity(t, x, *new)
    )


@pytest.fixture
def wrong_weight(monkeypatch):
    """The weight is xi / (T - t) instead of xi / sqrt(T - t), as in the code of the paper."""
    right = Gaussian.move

    def move(self, noise, s, x, duration, weight):
        x, w, *_ = right(self, noise, s, x, duration, weight)
        return Jump(x, None if w is None else w / jnp.sqrt(duration))

    monkeypatch.setattr(Gaussian, "move", move)


@pytest.fixture
def reused_key(monkeypatch):
    """All levels of a call draw from the same streams."""
    right = _iterates.streams
    monkeypatch.setattr(
        _iterates, "streams", lambda key, n, level, i, first: right(key, n, 0, i, first)
    )


@pytest.fixture
def wrong_time_weight(monkeypatch):
    """The density of the random time is left out. It is 1 only for a uniform time."""
    right = FullHistory.draw

    def draw(self, uniform, node, s, horizon):
        duration, _ = right(self, uniform, node, s, horizon)
        return duration, horizon - s

    monkeypatch.setattr(FullHistory, "draw", draw)


@pytest.fixture
def wrong_trace(monkeypatch):
    """The residual contains 1.01 (u_t + L u) instead of u_t + L u."""
    right = Defect.source

    def source(self, t, x, key):
        _, _, parabolic = self.generator(t, x, key)
        return right(self, t, x, key) + 0.01 * parabolic

    monkeypatch.setattr(Defect, "source", source)


@pytest.mark.usefixtures("wrong_sign")
def test_wrong_sign():
    must_fail(oracle.check_linear_unbiased)
    must_fail(oracle.check_perturbation_recovered)


@pytest.mark.usefixtures("forgotten_subtraction")
def test_forgotten_subtraction():
    must_fail(oracle.check_perturbation_recovered)


@pytest.mark.usefixtures("wrong_weight")
def test_wrong_weight():
    must_fail(oracle.check_linear_unbiased, "weights")


@pytest.mark.usefixtures("reused_key")
def test_reused_key():
    must_fail(oracle.check_streams_independent)


@pytest.mark.usefixtures("wrong_time_weight")
def test_wrong_time_weight():
    must_fail(oracle.check_time_laws_agree)
    must_fail(oracle.check_linear_unbiased, "weights")


@pytest.mark.usefixtures("wrong_trace")
def test_wrong_trace():
    must_fail(oracle.check_exact_surrogate, Picard(2, 4))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "fault", ["forgotten_subtraction", "wrong_weight", "reused_key", "wrong_time_weight"]
)
def test_the_literal_recursion_detects_the_fault(fault, request):
    problem, _ = oracle.manufactured()
    request.getfixturevalue(fault)
    must_fail(oracle.TestLiteral.check, problem, None, 2, 2, {"gradient": "weights"})


@pytest.mark.usefixtures("x64")
def test_growth_without_half_the_variance(monkeypatch):
    right = GeometricBrownian.move

    def move(self, noise, s, x, duration, weight):
        x, w, *_ = right(self, noise, s, x, duration, weight)
        return Jump(x * jnp.exp(0.5 * self.volatility**2 * duration), w)

    monkeypatch.setattr(GeometricBrownian, "move", move)
    must_fail(test_paths.check_exact_law, test_paths.laws(2)["geometric"], 2)


@pytest.mark.usefixtures("x64")
def test_a_weight_without_the_derivative_process(monkeypatch):
    """The weight is (W_t - W_s)/(t - s), which is right only if sigma^-1 D is constant."""
    right = Stepped.move

    def move(self, noise, s, x, duration, weight):
        end = right(self, noise, s, x, duration, False).x
        return Jump(end, self.grid(noise, s, duration)[2].sum(0) / duration)

    monkeypatch.setattr(Stepped, "move", move)
    test_paths.check_weights_of_steps("geometric")
    must_fail(test_paths.check_weights_of_steps, "relaxing")


@pytest.mark.usefixtures("x64")
def test_milstein_with_the_wrong_sign(monkeypatch):
    euler, milstein = SCHEMES["euler"], SCHEMES["milstein"]
    monkeypatch.setitem(SCHEMES, "milstein", lambda *step: 2 * euler(*step) - milstein(*step))
    must_fail(test_paths.check_strong_orders, "diagonal")


def plant_in_residual(monkeypatch, change):
    """Let residuals use the coefficients `change(dynamics)`. Paths keep the right ones."""
    right = Defect.source

    def source(self, t, x, key):
        generator = eqx.tree_at(lambda g: g.dynamics, self.generator, change(self.dynamics))
        return right(eqx.tree_at(lambda d: d.generator, self, generator), t, x, key)

    monkeypatch.setattr(Defect, "source", source)


def test_a_residual_with_sigma_frozen(monkeypatch):
    frozen = lambda law: General(law.drift, lambda t, x: law.diffusion(t, 0 * x))
    plant_in_residual(monkeypatch, frozen)
    must_fail(test_diffusions.check_manufactured, 1, 3, "diagonal")


def test_a_residual_without_the_drift(monkeypatch):
    plant_in_residual(monkeypatch, lambda law: General(0.0, law.diffusion))
    must_fail(test_diffusions.check_manufactured, 1, 3, "diagonal")
