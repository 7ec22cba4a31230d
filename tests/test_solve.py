"""Tests of `solve`, which trains a surrogate and corrects it in one call."""

from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from bad_input_case import MustNotRun
from helpers import SIGMAS
from scasml import Hutchinson, ScasmlError, _api, problems, surrogates
from scasml.surrogates.loading import shipped

TRAINING = {"iterations": 100, "interior": 32, "width": 8, "depth": 2}


@pytest.fixture(scope="module")
def answer():
    return scasml.solve(
        problems.hjb(6),
        0.0,
        np.full(6, 0.2),
        training=TRAINING,
        replicates=16,
        method=scasml.Picard(2, 8),
        seed=3,
    )


@pytest.mark.slow
def test_the_value_is_that_of_the_problem(answer):
    """The error is within 6 standard errors and the bias."""
    exact = problems.hjb(6).exact(0.0, np.full(6, 0.2))
    assert abs(answer.raw_value - exact) < SIGMAS * answer.stderr + answer.bias
    assert answer.stderr < 0.02


@pytest.mark.slow
def test_the_text_states_the_time_of_both_steps(answer):
    made = answer.preparation
    assert made.verb == "trained"
    assert made.seconds > 0
    assert isinstance(made.surrogate, surrogates.Pinn)
    text = str(answer).split("\n")[-1]
    percent = 100 * made.seconds / (made.seconds + answer.cost.seconds)
    assert text.startswith(
        f"trained a pinn in {made.seconds:.1f} s ({percent:.0f} %), corrected it in "
    )


@pytest.mark.slow
def test_the_two_steps_by_hand_give_the_same_bits(answer):
    """The surrogate is trained where paths from the point go, and is corrected at the point."""
    from scasml._equations.domain import Queries

    domain = Queries(np.zeros(1), np.full((1, 6), 0.2))
    model = surrogates.pinn(problems.hjb(6), domain=domain, seed=3, **TRAINING)
    by_hand = scasml.correct(
        problems.hjb(6),
        model,
        0.0,
        np.full(6, 0.2),
        replicates=16,
        method=scasml.Picard(2, 8),
        seed=3,
    )
    assert by_hand.value == answer.value
    assert by_hand.preparation is None


class TestBadInput:
    """Every option is checked before a surrogate is trained and before a replicate is run."""

    OF_SOLVE = (
        ({"problem": "hjb"}, "problem"),
        ({"kind": "oracle"}, "kind must be one of"),
        ({"kind": lambda t, x: 0.0}, "kind must be one of"),
        ({"seed": 1.5}, "seed"),
        ({"seed": -1}, "seed"),
        ({"training": "fast"}, "training must be"),
        ({"training": ["iterations", 3]}, "training must be"),
        ({"progress": "yes"}, "progress"),
    )
    OF_CORRECT = (
        ({"x": np.zeros(3)}, "x must be"),
        ({"x": np.full(6, np.nan)}, "x must be finite"),
        ({"t": 5.0}, "t must"),
        ({"method": "best"}, "method"),
        ({"rtol": -1}, "rtol"),
        ({"atol": "small"}, "atol"),
        ({"seconds": 0}, "seconds"),
        ({"replicates": 0}, "replicates"),
        ({"safe": "no"}, "safe"),
        ({"throw": 1}, "throw"),
        ({"throw": True}, "throw must go with a tolerance"),
        ({"laplacian": Hutchinson(9)}, "laplacian"),
        ({"dtype": "float16"}, "dtype"),
        ({"with_gradient": None}, "with_gradient"),
        ({"chunk": 0}, "chunk"),
        ({"chunk": 4}, "chunk goes with the default executor only"),
        ({"executor": "threads"}, "executor"),
    )
    OF_TRAINING = (
        ({"iterations": -1}, "iterations must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"rate": "fast"}, "rate"),
        ({"preset": "best"}, "preset"),
        ({"terminal": "firm"}, "terminal"),
        ({"domain": 3}, "domain"),
        ({"seconds": 0}, "seconds"),
        ({"seed": -1}, "seed"),
        ({"steps": 100}, "steps is not an option of the training of a pinn"),
    )
    UNKNOWN = ("tolerance", "surrogate", "anytime", "iterations")

    @staticmethod
    def check(change, error, words):
        calls = []

        def nonlinearity(t, x, u, z):
            calls.append(u)
            return jnp.sin(u)

        problem = scasml.Problem(
            dim=6, horizon=0.5, nonlinearity=nonlinearity, terminal=lambda x: jnp.sum(x**2)
        )
        calls.clear()  # the constructor traces F once
        arguments = {"problem": problem, "t": 0.0, "x": np.zeros(6)}
        arguments |= {"executor": MustNotRun()} | change
        if not {"rtol", "atol", "throw"} & set(change):
            arguments["replicates"] = arguments.get("replicates", 2)
        with pytest.raises(error, match=words):
            scasml.solve(**arguments)
        assert not calls, "F was evaluated"

    @pytest.mark.parametrize(("change", "words"), OF_SOLVE + OF_CORRECT)
    def test_option(self, change, words):
        self.check(change, ScasmlError, words)

    @pytest.mark.parametrize(("training", "words"), OF_TRAINING)
    def test_option_of_the_training(self, training, words):
        self.check({"training": training}, ScasmlError, words)

    @pytest.mark.parametrize("name", UNKNOWN)
    def test_unknown_option(self, name):
        self.check({name: "pinn"}, TypeError, name)

    def test_good_input_is_not_refused(self):
        """Good input evaluates F, so the tests above would notice a training."""
        with pytest.raises(AssertionError, match="F was evaluated"):
            self.check({"training": TRAINING | {"iterations": 1}}, pytest.fail.Exception, "reached")


class Trained(Exception):
    """A surrogate was about to be trained; the arguments are the options of the training."""


@pytest.fixture
def raise_trained(monkeypatch):
    """Let the training of a PINN raise `Trained`."""

    def train(problem, **options):
        raise Trained(options)

    pinn = surrogates.KINDS["pinn"]
    monkeypatch.setitem(surrogates.KINDS, "pinn", pinn._replace(train=train))


@pytest.mark.usefixtures("raise_trained")
def test_no_network_is_trained_if_the_tolerance_needs_little_work():
    x = np.full(6, 0.2)
    got = scasml.solve(problems.hjb(6), 0.0, x, rtol=0.01, with_gradient=False)
    assert got.preparation is None
    assert got.status == "converged"
    assert abs(got.value - problems.hjb(6).exact(0.0, x)) < SIGMAS * got.stderr + got.bias


@pytest.mark.usefixtures("raise_trained")
@pytest.mark.parametrize("options", [{"rtol": 0.01, "kind": "pinn"}, {"replicates": 4}])
def test_a_network_is_trained_otherwise(options):
    with pytest.raises(Trained):
        scasml.solve(problems.hjb(6), 0.0, np.full(6, 0.2), with_gradient=False, **options)


@pytest.mark.usefixtures("raise_trained")
def test_a_network_is_trained_if_the_tolerance_needs_much_work(monkeypatch):
    monkeypatch.setattr(_api, "WORK_WITHOUT_TRAINING", 1.0)
    with pytest.raises(Trained):
        scasml.solve(problems.hjb(6), 0.0, np.full(6, 0.2), rtol=0.01, with_gradient=False)


@pytest.mark.usefixtures("raise_trained")
def test_the_options_of_the_training():
    """Those of the caller come before the defaults of `solve`."""
    t, x, mine = 0.0, np.full(6, 0.2), {"iterations": 7, "progress": print, "seed": 5}
    with pytest.raises(Trained) as caught:
        scasml.solve(problems.hjb(6), t, x, replicates=4, kind="pinn", seed=3)
    (options,) = caught.value.args
    assert (options["iterations"], options["progress"], options["seed"]) == (400, False, 3)
    with pytest.raises(Trained) as caught:
        scasml.solve(problems.hjb(6), t, x, replicates=4, seed=3, training=mine)
    (options,) = caught.value.args
    assert {name: options[name] for name in mine} == mine


@pytest.mark.parametrize("problem", [problems.hjb(100), problems.burgers(20)])
def test_shipped(problem):
    """The surrogate is in a small file, belongs to this very problem, and is good."""
    model = shipped(problem)
    assert model is not None
    folder = files("scasml.surrogates").joinpath("pretrained")
    path = folder.joinpath(f"{problem.name}{problem.dim}.safetensors")
    assert path.stat().st_size < 200_000
    t = np.linspace(0, problem.horizon, 50)
    x = 0.05 * np.random.default_rng(0).normal(size=(50, problem.dim))
    got = np.asarray(jax.jit(jax.vmap(model))(t.astype(np.float32), x.astype(np.float32)))
    exact = problem.exact(t, x)
    assert np.linalg.norm(got - exact) < 5e-3 * np.linalg.norm(exact)


def test_other_problems_have_no_shipped_surrogate():
    assert shipped(problems.hjb(99)) is None
    assert shipped(problems.burgers(20, sigma0=1.0)) is None
    assert shipped(problems.hjb(100, horizon=2.0)) is None
