"""`surrogates.wrap`: a surrogate has the values of its model, and a model is traced once."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import heat
from scasml import Picard
from scasml.surrogates import AbstractSurrogate, wrap

DIM = 2
PROBLEM = scasml.Problem(
    dim=DIM, horizon=1.0, nonlinearity=lambda t, x, u, z: u**2, terminal=jnp.sum
)
T, X = np.float32(0.3), np.array([0.4, -0.7], np.float32)
JOINED = {"tx": np.append(T, X), "xt": np.append(X, T)}


def plain(t, x):
    return jnp.sin(t) * jnp.sum(x**2)


@dataclass
class Unhashable:
    """A dataclass with arrays, which is compared by value and so has no hash."""

    scale: Any
    calls: int = 0

    def __call__(self, t, x):
        self.calls += 1
        return self.scale * plain(t, x)


class Module(eqx.Module):
    """A network that is called as u(t, x)."""

    layer: eqx.nn.Linear

    def __call__(self, t, x):
        return jnp.sum(jnp.tanh(self.layer(x))) * t


class OfOneVector(eqx.Module):
    """A module of (t, x) joined that is neither an MLP nor a Sequential."""

    layer: eqx.nn.Linear

    def __call__(self, v):
        return self.layer(jnp.sin(v))


def mlp(key=0, out=1):
    return eqx.nn.MLP(DIM + 1, out, 4, 2, jnp.tanh, key=jax.random.key(key))


def sequential():
    keys = jax.random.split(jax.random.key(1))
    layers = [
        eqx.nn.Linear(DIM + 1, 3, key=keys[0]),
        eqx.nn.Lambda(jnp.tanh),
        eqx.nn.Linear(3, 1, key=keys[1]),
    ]
    return eqx.nn.Sequential(layers)


def check_value(surrogate, expected):
    """Assert that the surrogate returns this number, as a float32 scalar."""
    assert isinstance(surrogate, AbstractSurrogate)
    got = surrogate(jnp.asarray(T), jnp.asarray(X))
    assert got.shape == ()
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.asarray(expected).reshape(()), rtol=2e-6)


class TestWrap:
    """The values of a surrogate are those of its model."""

    @pytest.mark.parametrize("inputs", [None, "t, x"])
    def test_function(self, inputs):
        check_value(wrap(plain, PROBLEM, inputs=inputs), plain(T, X))

    def test_object_with_an_unhashable_class(self):
        model = Unhashable(jnp.asarray(2.0))
        with pytest.raises(TypeError):
            hash(model)
        check_value(wrap(model, PROBLEM), 2 * plain(T, X))

    def test_module(self):
        model = Module(eqx.nn.Linear(DIM, 3, key=jax.random.key(2)))
        check_value(wrap(model, PROBLEM), model(T, X))

    @pytest.mark.parametrize("inputs", JOINED)
    @pytest.mark.parametrize(
        "make",
        [mlp, lambda: mlp(out="scalar"), sequential],
        ids=["mlp", "scalar mlp", "sequential"],
    )
    def test_networks(self, make, inputs):
        """A network is split after its first layer: u(t, x) = head(t, W x)."""
        network = make()
        surrogate = wrap(network, PROBLEM, inputs=inputs)
        assert isinstance(surrogate, AbstractSurrogate)
        assert surrogate.form.weight.shape[1] == DIM
        by_head = lambda t, x: surrogate.form.head(t, surrogate.form.weight @ x)
        got, split, expected = jax.jit(
            lambda t, x, v: (surrogate(t, x), by_head(t, x), network(v))
        )(T, X, JOINED[inputs])
        assert got.shape == ()
        np.testing.assert_allclose([got, split], np.full(2, expected), rtol=2e-6)

    def test_inputs_gives_the_order(self):
        network = mlp()
        one, other = (
            wrap(network, PROBLEM, inputs=inputs)(jnp.asarray(T), jnp.asarray(X))
            for inputs in JOINED
        )
        assert abs(one - other) > 1e-3

    @pytest.mark.parametrize("inputs", JOINED)
    @pytest.mark.parametrize(
        "model",
        [
            OfOneVector(eqx.nn.Linear(DIM + 1, 1, key=jax.random.key(3))),
            eqx.nn.Sequential(
                [eqx.nn.Lambda(jnp.sin), eqx.nn.Linear(DIM + 1, 1, key=jax.random.key(4))]
            ),
            lambda v: jnp.sin(v) @ np.arange(3, dtype=np.float32),
        ],
        ids=["module", "no linear first layer", "function"],
    )
    def test_models_of_one_vector(self, model, inputs):
        surrogate = wrap(model, PROBLEM, inputs=inputs)
        assert surrogate.form is None
        check_value(surrogate, model(jnp.asarray(JOINED[inputs])))

    def test_one_number_in_an_array(self):
        """A model may return one number as an array of shape (1,), as most networks do."""
        check_value(wrap(lambda t, x: plain(t, x)[None], PROBLEM), plain(T, X))

    @pytest.mark.parametrize(
        "value", [1, 2.0, np.float64(3.0), np.arange(1), jnp.asarray(True).astype(int)]
    )
    def test_constants(self, value):
        """Integers and Python numbers are converted to the dtype of x."""
        check_value(wrap(lambda t, x: value, PROBLEM), np.asarray(value).reshape(()))

    @pytest.mark.parametrize(
        "make", [lambda: wrap(plain, PROBLEM), lambda: wrap(mlp(), PROBLEM, inputs="tx")]
    )
    def test_a_surrogate_is_returned_unchanged(self, make):
        surrogate = make()
        assert wrap(surrogate, PROBLEM) is surrogate


class TestPrecision:
    """A model is called in the dtype of the simulation."""

    class Looped(eqx.Module):
        """A model that takes x only in the dtype of its weights, as the carry of a loop does."""

        weight: Any

        def __call__(self, t, x):
            return jnp.sum(jax.lax.fori_loop(0, 2, lambda i, y: jnp.sin(self.weight * y), x)) * t

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_weights_are_cast_before_the_model_is_called(self, dtype):
        """The surrogate is evaluated at t = T, where no path is simulated."""
        weight = np.array([0.3, 0.8])
        with jax.enable_x64(True):
            model = self.Looped(jnp.asarray(weight))
        answer = scasml.correct(PROBLEM, model, 1.0, X, dtype=dtype)
        assert answer.surrogate_value == pytest.approx(
            np.sum(np.sin(weight * np.sin(weight * X))), rel=1e-6
        )

    def test_a_problem_in_float64(self):
        """The loop inside g takes float64 only."""
        weight = np.array([0.3, 0.8])
        with jax.enable_x64(True):
            terminal = lambda x: jnp.sum(
                jax.lax.fori_loop(0, 2, lambda i, y: jnp.asarray(weight) * y, x)
            )
            problem = scasml.Problem(dim=DIM, horizon=1.0, terminal=terminal)
            answer = scasml.correct(problem, None, 1.0, X, dtype="float64")
        assert answer.value == pytest.approx(weight**2 @ X, rel=1e-14)


class TestTraces:
    """A model is traced once, and not again for new weights or for the same object."""

    @staticmethod
    def correct(model):
        return scasml.correct(PROBLEM, model, 0.5, X, method=Picard(1, 4), replicates=2).value

    def test_new_weights(self):
        calls = []

        class Counted(eqx.Module):
            network: eqx.nn.MLP

            def __call__(self, t, x):
                calls.append(1)
                return self.network(jnp.append(t, x))

        first = self.correct(Counted(mlp(0)))
        traced = len(calls)
        second = self.correct(Counted(mlp(1)))
        assert traced > 0
        assert first != second
        assert len(calls) == traced

    def test_the_same_unhashable_object(self):
        """An object that cannot be hashed is identified by `id`, so it is not traced again."""
        model = Unhashable(jnp.asarray(2.0))
        first = self.correct(model)
        traced = model.calls
        assert self.correct(model) == first
        assert 0 < traced == model.calls

    def test_two_objects_of_an_unhashable_class(self):
        """Two objects are two models, even if they are equal. At t = T no path is simulated."""
        problem, _ = heat(dim=DIM)
        values = [
            scasml.correct(problem, Unhashable(s), problem.horizon, X).surrogate_value
            for s in (1.0, 2.0, 1.0)
        ]
        assert values[0] == values[2] != values[1]


class TestUnusualModels:
    def test_a_subclass_of_a_network_keeps_its_own_call(self):
        class Hard(eqx.nn.MLP):
            def __call__(self, v):
                return v[0] * super().__call__(0.5 * v)

        model = Hard(DIM + 1, 1, 4, 2, activation=jnp.tanh, key=jax.random.key(0))
        surrogate = wrap(model, PROBLEM, inputs="tx")
        joined = jnp.concatenate([jnp.array([0.3]), jnp.ones(DIM)])
        np.testing.assert_array_equal(surrogate(jnp.asarray(0.3), jnp.ones(DIM)), model(joined)[0])

    def test_a_model_without_reverse_mode_is_refused(self):
        endless = lambda t, x: jax.lax.while_loop(
            lambda c: c < 3.0, lambda c: c + jnp.sum(x) ** 2 + 1, 0.0
        )
        with pytest.raises(scasml.ScasmlError, match="reverse mode"):
            wrap(endless, PROBLEM)

    def test_a_closure_that_changes(self):
        """One answer never mixes the old and the new weights of a closure.

        One program may have been compiled with the old weights, and another with the new ones.
        """
        problem = scasml.Problem(dim=2, horizon=1.0, terminal=jnp.sum)
        weight = {"a": 1.0}
        u = lambda t, x: weight["a"] * (jnp.sum(x) + 1)
        for samples in (4, 5):
            answer = scasml.correct(
                problem, u, 0.0, np.ones(2), method=scasml.Picard(1, samples), replicates=200
            )
            assert answer.surrogate_value == weight["a"] * 3
            assert abs(answer.value - 2.0) < 6 * answer.stderr + 1e-6  # fails by chance: 9e-9
            weight["a"] = 5.0

    def test_a_defect_of_a_function(self):
        surrogate = wrap(lambda t, x: jnp.sum(x), PROBLEM)
        assert scasml.Defect(PROBLEM, surrogate).generator.route == "ito"

    def test_an_unhashable_terminal(self):
        @dataclasses.dataclass
        class Payoff:
            strike: float

            def __call__(self, x):
                return jnp.sum(x) - self.strike

        problem = scasml.Problem(dim=2, horizon=1.0, terminal=Payoff(1.0))
        answer = scasml.correct(
            problem, None, 0.5, np.ones(2), method=scasml.Picard(1, 4), replicates=2
        )
        assert np.isfinite(answer.value)
