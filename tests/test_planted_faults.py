"""The oracles of test_picard.py, test_paths.py and test_diffusions.py, each seen to fail on a planted fault: an oracle that cannot fail proves nothing."""

import jax.numpy as jnp
import pytest
import test_diffusions
import test_paths
import test_picard as oracle

from scasml import Picard
from scasml._equations.defect import Defect
from scasml._equations.generator import Generator
from scasml._equations.problem import Problem
from scasml._sampling.times import FullHistory
from scasml.estimators import _iterates as iterates
from scasml.paths import Gaussian, GeometricBrownian, Jump, Stepped

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
    """The fault of two public codes: at l = 1 nothing is subtracted."""
    monkeypatch.setattr(
        Problem, "difference", lambda self, t, x, new, old: self.nonlinearity(t, x, *new)
    )


@pytest.fixture
def wrong_weight(monkeypatch):
    """The fault of the paper's public code: xi / (T - t) instead of xi / sqrt(T - t)."""
    right = Gaussian.move

    def move(self, noise, s, x, duration, weight):
        x, w, *_ = right(self, noise, s, x, duration, weight)
        return Jump(x, None if w is None else w / jnp.sqrt(duration))

    monkeypatch.setattr(Gaussian, "move", move)


@pytest.fixture
def reused_key(monkeypatch):
    """Every level of a call draws from the same streams."""
    right = iterates._streams
    monkeypatch.setattr(
        iterates, "_streams", lambda key, n, level, i, first: right(key, n, 0, i, first)
    )


@pytest.fixture
def wrong_time_weight(monkeypatch):
    """The density of the random time is forgotten; it is 1 only for a uniform one."""
    right = FullHistory.draw

    def draw(self, uniform, node, s, horizon):
        duration, _ = right(self, uniform, node, s, horizon)
        return duration, horizon - s

    monkeypatch.setattr(FullHistory, "draw", draw)


@pytest.fixture
def wrong_trace(monkeypatch):
    right = Generator.__call__

    def call(self, t, x, key):
        u, z, moved = right(self, t, x, key)
        return u, z, 1.01 * moved

    monkeypatch.setattr(Generator, "__call__", call)


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
def test_literal_recursion_sees_it(fault, request):
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
    """(W_t - W_s)/(t - s), which is right where sigma^-1 D is constant, and nowhere else."""
    right = Stepped.move

    def move(self, noise, s, x, duration, weight):
        end = right(self, noise, s, x, duration, False).x
        return Jump(end, self.grid(noise, s, duration)[2].sum(0) / duration)

    monkeypatch.setattr(Stepped, "move", move)
    test_paths.check_weights_of_steps("geometric")
    must_fail(test_paths.check_weights_of_steps, "relaxing")


@pytest.mark.usefixtures("x64")
def test_milstein_with_the_wrong_sign(monkeypatch):
    right = Stepped._milstein
    wrong = lambda self, t, x, h, dw: 2 * self._euler(t, x, h, dw) - right(self, t, x, h, dw)
    monkeypatch.setattr(Stepped, "_milstein", wrong)
    must_fail(test_paths.check_strong_orders, "diagonal")


def test_a_residual_with_sigma_frozen(monkeypatch):
    right = Generator._moving
    frozen = lambda self, t, x, drawn: right(self, t, x, drawn)._replace(
        noise=right(self, t, 0 * x, drawn).noise
    )
    monkeypatch.setattr(Generator, "_moving", frozen)
    must_fail(test_diffusions.check_manufactured, 1, 3, "diagonal")


def test_a_residual_without_the_drift(monkeypatch):
    right = Generator._moving
    still = lambda self, t, x, drawn: right(self, t, x, drawn)._replace(drift=0 * x)
    monkeypatch.setattr(Generator, "_moving", still)
    must_fail(test_diffusions.check_manufactured, 1, 3, "diagonal")
