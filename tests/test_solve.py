"""solve: train, then correct, in one call."""

import sys

import numpy as np
import pytest

import scasml
from helpers import SIGMAS
from scasml import problems, surrogates
from scasml._solve import shipped
from scasml._support.errors import ScasmlError

solve = sys.modules["scasml._solve"]

TRAINING = {"steps": 100, "interior": 32, "width": 8, "depth": 2}


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
    """Within 6 standard errors and the bias."""
    exact = problems.hjb(6).exact(0.0, np.full(6, 0.2))
    assert abs(answer.raw_value - exact) < SIGMAS * answer.stderr + answer.bias
    assert answer.stderr < 0.02


@pytest.mark.slow
def test_it_says_where_the_time_went(answer):
    made = answer.preparation
    assert made.verb == "trained"
    assert made.seconds > 0
    assert isinstance(made.surrogate, surrogates.Pinn)
    text = str(answer).split("\n")[-1]
    share = 100 * made.seconds / (made.seconds + answer.cost.seconds)
    assert text.startswith(
        f"trained a pinn in {made.seconds:.1f} s ({share:.0f} %), corrected it in "
    )


@pytest.mark.slow
def test_it_is_the_two_steps_by_hand(answer):
    """Trained where paths from the query go, corrected there: the same bits."""
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"surrogate": "oracle"}, "surrogate must be one of"),
        ({"surrogate": lambda t, x: 0.0}, "surrogate must be one of"),
        ({"rtol": -1}, "rtol"),
        ({"seed": 1.5}, "seed"),
        ({"x": np.zeros(3)}, "x must be"),
        ({"t": 5.0}, "t must"),
        ({"training": {"steps": -1}}, "steps must be at least 1"),
        ({"method": "best"}, "method"),
    ],
)
def test_bad_input_before_anything_is_trained(change, words, monkeypatch):
    monkeypatch.setattr("scasml.surrogates._pinn.train", None)  # calling it would be another error
    arguments = {"problem": problems.hjb(6), "t": 0.0, "x": np.zeros(6), "replicates": 2} | change
    with pytest.raises(ScasmlError, match=words):
        scasml.solve(**arguments)


def test_nothing_is_trained_where_the_tolerance_takes_little(monkeypatch):
    monkeypatch.setattr("scasml.surrogates._pinn.train", None)
    x = np.full(6, 0.2)
    got = scasml.solve(problems.hjb(6), 0.0, x, rtol=0.01, with_gradient=False)
    assert got.preparation is None
    assert got.status == "converged"
    assert abs(got.value - problems.hjb(6).exact(0.0, x)) < SIGMAS * got.stderr + got.bias


@pytest.mark.parametrize(
    "options", [{"rtol": 1e-9}, {"rtol": 0.01, "surrogate": "pinn"}, {"replicates": 4}]
)
def test_a_network_is_trained_otherwise(options, monkeypatch):
    class Trained(Exception):
        pass

    def train(*_, **__):
        raise Trained

    monkeypatch.setitem(solve.TRAINED, "pinn", train)
    monkeypatch.setattr(solve, "trained", train)
    with pytest.raises(Trained):
        scasml.solve(problems.hjb(6), 0.0, np.full(6, 0.2), with_gradient=False, **options)


def test_an_unknown_option_is_named():
    with pytest.raises(TypeError, match="tolerance"):
        scasml.solve(problems.hjb(6), 0.0, np.zeros(6), tolerance=1e-3)


@pytest.mark.parametrize("problem", [problems.hjb(100), problems.burgers(20)])
def test_shipped(problem):
    """A small file, of that very problem, with a good surrogate in it."""
    from importlib.resources import files

    model = shipped(problem)
    assert model is not None
    assert (
        files("scasml")
        .joinpath("pretrained", f"{problem.name}{problem.dim}.safetensors")
        .stat()
        .st_size
        < 200_000
    )
    t, x = (
        np.linspace(0, problem.horizon, 50),
        0.05 * np.random.default_rng(0).normal(size=(50, problem.dim)),
    )
    import jax

    got, exact = (
        np.asarray(jax.jit(jax.vmap(model))(t.astype(np.float32), x.astype(np.float32))),
        problem.exact(t, x),
    )
    assert np.linalg.norm(got - exact) < 5e-3 * np.linalg.norm(exact)


def test_nothing_is_shipped_for_others():
    assert shipped(problems.hjb(99)) is None
    assert shipped(problems.burgers(20, sigma0=1.0)) is None
    assert shipped(problems.hjb(100, horizon=2.0)) is None
