"""Refused arguments of `Picard`, `Linearised`, `Hutchinson` and `surrogates.wrap`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bad_input_case import DIM, INF, NAN, PROBLEM, bad, each, raises, refused, u
from scasml import Hutchinson, Linearised, Picard, problems
from scasml._equations.defect import Defect
from scasml.surrogates import wrap

KEY = jax.random.key(0)
WIDE = eqx.nn.MLP(DIM + 2, 1, 4, 1, key=KEY)
FITTING = eqx.nn.MLP(DIM + 1, 1, 4, 1, key=KEY)
TWO_VALUED = eqx.nn.MLP(DIM + 1, 2, 4, 1, key=KEY)


def a_picard(*args: Any, **keywords: Any) -> Any:
    """Return a call that builds an estimator."""
    return lambda: Picard(*args, **keywords)


@each(
    bad("levels-0", a_picard(0), "levels", "got 0"),
    bad("levels-negative", a_picard(-1), "levels", "got -1"),
    bad("levels-float", a_picard(2.5), "levels", "got 2.5"),
    bad("levels-bool", a_picard(True), "levels", "got True"),
    bad("levels-text", a_picard("2"), "levels", "got '2'"),
    bad("levels-none", a_picard(None), "levels", "got None"),
    bad("levels-array", a_picard(np.arange(90).reshape(9, 10)), "levels", "got array([[ 0, 1, 2"),
    bad("levels-absurd", a_picard(10**9), "levels", "10**1000000000"),
    bad("samples-0", a_picard(2, 0), "samples", "got 0"),
    bad("samples-negative", a_picard(2, -3), "samples", "got -3"),
    bad("samples-float", a_picard(2, 1.5), "samples", "got 1.5"),
    bad("samples-too-many", a_picard(2, 10**5), "samples", "100000**2"),
    bad("nodes-with-full-history", a_picard(2, 4, nodes=3), "nodes", "nodes=3"),
    bad("nodes-0", a_picard(2, 4, time="quadrature", nodes=0), "nodes", "got 0"),
    bad("nodes-float", a_picard(2, 4, time="quadrature", nodes=2.5), "nodes", "got 2.5"),
    bad("time-unknown", a_picard(2, 4, time="fullhistory"), "time", "got 'fullhistory'"),
    bad("time-none", a_picard(2, 4, time=None), "time", "got None"),
    bad("time-array", a_picard(2, 4, time=np.zeros(2)), "time", "got array([0., 0.])"),
    bad("time-exponent-negative", a_picard(2, 4, time_exponent=-0.1), "time_exponent", "got -0.1"),
    bad("time-exponent-1", a_picard(2, 4, time_exponent=1.0), "time_exponent", "got 1.0"),
    bad("time-exponent-nan", a_picard(2, 4, time_exponent=NAN), "time_exponent", "got nan"),
    bad("time-exponent-text", a_picard(2, 4, time_exponent="half"), "time_exponent", "got 'half'"),
    bad(
        "time-exponent-with-quadrature",
        a_picard(2, 4, time="quadrature", time_exponent=0.5),
        "time_exponent",
        "got 0.5",
    ),
    bad("gradient-unknown", a_picard(2, 4, gradient="path"), "gradient", "got 'path'"),
    bad("gradient-bool", a_picard(2, 4, gradient=True), "gradient", "got True"),
    bad("gradient-array", a_picard(2, 4, gradient=np.zeros(2)), "gradient", "got array([0., 0.])"),
    bad("threshold-0", a_picard(2, 4, threshold=0), "threshold", "got 0"),
    bad("threshold-negative", a_picard(2, 4, threshold=-0.01), "threshold", "got -0.01"),
    bad("threshold-nan", a_picard(2, 4, threshold=NAN), "threshold", "got nan"),
    bad("threshold-infinite", a_picard(2, 4, threshold=INF), "threshold", "got inf"),
    bad("threshold-text", a_picard(2, 4, threshold="0.01"), "threshold", "got '0.01'"),
    bad("threshold-bool", a_picard(2, 4, threshold=True), "threshold", "got True"),
)
def test_picard(call, fragments):
    refused(call, *fragments)


def a_linearised(*args: Any, **keywords: Any) -> Any:
    """Return a call that builds an estimator."""
    return lambda: Linearised(*args, **keywords)


@each(
    bad("steps-0", a_linearised(0), "steps", "got 0"),
    bad("steps-negative", a_linearised(-2), "steps", "got -2"),
    bad("steps-no-power-of-two", a_linearised(12), "steps", "power of two", "got 12"),
    bad("steps-too-many", a_linearised(2048), "steps", "up to 1024", "got 2048"),
    bad("steps-float", a_linearised(8.0), "steps", "got 8.0"),
    bad("steps-bool", a_linearised(True), "steps", "got True"),
    bad("steps-text", a_linearised("few"), "steps", '"auto"', "got 'few'"),
    bad("steps-array", a_linearised(np.zeros(2)), "steps", "got array([0., 0.])"),
    bad("samples-0", a_linearised(samples=0), "samples", "got 0"),
    bad("samples-auto", a_linearised(samples="auto"), "samples", "got 'auto'"),
    bad("samples-too-many", a_linearised(samples=2**24), "samples", "below 2^24"),
    bad("remainder-odd", a_linearised(remainder=3), "remainder", "even", "got 3", "pass 4"),
    bad("remainder-negative", a_linearised(remainder=-2), "remainder", "got -2"),
    bad("remainder-too-many", a_linearised(remainder=2**24), "remainder", "below 2^24"),
    bad("gradient-mixed", a_linearised(gradient="mixed"), "gradient", "got 'mixed'"),
    bad("gradient-bool", a_linearised(gradient=True), "gradient", "got True"),
    bad("sampling", a_linearised(sampling="sobol"), "sampling", "got 'sobol'"),
    bad(
        "antithetic-odd",
        a_linearised(samples=7, sampling="antithetic"),
        "samples",
        "got 7",
    ),
    bad("scheme", a_linearised(scheme="heun"), "scheme", "got 'heun'"),
)
def test_linearised(call, fragments):
    refused(call, *fragments)


@pytest.mark.parametrize("steps", ["auto", 1, 64, np.int64(2), 1024])
def test_steps_that_are_accepted(steps):
    assert Linearised(steps).steps == steps


@each(
    bad("zero", lambda: Hutchinson(0), "dims", "got 0"),
    bad("negative", lambda: Hutchinson(-1), "dims", "got -1"),
    bad("float", lambda: Hutchinson(2.5), "dims", "got 2.5"),  # type: ignore[arg-type]
    bad("bool", lambda: Hutchinson(True), "dims", "got True"),
    bad("text", lambda: Hutchinson("all"), "dims", "got 'all'"),  # type: ignore[arg-type]
    bad("none", lambda: Hutchinson(None), "dims", "got None"),  # type: ignore[arg-type]
    bad(
        "more-than-d",
        lambda: Defect(PROBLEM, wrap(u, PROBLEM), Hutchinson(9)),
        "hutchinson",
        "9 of only 3",
        "at most 3",
    ),
)
def test_hutchinson(call, fragments):
    refused(call, *fragments)


def a_surrogate(model: Any, problem: Any = PROBLEM, **keywords: Any) -> Any:
    """Return a call that wraps a model."""
    return lambda: wrap(model, problem, **keywords)


@each(
    bad("number", a_surrogate(1.0), "surrogate", "got float"),
    bad("text", a_surrogate("model.py"), "surrogate", "got str"),
    bad("none", a_surrogate(None), "surrogate", "got NoneType"),
    bad("array", a_surrogate(np.zeros((9, 9))), "surrogate", "got ndarray"),
    bad(
        "network-without-inputs",
        a_surrogate(FITTING),
        "inputs",
        "one vector of 4 numbers",
        "got None",
    ),
    bad("network-of-t-and-x", a_surrogate(FITTING, inputs="t, x"), "inputs", "got 't, x'"),
    bad("unknown-inputs", a_surrogate(u, inputs="x, t"), "inputs", "got 'x, t'"),
    bad("inputs-array", a_surrogate(u, inputs=np.zeros(2)), "inputs", "got array([0., 0.])"),
    bad(
        "inputs-unknown-for-a-surrogate",
        a_surrogate(wrap(u, PROBLEM), inputs="x, t"),
        "inputs",
        "got 'x, t'",
    ),
    bad(
        "inputs-for-a-surrogate",
        a_surrogate(wrap(u, PROBLEM), inputs="tx"),
        "inputs",
        "does not apply to a surrogate",
        "got 'tx'",
    ),
    bad("network-too-wide", a_surrogate(WIDE, inputs="tx"), "surrogate", "d = 3", "(5,) and (4,)"),
    bad(
        "function-too-wide",
        a_surrogate(lambda v: v @ np.ones(7), inputs="xt"),
        "surrogate",
        "(7,)",
        "d = 3",
    ),
    bad("two-valued-network", a_surrogate(TWO_VALUED, inputs="xt"), "surrogate", "shape (2,)"),
    bad("vector", a_surrogate(lambda t, x: x), "surrogate", "u(t, x)", "shape (3,)"),
    bad("tuple", a_surrogate(lambda t, x: (t, x)), "surrogate", "u(t, x)", "got tuple"),
    bad("returns-none", a_surrogate(lambda t, x: None), "surrogate", "u(t, x)", "got NoneType"),
    bad("complex", a_surrogate(lambda t, x: 1j * t), "surrogate", "u(t, x)", "got complex64"),
    bad("raises", a_surrogate(raises), "surrogate", "u(t, x)", "RuntimeError: It went wrong"),
    bad(
        "numpy",
        a_surrogate(lambda t, x: np.sin(x).sum()),
        "surrogate",
        "u(t, x)",
        "TracerArrayConversionError",
    ),
    bad(
        "one-argument",
        a_surrogate(lambda x: jnp.sum(x)),
        "surrogate",
        "u(t, x)",
        "takes 1 positional argument",
    ),
    bad("class-for-instance", a_surrogate(eqx.nn.MLP), "surrogate", "u(t, x)", "TypeError"),
    bad("problem-is-text", a_surrogate(u, "hjb"), "problem", "got 'hjb'"),
    bad("problem-is-a-constructor", a_surrogate(u, problems.hjb), "problem", "got <function hjb"),
)
def test_surrogate(call, fragments):
    refused(call, *fragments)
