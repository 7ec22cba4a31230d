"""Traced arguments are refused, and the pure function that the message names works under jit.

`correct`, `refine` and `solve` read clocks and run as many replicates as they need, so they cannot
be traced. `Linearised().replicate` computes one replicate at one point, and can be.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from bad_input_case import DIM, PROBLEM, MustNotRun, refused, u
from helpers import SIGMAS, heat
from scasml import Defect, Linearised
from scasml._support.tracers import holds_tracer
from scasml.estimators import Variant
from scasml.surrogates import wrap

X = jnp.arange(DIM, dtype=float)
WORDS = ("got a traced value", "call it outside jit", "scasml.Linearised().replicate")


def correct(problem=PROBLEM, surrogate=u, t=0.0, x=X):
    return scasml.correct(problem, surrogate, t, x, replicates=2, executor=MustNotRun()).value


def refine(problem=PROBLEM, surrogate=u, t=0.0, x=X):
    answers = scasml.refine(problem, surrogate, t, x, replicates=2, executor=MustNotRun())
    return next(answers).value


def solve(problem=PROBLEM, t=0.0, x=X):
    return scasml.solve(problem, t, x, replicates=2, executor=MustNotRun()).value


NETWORK = wrap(eqx.nn.MLP(DIM + 1, 1, 4, 1, key=jax.random.key(0)), PROBLEM, inputs="tx")
# How an argument is traced: a transformation of a function, and an argument for the result.
TRACED = {
    "t": {
        "jit": (jax.jit, 0.0),
        "grad": (jax.grad, 0.0),
        "vmap": (jax.vmap, jnp.zeros(2)),
        "jvp": (lambda f: lambda t: jax.jvp(f, (t,), (t,)), 0.0),
    },
    "x": {
        "jit": (jax.jit, X),
        "grad": (jax.grad, X),
        "vmap": (jax.vmap, jnp.zeros((2, DIM))),
    },
    "surrogate": {"jit": (eqx.filter_jit, NETWORK), "grad": (eqx.filter_grad, NETWORK)},
    "problem": {"jit": (eqx.filter_jit, PROBLEM)},
}
CASES = [
    pytest.param(function, name, *how, id=f"{function.__name__}-{name}-{transformation}")
    for function in (correct, refine, solve)
    for name, transformations in TRACED.items()
    for transformation, how in transformations.items()
    if not (function is solve and name == "surrogate")
]


@pytest.mark.parametrize(("function", "name", "transform", "argument"), CASES)
def test_a_traced_argument_is_refused(function, name, transform, argument):
    traced = transform(lambda value: function(**{name: value}))
    refused(lambda: traced(argument), f"{name} must be concrete", *WORDS)


def test_a_list_that_contains_a_tracer_is_refused():
    traced = jax.jit(lambda t: correct(t=[0.0, t]))
    refused(lambda: traced(0.1), "t must be concrete", *WORDS)


def refuses(function, transform, *words):
    """Assert that a transformed function of a number is refused before anything runs."""
    refused(lambda: transform(function)(1.0), *words)


class TestHiddenTracers:
    """Traced values in the closures of functions, and calls without a traced argument."""

    @pytest.mark.parametrize("transform", [jax.jit, jax.grad])
    def test_in_the_closure_of_a_surrogate(self, transform):
        call = lambda c: correct(surrogate=lambda t, x: c * u(t, x))
        refuses(call, transform, "surrogate must be concrete", *WORDS)

    @pytest.mark.parametrize("transform", [jax.jit, jax.grad])
    def test_in_a_partial_of_a_surrogate(self, transform):
        scaled = lambda scale, t, x: scale * u(t, x)
        call = lambda c: correct(surrogate=functools.partial(scaled, c))
        refuses(call, transform, "surrogate must be concrete", *WORDS)

    @pytest.mark.parametrize("transform", [jax.jit, jax.grad])
    def test_in_an_attribute_of_a_callable_object(self, transform):
        class Scaled:
            def __init__(self, scale):
                self.scale = scale

            def __call__(self, t, x):
                return self.scale * u(t, x)

            def method(self, t, x):
                return self(t, x)

        refuses(lambda c: correct(surrogate=Scaled(c)), transform, "surrogate must", *WORDS)
        refuses(lambda c: correct(surrogate=Scaled(c).method), transform, "surrogate must", *WORDS)

    def test_in_a_function_inside_jit(self):
        call = lambda c: correct(surrogate=jax.jit(lambda t, x: c * u(t, x)))
        refuses(call, jax.grad, "surrogate must be concrete", *WORDS)

    @pytest.mark.parametrize("transform", [jax.jit, jax.grad])
    def test_in_an_object_that_is_not_callable(self, transform):
        class Model:
            __slots__ = ("scale",)

            def __init__(self, scale):
                self.scale = scale

            def u(self, t, x):
                return self.scale * u(t, x)

        refuses(lambda c: correct(surrogate=Model(c).u), transform, "surrogate must", *WORDS)

        def call(c):
            model = Model({"weights": [c], 1: 2})
            return correct(surrogate=lambda t, x: model.u(t, x))

        refuses(call, transform, "surrogate must be concrete", *WORDS)

    def test_objects_that_run_code_are_left_alone(self):
        """A proxy may raise an error, or return a new object for every attribute."""

        class Proxy:
            @property
            def __dict__(self):
                raise RuntimeError("there is no object behind this proxy")

            def __getattr__(self, name):
                return Proxy()

        assert not holds_tracer({"keys": {1: 2, "a": 3}, "proxy": Proxy()})

    def test_in_an_option(self):
        call = lambda c: scasml.correct(PROBLEM, u, 0.0, X, rtol=c, executor=MustNotRun()).value
        refuses(call, jax.grad, "rtol must be concrete", *WORDS)

    @pytest.mark.parametrize("transform", [jax.jit, jax.grad])
    def test_in_a_function_that_another_function_calls(self, transform):
        def call(c):
            inner = lambda x: c * jnp.sum(x)
            return correct(surrogate=lambda t, x: inner(x))

        refuses(call, transform, "surrogate must be concrete", *WORDS)

    @pytest.mark.parametrize("transform", [jax.jit, jax.grad])
    def test_in_the_terminal_condition(self, transform):
        def call(c):
            problem = scasml.Problem(dim=DIM, horizon=1.0, terminal=lambda x: c * jnp.sum(x))
            return correct(problem=problem)

        refuses(call, transform, "problem must be concrete", *WORDS)

    def test_a_call_inside_jit_without_a_traced_argument(self):
        words = ("problem must be solved outside jit", *WORDS[1:])
        refuses(lambda c: correct() + c, jax.jit, *words)

    def test_a_call_inside_grad_without_a_traced_argument_works(self):
        call = lambda c: c * scasml.correct(PROBLEM, u, PROBLEM.horizon, X).value
        value, slope = jax.value_and_grad(call)(1.0)
        assert value == slope == jnp.sum(X)

    @pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
    def test_a_function_that_keeps_the_tracers_of_past_traces_is_not_refused(self, transform):
        seen = []
        model = lambda x: (seen.append(x), jnp.sum(x))[1]
        transform(model)(jnp.ones((2, 2)) if transform is jax.vmap else jnp.ones(2))
        assert seen
        assert not holds_tracer(model)

    def test_a_concrete_closure_is_not_refused(self):
        c = jnp.asarray(2.0)
        assert not holds_tracer({"model": functools.partial(lambda a, t, x: a * c * t, c)})


class TestReplicate:
    """The corrected value at one point, as a pure function of a random key and the point."""

    problem, solution = heat()
    exact = staticmethod(solution)
    T, X = jnp.asarray(0.1), jnp.asarray([0.3, -0.2, 0.5])

    def corrected(self, key, t, x, scale=0.3):
        """Return one replicate of u(t, x), and of its gradient."""
        wrong = lambda t, x: self.exact(t, x) + scale * jnp.sin(jnp.sum(x) + t)
        model = wrap(wrong, self.problem)
        equation, method = Defect(self.problem, model), Linearised()
        tuning, variant = method.default_tuning(equation, True), jnp.asarray(Variant.MAIN)
        found = method.replicate(equation, tuning, variant, key, t, x, True)
        value, gradient = jax.value_and_grad(model, argnums=1)(t, x)
        return value + found.value, gradient + found.gradient

    def test_inside_jit_and_vmap(self):
        """64 replicates agree with the solution to 6 standard errors.

        The false-fail rate is 1e-7 (Student t, 63) for each of 4 comparisons.
        """
        keys = jax.random.split(jax.random.key(0), 64)
        run = jax.jit(jax.vmap(self.corrected, (0, None, None)))
        values, gradients = (np.asarray(a, np.float64) for a in run(keys, self.T, self.X))
        value, slope = jax.value_and_grad(self.exact, 1)(self.T, self.X)
        for got, want in ((values, value), (gradients, slope)):
            stderr = np.std(got, 0, ddof=1) / np.sqrt(len(keys))
            assert np.all(np.abs(np.mean(got, 0) - want) < SIGMAS * stderr + 2e-6)
            assert np.all(stderr < 0.01)

    def test_inside_jacfwd(self):
        """The derivative of a replicate in x is its own estimate of the gradient."""
        key = jax.random.key(1)
        value = lambda x: self.corrected(key, self.T, x)[0]
        both = lambda x: (jax.jacfwd(value)(x), self.corrected(key, self.T, x)[1])
        slope, gradient = jax.jit(both)(self.X)  # one program, which is compiled once
        np.testing.assert_allclose(slope, gradient, rtol=1e-4)
