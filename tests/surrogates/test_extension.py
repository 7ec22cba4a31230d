"""Extensions from outside of the library: an adapter of foreign models, a kind of surrogate."""

import sys
import types
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import problems, surrogates
from scasml.__main__ import main
from scasml.surrogates import AbstractSurrogate, AbstractTrained, Record, kind


class ForeignModel:
    """A model of a library called `abacus`, which does not know JAX or scasml."""

    __module__ = "abacus.models"
    slope = 2.0


class Plane(AbstractSurrogate):
    slope: float
    terminal_function = form = None

    def __call__(self, t, x):
        return self.slope * jnp.sum(x)


def adapt(model, problem, inputs):
    return Plane(model.slope)


def test_an_adapter(monkeypatch):
    """`ADAPTERS` holds one new line, and `correct` takes the foreign model."""
    adapter = types.ModuleType("my_adapter")
    adapter.adapt = adapt
    monkeypatch.setitem(sys.modules, "my_adapter", adapter)
    problem = scasml.Problem(dim=2, horizon=1.0, terminal=jnp.sum)
    options = {"t": 0.5, "x": np.ones(2), "replicates": 4, "method": scasml.Picard(1, 4)}
    with pytest.raises(scasml.ScasmlError, match="got ForeignModel"):
        scasml.correct(problem, ForeignModel(), **options)
    monkeypatch.setitem(surrogates.ADAPTERS, "abacus", "my_adapter")
    answer = scasml.correct(problem, ForeignModel(), **options)
    assert answer.surrogate_value == 4.0
    assert np.isfinite(answer.value)


class Parabola(AbstractTrained):
    """u(t, x) = c_0 + c_1 |x|^2, fitted to g."""

    kind: ClassVar[str] = "parabola"
    terminal_function = form = draws = None
    problem: scasml.Problem
    coefficients: np.ndarray
    record: Record = eqx.field(static=True)

    def __call__(self, t, x):
        return jnp.asarray(self.coefficients, x.dtype) @ jnp.stack([jnp.ones((), x.dtype), x @ x])

    def architecture(self):
        return {}

    def arrays(self):
        return {"coefficients": self.coefficients}

    @classmethod
    def build(cls, problem, architecture, arrays, record):
        return cls(problem, arrays["coefficients"], record)


def parabola(problem, *, points=100, domain=None, seed=0, progress=False):
    x = problem.x0 + np.random.default_rng(seed).normal(size=(points, problem.dim))
    g = [float(problem.terminal(jnp.asarray(row, jnp.float32))) for row in x]
    features = np.stack([np.ones(points), np.sum(x**2, 1)], 1)
    fitted = np.linalg.lstsq(features, np.array(g), rcond=None)[0]
    return Parabola(problem, fitted, Record({"steps": 1, "residuals": [0.0]}.items()))


@pytest.fixture
def registered():
    kind(Parabola)(parabola)
    yield
    del surrogates.KINDS["parabola"]


@pytest.mark.usefixtures("registered", "no_disk_cache")
def test_a_kind(tmp_path, monkeypatch, capsys):
    """`solve`, files and the command line take the kind by its name."""
    path, x = tmp_path / "lqg.safetensors", np.full(3, 0.2)
    options = {"replicates": 4, "method": scasml.Picard(1, 4)}
    answer = scasml.solve(
        problems.lqg(3), 0.0, x, kind="parabola", training={"points": 50}, **options
    )
    model = answer.preparation.surrogate
    assert isinstance(model, Parabola)
    model.save(path)
    loaded = surrogates.load(path)
    np.testing.assert_array_equal(loaded.coefficients, model.coefficients)
    assert scasml.correct(problems.lqg(3), loaded, 0.0, x, **options).value == answer.value
    command = ["scasml", "train", "lqg", "--dim", "3", "--kind", "parabola", "-o", str(path)]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("Trained a parabola of lqg 3d, 2 numbers; steps 1.")
    assert surrogates.load(path).kind == "parabola"
    with pytest.raises(scasml.ScasmlError, match="nodes is not an option of the training of a par"):
        scasml.solve(problems.lqg(3), 0.0, x, kind="parabola", training={"nodes": 3})


@pytest.mark.usefixtures("registered")
def test_registrations_that_are_refused():
    assert kind(Parabola)(parabola) is parabola  # the same definition again is no error
    other = lambda problem, domain, seed, progress: None
    for model, train, words in [
        (Parabola, other, r"kind must be new, got 'parabola', which is the kind of .*Parabola: "),
        (Plane, other, "model must be a subclass of AbstractTrained, got <class "),
        (AbstractTrained, other, 'kind must be a word other than "auto", got None: '),
        (Parabola, lambda problem, seed: None, "got a function without domain, progress: "),
    ]:
        with pytest.raises(scasml.ScasmlError, match=words) as caught:
            kind(model)(train)
        assert "\n" not in str(caught.value)
    assert surrogates.KINDS["parabola"].train is parabola
