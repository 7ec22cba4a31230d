"""The command line reads models and parameters of problems, or refuses them in one sentence."""

import jax.numpy as jnp
import pytest

import scasml
from bad_input_case import bad, each, refused
from scasml import Problem
from scasml._cli.inputs import read_model, read_problem
from scasml.problems._zoo import REGISTRY, zoo


@pytest.fixture(autouse=True)
def options(monkeypatch):
    """Register a problem with parameters of all types, and return what its constructor gets."""
    monkeypatch.setattr("scasml.problems._zoo.REGISTRY", dict(REGISTRY))
    got = {}

    def configured(dim=3, rate=None, is_exact=True, weights=(1.0, 2.0), word="a"):
        """A problem for this test."""
        got.update(rate=rate, is_exact=is_exact, weights=weights, word=word)
        return Problem(dim=dim, horizon=1.0, terminal=jnp.sum)

    zoo(configured)
    return got


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("is_exact=False", False),
        ("is_exact=true", True),
        ("rate=2", 2),
        ("rate=0.5", 0.5),
        ("rate=full", "full"),
        ("word=b=c", "b=c"),
    ],
)
def test_a_parameter_has_the_type_of_its_default(options, word, value):
    """A default of None has no type: the value is a number if it can be one, or else a word."""
    read_problem("configured", None, [word])
    got = options[word.partition("=")[0]]
    assert got == value
    assert type(got) is type(value)


def problem(*parameters, dim=None):
    return lambda: read_problem("configured", dim, list(parameters))


def model(name, surrogate, inputs="tx"):
    return lambda: read_model(name, surrogate, None, [], inputs)


@each(
    bad("not a truth", problem("is_exact=0"), "param is_exact", "True or False", "'0'"),
    bad("no simple type", problem("weights=1"), "param weights", "'1'", "in Python"),
    bad("dim twice", problem("dim=5", dim=4), "param dim", "once", "4 and 'dim=5'"),
    bad("rate twice", problem("rate=1", "rate=1"), "param rate", "once", "1 and 'rate=1'"),
    bad("inputs of a file", model("a.safetensors", None), "inputs", "'tx'", "'a.safetensors'"),
    bad("inputs of a surrogate", model("hjb", "b.safetensors"), "inputs", "'tx'", "'b.safetensors"),
    bad("inputs of none", model("hjb", "none", "t, x"), "inputs", "'t, x'", "'none'"),
)
def test_words_are_refused(call, fragments):
    refused(call, *fragments)


def test_a_problem_without_a_surrogate_is_read():
    equation, surrogate = read_model("hjb", "none", 4, [], None)
    assert equation is scasml.problems.hjb(4)
    assert surrogate is None
