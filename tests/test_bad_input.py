"""Bad input: every refusal is one sentence that names the argument and what was received, and comes before any simulation."""

import importlib
import io
import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import Hutchinson, Picard, ScasmlError, problems
from scasml._answer.correction import Correction, Cost
from scasml._answer.diagnosis import Tails
from scasml._io import tables
from scasml._planning import auto as choice
from scasml._planning import task as setting
from scasml._support.errors import brief, first_line, listing
from scasml.estimators.base import Evaluations
from scasml.execution.stopping import Budget
from scasml.surrogates import wrap

DIM = 3
NAN, INF = float("nan"), float("inf")
KEY = jax.random.key(0)
CORRECT = importlib.import_module(
    "scasml._correct"
)  # the module, which the function of that name hides


def g(x: Any) -> Any:
    return jnp.sum(x)


def u(t: Any, x: Any) -> Any:
    return t + jnp.sum(x)


PROBLEM = scasml.Problem(dim=DIM, horizon=0.5, terminal=g)
WIDE = eqx.nn.MLP(DIM + 2, 1, 4, 1, key=KEY)
FITTING = eqx.nn.MLP(DIM + 1, 1, 4, 1, key=KEY)
TWO_VALUED = eqx.nn.MLP(DIM + 1, 2, 4, 1, key=KEY)
ANSWER = Correction(
    t=0.0, x=np.zeros(DIM), value=1.0, stderr=0.1, surrogate_value=0.9, correction=0.1, raw_value=1.0, kept_share=1.0, bias=0.0, gradient=None,
    gradient_stderr=None, gradient_bias=None, status="budget exhausted", replicates=4, steps=0, gradient_method=None, cost=Cost(Evaluations(), 4, 0.0), method=Picard(1, 4),
    problem=PROBLEM, has_surrogate=True, budget=Budget(4), stopped="replicates=4", history=(), levels=(), tails=Tails.of(1, []),
)  # fmt: skip


def poison(*args: Any, **kwargs: Any) -> Any:
    pytest.fail("bad input reached the simulation")


def assert_one_sentence(message: str) -> None:
    assert "\n" not in message
    assert message == message.strip()
    assert message.endswith(".")
    assert not message.endswith("..")
    assert len(message) <= 300
    assert not re.search(r"[.!?]\s+[A-Z]", message), f"more than one sentence: {message}"


def refused(call: Any, *fragments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for room, entry in (
            (setting, "Kernel"),
            (choice, "surrogate_at"),
            (CORRECT, "surrogate_at"),
            (CORRECT, "terminal_at"),
        ):
            patch.setattr(room, entry, poison)
        with pytest.raises(ScasmlError) as caught:
            call()
    assert isinstance(caught.value, ValueError | TypeError)
    message = str(caught.value)
    assert_one_sentence(message)
    for fragment in fragments:
        assert fragment in message, message


def bad(name: str, call: Any, *fragments: str) -> Any:
    assert len(fragments) >= 2, "name the argument and what was received"
    return pytest.param(call, fragments, id=name)


def each(*cases: Any) -> Any:
    return pytest.mark.parametrize(("call", "fragments"), cases)


def a_problem(**changes: Any) -> Any:
    return lambda: scasml.Problem(**({"dim": DIM, "horizon": 1.0, "terminal": g} | changes))


@each(
    bad("zero", a_problem(dim=0), "dim", "got 0"),
    bad("negative", a_problem(dim=-2), "dim", "got -2"),
    bad("float", a_problem(dim=2.5), "dim", "got 2.5"),
    bad("whole-float", a_problem(dim=3.0), "dim", "got 3.0"),
    bad("bool", a_problem(dim=True), "dim", "got True"),
    bad("text", a_problem(dim="3"), "dim", "got '3'"),
    bad("none", a_problem(dim=None), "dim", "got None"),
    bad("array", a_problem(dim=np.arange(90).reshape(9, 10)), "dim", "got array([[ 0, 1, 2"),
)
def test_dim(call, fragments):
    refused(call, *fragments)


@each(
    bad("zero", a_problem(horizon=0), "horizon", "got 0"),
    bad("negative", a_problem(horizon=-1.0), "horizon", "got -1.0"),
    bad("infinite", a_problem(horizon=INF), "horizon", "got inf"),
    bad("nan", a_problem(horizon=NAN), "horizon", "got nan"),
    bad("array", a_problem(horizon=np.array([1.0, 2.0])), "horizon", "got array([1., 2.])"),
    bad("text", a_problem(horizon="1"), "horizon", "got '1'"),
    bad("none", a_problem(horizon=None), "horizon", "got None"),
    bad("bool", a_problem(horizon=True), "horizon", "got True"),
    bad("complex", a_problem(horizon=1j), "horizon", "got 1j"),
    bad("complex-array", a_problem(horizon=np.array(1j)), "horizon", "got array(0.+1.j)"),
    bad("text-array", a_problem(horizon=np.array("soon")), "horizon", "got array('soon'"),
)
def test_horizon(call, fragments):
    refused(call, *fragments)


@each(
    bad("long", a_problem(drift=np.zeros(4)), "drift", "d = 3", "shape (4,)"),
    bad("matrix", a_problem(drift=np.eye(3)), "drift", "shape (3, 3)"),
    bad("ragged", a_problem(drift=[[1.0], [1.0, 2.0]]), "drift", "got [[1.0], [1.0, 2.0]]"),
    bad("text", a_problem(drift="north"), "drift", "got 'north'"),
    bad("number-as-text", a_problem(drift="1.0"), "drift", "got '1.0'"),
    bad("none", a_problem(drift=None), "drift", "got None"),
    bad("bool", a_problem(drift=True), "drift", "got True"),
    bad("object", a_problem(drift=object()), "drift", "got <object object"),
    bad("complex", a_problem(drift=1j), "drift", "got 1j"),
    bad("complex-array", a_problem(drift=np.full(3, 1j)), "drift", "got array([0.+1.j"),
    bad("complex-jax-array", a_problem(drift=jnp.full(3, 1j)), "drift", "got Array([0.+1.j"),
    bad("nan", a_problem(drift=[0.0, NAN, 0.0]), "drift", "got [0.0, nan, 0.0]"),
)
def test_drift(call, fragments):
    refused(call, *fragments)


@each(
    bad("short", a_problem(diffusion=np.ones(2)), "diffusion", "d = 3", "shape (2,)"),
    bad("not-square", a_problem(diffusion=np.ones((3, 2))), "diffusion", "shape (3, 2)"),
    bad("three-axes", a_problem(diffusion=np.ones((3, 3, 3))), "diffusion", "shape (3, 3, 3)"),
    bad("text", a_problem(diffusion="sqrt(2)"), "diffusion", "got 'sqrt(2)'"),
    bad("none", a_problem(diffusion=None), "diffusion", "got None"),
    bad("bool", a_problem(diffusion=[True, True, True]), "diffusion", "got [True, True, True]"),
    bad("complex", a_problem(diffusion=np.eye(3) * 1j), "diffusion", "got array([[0.+1.j"),
    bad("infinite", a_problem(diffusion=INF), "diffusion", "got inf"),
    bad(
        "nan-in-a-large-matrix",
        a_problem(dim=30, diffusion=np.full((30, 30), NAN)),
        "diffusion",
        "got array([[nan",
    ),
    bad("singular-scalar", a_problem(diffusion=0.0), "diffusion", "invertible", "0 times"),
    bad(
        "singular-diagonal",
        a_problem(diffusion=[1.0, 0.0, 2.0]),
        "diffusion",
        "invertible",
        "0 times",
    ),
    bad(
        "rank-deficient",
        a_problem(diffusion=np.ones((3, 3))),
        "diffusion",
        "invertible",
        "times its largest",
    ),
)
def test_diffusion(call, fragments):
    refused(call, *fragments)


def raises(*args: Any) -> Any:
    raise RuntimeError("It went wrong. Very wrong.\nAnd more.")


def raises_at_length(*args: Any) -> Any:
    raise RuntimeError("word " * 200)


@each(
    bad("number", a_problem(terminal=3.0), "terminal", "got 3.0"),
    bad("array", a_problem(terminal=np.zeros((9, 9))), "terminal", "got array([[0."),
    bad("vector", a_problem(terminal=lambda x: 2 * x), "terminal(x)", "shape (3,)"),
    bad(
        "matrix-of-one",
        a_problem(terminal=lambda x: jnp.sum(x)[None, None]),
        "terminal(x)",
        "shape (1, 1)",
    ),
    bad("tuple", a_problem(terminal=lambda x: (jnp.sum(x), x)), "terminal(x)", "got tuple"),
    bad("list", a_problem(terminal=lambda x: [jnp.sum(x)]), "terminal(x)", "got list"),
    bad("none", a_problem(terminal=lambda x: None), "terminal(x)", "got NoneType"),
    bad("text", a_problem(terminal=lambda x: "zero"), "terminal(x)", "TypeError"),
    bad("complex", a_problem(terminal=lambda x: 1j * jnp.sum(x)), "terminal(x)", "got complex64"),
    bad("bool", a_problem(terminal=lambda x: jnp.sum(x) > 0), "terminal(x)", "got bool"),
    bad("raises", a_problem(terminal=raises), "terminal(x)", "RuntimeError: It went wrong"),
    bad(
        "raises-at-length",
        a_problem(terminal=raises_at_length),
        "terminal(x)",
        "RuntimeError: word word",
    ),
    bad(
        "numpy",
        a_problem(terminal=lambda x: np.linalg.norm(np.asarray(x))),
        "terminal(x)",
        "TracerArrayConversionError",
    ),
    bad(
        "branches",
        a_problem(terminal=lambda x: 1.0 if x[0] > 0 else 0.0),
        "terminal(x)",
        "TracerBoolConversionError",
    ),
    bad(
        "no-arguments",
        a_problem(terminal=lambda: 0.0),
        "terminal(x)",
        "takes 0 positional arguments",
    ),
    bad(
        "too-many-arguments",
        a_problem(terminal=lambda t, x: 0.0),
        "terminal(x)",
        "missing 1 required positional argument",
    ),
    bad(
        "other-dimension",
        a_problem(terminal=lambda x: x @ np.ones(5)),
        "terminal(x)",
        "d = 3",
        "(5,)",
    ),
)
def test_terminal(call, fragments):
    refused(call, *fragments)


@each(
    bad("number", a_problem(nonlinearity=0.0), "nonlinearity", "got 0.0"),
    bad(
        "vector",
        a_problem(nonlinearity=lambda t, x, u, z: z),
        "nonlinearity(t, x, u, z)",
        "shape (3,)",
    ),
    bad(
        "tuple",
        a_problem(nonlinearity=lambda t, x, u, z: (u, z)),
        "nonlinearity(t, x, u, z)",
        "got tuple",
    ),
    bad(
        "none",
        a_problem(nonlinearity=lambda t, x, u, z: None),
        "nonlinearity(t, x, u, z)",
        "got NoneType",
    ),
    bad(
        "complex",
        a_problem(nonlinearity=lambda t, x, u, z: 1j * u),
        "nonlinearity(t, x, u, z)",
        "got complex64",
    ),
    bad(
        "raises",
        a_problem(nonlinearity=raises),
        "nonlinearity(t, x, u, z)",
        "RuntimeError: It went wrong",
    ),
    bad(
        "numpy",
        a_problem(nonlinearity=lambda t, x, u, z: np.sin(u)),
        "nonlinearity(t, x, u, z)",
        "TracerArrayConversionError",
    ),
    bad(
        "float",
        a_problem(nonlinearity=lambda t, x, u, z: float(u)),
        "nonlinearity(t, x, u, z)",
        "ConcretizationTypeError",
    ),
    bad(
        "three-arguments",
        a_problem(nonlinearity=lambda t, x, u: u),
        "nonlinearity(t, x, u, z)",
        "takes 3 positional",
    ),
)
def test_nonlinearity(call, fragments):
    refused(call, *fragments)


WITH_REFERENCE = problems.convection_diffusion(DIM)


@each(
    bad("reference-is-text", a_problem(reference="exact"), "reference", "got 'exact'"),
    bad("reference-is-a-function", a_problem(reference=u), "reference", "got <function u"),
    bad("no-reference", lambda: PROBLEM.exact(0.0, np.zeros(DIM)), "reference", "'problem'"),
    bad(
        "x-of-other-width", lambda: WITH_REFERENCE.exact(0.0, np.zeros((2, 5))), "x", "shape (2, 5)"
    ),
    bad("x-is-text", lambda: WITH_REFERENCE.exact(0.0, "origin"), "x", "got 'origin'"),
    bad(
        "times-and-points",
        lambda: WITH_REFERENCE.exact(np.zeros(4), np.zeros((2, DIM))),
        "t and x",
        "(4,)",
        "(2, 3)",
    ),
)
def test_reference(call, fragments):
    refused(call, *fragments)


def a_picard(*args: Any, **keywords: Any) -> Any:
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


@each(
    bad("zero", lambda: Hutchinson(0), "dims", "got 0"),
    bad("negative", lambda: Hutchinson(-1), "dims", "got -1"),
    bad("float", lambda: Hutchinson(2.5), "dims", "got 2.5"),  # type: ignore[arg-type]
    bad("bool", lambda: Hutchinson(True), "dims", "got True"),
    bad("text", lambda: Hutchinson("all"), "dims", "got 'all'"),  # type: ignore[arg-type]
    bad("none", lambda: Hutchinson(None), "dims", "got None"),  # type: ignore[arg-type]
)
def test_hutchinson(call, fragments):
    refused(call, *fragments)


def a_surrogate(model: Any, problem: Any = PROBLEM, **keywords: Any) -> Any:
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


def a_correction(
    x: Any = (0.0, 0.0, 0.0),
    t: Any = 0.0,
    surrogate: Any = u,
    problem: Any = PROBLEM,
    **keywords: Any,
) -> Any:
    return lambda: scasml.correct(
        problem, surrogate, t, x, **({"method": Picard(1, 4), "replicates": 2} | keywords)
    )


def points(count: int, **at: float) -> np.ndarray:
    """Zeros but for the points named, as in i4=nan."""
    x = np.zeros((count, DIM))
    for index, value in at.items():
        x[int(index[1:]), 1] = value
    return x


@each(
    bad("wrong-width", a_correction(np.zeros(4)), "x", "dimension 3", "shape (4,)"),
    bad("wrong-width-of-many", a_correction(np.zeros((5, 2))), "x", "shape (5, 2)"),
    bad("transposed", a_correction(np.zeros((3, 7))), "x", "shape (3, 7)"),
    bad("no-axes", a_correction(0.0), "x", "shape ()"),
    bad("three-axes", a_correction(np.zeros((2, 2, 3))), "x", "shape (2, 2, 3)"),
    bad("empty", a_correction(np.zeros((0, 3))), "x", "shape (0, 3)"),
    bad("empty-list", a_correction([]), "x", "shape (0,)"),
    bad("ragged", a_correction([[0.0, 0.0, 0.0], [0.0]]), "x", "got [[0.0, 0.0, 0.0], [0.0]]"),
    bad("text", a_correction("origin"), "x", "got 'origin'"),
    bad("texts", a_correction(["0", "0", "0"]), "x", "got ['0', '0', '0']"),
    bad("complex", a_correction(np.full(3, 1j)), "x", "got array([0.+1.j"),
    bad("complex-matrix", a_correction(np.full((9, 3), 1j)), "x", "got array([[0.+1.j"),
    bad("bool", a_correction([True, False, True]), "x", "got [True, False, True]"),
    bad("none", a_correction(None), "x", "got None"),
    bad("nones", a_correction([None, 0.0, 0.0]), "x", "got [None, 0.0, 0.0]"),
    bad("object", a_correction(object()), "x", "got <object object"),
    bad("function", a_correction(np.sin), "x", "got <ufunc 'sin'>"),
    bad("keys", a_correction(jax.random.split(KEY, 3)), "x", "got Array((3,), dtype=key<fry>)"),
    bad("nan", a_correction([0.0, NAN, 0.0]), "x", "NaN or infinity at point 0"),
    bad("nan-of-many", a_correction(points(6, i4=NAN)), "x", "NaN or infinity at point 4:"),
    bad("infinities", a_correction(points(6, i1=INF, i3=-INF, i5=NAN)), "x", "at point 1, 3, 5:"),
    bad(
        "many-nans", a_correction(np.full((50, 3), NAN)), "x", "at point 0, 1, 2, 3, 4 and 45 more"
    ),
    bad("overflows-float32", a_correction(points(4, i2=1e300)), "x", "float32 at point 2"),
)
def test_x(call, fragments):
    refused(call, *fragments)


@each(
    bad("count", a_correction(np.zeros((3, 3)), np.zeros(2)), "t and x", "2 times for 3 points"),
    bad("column", a_correction(np.zeros((3, 3)), np.zeros((3, 1))), "t", "shape (3, 1)"),
    bad("empty", a_correction(t=[]), "t", "shape (0,)"),
    bad("ragged", a_correction(t=[[0.0], [0.0, 0.1]]), "t", "got [[0.0], [0.0, 0.1]]"),
    bad("text", a_correction(t="now"), "t", "got 'now'"),
    bad("none", a_correction(t=None), "t", "got None"),
    bad("bool", a_correction(t=False), "t", "got False"),
    bad("complex", a_correction(t=1j), "t", "got 1j"),
    bad("object", a_correction(t=object()), "t", "got <object object"),
    bad("nan", a_correction(t=NAN), "t", "got nan at point 0"),
    bad("nans", a_correction(t=[0.0, NAN, 0.1, INF]), "t", "got nan at point 1, 3:"),
    bad("negative", a_correction(t=-0.25), "t", "[0, 0.5]", "got -0.25 at point 0"),
    bad("beyond", a_correction(t=0.75), "t", "[0, 0.5]", "got 0.75 at point 0"),
    bad("just-beyond", a_correction(t=0.5000001), "t", "[0, 0.5]", "got 0.5000001 at point 0"),
    bad(
        "beyond-of-many", a_correction(t=[0.0, 0.1, 2.0, 0.5, -1.0]), "t", "got 2.0 at point 2, 4:"
    ),
    bad("overflows-float32", a_correction(t=[0.0, 1e300]), "t", "got 1e+300 at point 1"),
)
def test_t(call, fragments):
    refused(call, *fragments)


@each(
    bad("problem-is-text", a_correction(problem="hjb"), "problem", "got 'hjb'"),
    bad("problem-is-none", a_correction(problem=None), "problem", "got None"),
    bad("problem-is-a-class", a_correction(problem=scasml.Problem), "problem", "got <class"),
    bad(
        "problem-is-a-constructor",
        a_correction(problem=problems.hjb),
        "problem",
        "got <function hjb",
    ),
    bad("surrogate-is-a-number", a_correction(surrogate=0.0), "surrogate", "got float"),
    bad("surrogate-is-text", a_correction(surrogate="none"), "surrogate", "got str"),
    bad("surrogate-is-a-bare-network", a_correction(surrogate=FITTING), "inputs", "got None"),
    bad("surrogate-is-a-vector", a_correction(surrogate=lambda t, x: x), "surrogate", "shape (3,)"),
    bad(
        "surrogate-of-another-problem",
        a_correction(surrogate=wrap(eqx.nn.MLP(3, 1, 4, 1, key=KEY), problems.hjb(2), inputs="tx")),
        *("surrogate", "d = 3", "(2,)"),
    ),
    bad(
        "surrogate-in-float64",
        a_correction(surrogate=lambda t, x: x, dtype="float64"),
        "surrogate",
        "shape (3,)",
    ),
    bad("method-unknown", a_correction(method="picard"), "method", "got 'picard'"),
    bad(
        "method-class",
        a_correction(method=Picard),
        "method",
        "got <class 'scasml.estimators.picard.Picard'>",
    ),
    bad("method-none", a_correction(method=None), "method", "got None"),
    bad("method-number", a_correction(method=2), "method", "got 2"),
    bad("method-network", a_correction(method=FITTING), "method", "got MLP("),
    bad("replicates-0", a_correction(replicates=0), "replicates", "got 0"),
    bad("replicates-negative", a_correction(replicates=-1), "replicates", "got -1"),
    bad("replicates-float", a_correction(replicates=1.5), "replicates", "got 1.5"),
    bad("replicates-bool", a_correction(replicates=True), "replicates", "got True"),
    bad("replicates-text", a_correction(replicates="8"), "replicates", "got '8'"),
    bad(
        "replicates-array",
        a_correction(replicates=np.zeros((9, 9))),
        "replicates",
        "got array([[0.",
    ),
    bad("seed-negative", a_correction(seed=-1), "seed", "got -1"),
    bad("seed-float", a_correction(seed=1.5), "seed", "got 1.5"),
    bad("seed-none", a_correction(seed=None), "seed", "got None"),
    bad("seed-key", a_correction(seed=KEY), "seed", "got Array((), dtype=key<fry>)"),
    bad("chunk-0", a_correction(chunk=0), "chunk", "got 0"),
    bad("chunk-negative", a_correction(chunk=-8), "chunk", "got -8"),
    bad("chunk-float", a_correction(chunk=2.5), "chunk", "got 2.5"),
    bad("dtype-float16", a_correction(dtype="float16"), "dtype", "got 'float16'"),
    bad("dtype-unknown", a_correction(dtype="double-ish"), "dtype", "got 'double-ish'"),
    bad(
        "dtype-complex", a_correction(dtype=np.complex64), "dtype", "got <class 'numpy.complex64'>"
    ),
    bad("dtype-number", a_correction(dtype=32), "dtype", "got 32"),
    bad("laplacian-unknown", a_correction(laplacian="estimated"), "laplacian", "got 'estimated'"),
    bad("laplacian-number", a_correction(laplacian=2), "laplacian", "got 2"),
    bad("laplacian-class", a_correction(laplacian=Hutchinson), "laplacian", "got <class"),
    bad(
        "laplacian-too-many",
        a_correction(laplacian=Hutchinson(9)),
        "laplacian",
        "9 of only 3 coordinates",
    ),
    bad("with-gradient-text", a_correction(with_gradient="no"), "with_gradient", "got 'no'"),
    bad("with-gradient-none", a_correction(with_gradient=None), "with_gradient", "got None"),
    bad("progress-text", a_correction(progress="yes"), "progress", "got 'yes'"),
    bad("progress-number", a_correction(progress=1), "progress", "got 1"),
    bad("progress-none", a_correction(progress=None), "progress", "got None"),
)
def test_correct(call, fragments):
    refused(call, *fragments)


def test_good_input_is_not_refused():
    """The poison of `refused` is live: a correct call reaches it."""
    with pytest.raises(pytest.fail.Exception, match="reached the simulation"):
        refused(a_correction())


@each(
    bad("zero", lambda: ANSWER.interval(0), "level", "got 0"),
    bad("one", lambda: ANSWER.interval(1.0), "level", "got 1.0"),
    bad("percent", lambda: ANSWER.interval(95), "level", "got 95"),
    bad("negative", lambda: ANSWER.interval(-0.5), "level", "got -0.5"),
    bad("nan", lambda: ANSWER.interval(NAN), "level", "got nan"),
    bad("text", lambda: ANSWER.interval("0.95"), "level", "got '0.95'"),  # type: ignore[arg-type]
    bad("none", lambda: ANSWER.interval(None), "level", "got None"),  # type: ignore[arg-type]
    bad("bool", lambda: ANSWER.interval(True), "level", "got True"),
)
def test_interval(call, fragments):
    refused(call, *fragments)


@each(
    bad("dim-0", lambda: problems.convection_diffusion(0), "dim", "got 0"),
    bad("dim-float", lambda: problems.hjb(dim=10.0), "dim", "got 10.0"),  # type: ignore[arg-type]
    bad("dim-list", lambda: problems.burgers_type([3]), "dim", "got [3]"),  # type: ignore[arg-type]
    bad("dim-text", lambda: problems.quadratic_gradient("3"), "dim", "got '3'"),  # type: ignore[arg-type]
    bad("dim-1-of-a-chain", lambda: problems.lqg(1), "dim", "got 1"),
    bad("seed-negative", lambda: problems.lqg(3, seed=-1), "seed", "got -1"),
    bad("horizon-0", lambda: problems.allen_cahn(3, horizon=0.0), "horizon", "got 0.0"),
    bad("horizon-infinite", lambda: problems.sine_gordon(3, horizon=INF), "horizon", "got inf"),
    bad("sigma-negative", lambda: problems.allen_cahn(3, sigma=-1.0), "sigma", "got -1.0"),
    bad("sigma0-0", lambda: problems.burgers(3, 0.0), "sigma0", "got 0.0"),
    bad("sigma0-nan", lambda: problems.burgers(3, NAN), "sigma0", "got nan"),
    bad("drift-in", lambda: problems.burgers(3, drift_in="both"), "drift_in", "got 'both'"),  # type: ignore[arg-type]
    bad(
        "frequency-text", lambda: problems.diffusion_reaction(3, "high"), "frequency", "got 'high'"
    ),  # type: ignore[arg-type]
    bad("exponent-small", lambda: problems.hjb_lin(3, 0.5), "exponent", "got 0.5"),
)
def test_zoo(call, fragments):
    refused(call, *fragments)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def as_npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def as_npz(array: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, points=array)
    return file.getvalue()


def header_only(shape: str) -> bytes:
    return as_npy(np.zeros((2, 4))).replace(
        b"(2, 4), }" + b" " * (len(shape) - 6), shape.encode() + b", }"
    )[:128]


UNREADABLE = {
    "missing": (None, "points.csv", ("no file", "'points.csv'")),
    "no-ending": (b"0,0,0,0\n", "points", ("'points'", "ending is ''")),
    "wrong-ending": (b"0,0,0,0\n", "points.txt", ("'points.txt'", "ending is '.txt'")),
    "empty": (b"", "points.csv", ("'points.csv'", "4 numbers", "shape (0, 0)")),
    "blank-lines": (b"\n\n\n", "points.csv", ("'points.csv'", "4 numbers", "shape (0, 0)")),
    "header-alone": (b"t,x1,x2,x3\n", "points.csv", ("'points.csv'", "4 numbers", "shape (0, 0)")),
    "text-cell": (
        b"t,x1,x2,x3\n0,0,0,0\n0,0,zero,0\n",
        "points.csv",
        ("line 3", "'points.csv'", "'zero'"),
    ),
    "text-cell-first": (b"0,zero,0,0\n", "points.csv", ("line 1", "'points.csv'", "'zero'")),
    "empty-cell": (b"0,0,,0\n", "points.csv", ("line 1", "'points.csv'", "''")),
    "endless-cell": (
        b"0,0,0,0\n0,0,0," + b"z" * 9999 + b"\n",
        "points.csv",
        ("line 2", "'points.csv'", "'zzz"),
    ),
    "ragged": (b"0,0,0,0\n0,0,0\n", "points.csv", ("line 2", "'points.csv'", "3 numbers", "4")),
    "too-wide": (b"0,0,0,0,0\n" * 2, "points.csv", ("'points.csv'", "4 numbers", "shape (2, 5)")),
    "no-time-column": (b"0,0,0\n" * 2, "points.csv", ("'points.csv'", "shape (2, 3)", "--t")),
    "semicolons": (b"0;0;0;0\n0;0;0;0\n", "points.csv", ("line 2", "'points.csv'", "'0;0;0;0'")),
    "binary": (bytes(range(128, 256)), "points.csv", ("'points.csv'", "UnicodeDecodeError")),
    "npy-named-csv": (
        as_npy(np.zeros((2, 4))),
        "points.csv",
        ("'points.csv'", "UnicodeDecodeError"),
    ),
    "npy-empty": (b"", "points.npy", ("'points.npy'", "EOF")),
    "npy-rubbish": (
        bytes(range(256)),
        "points.npy",
        ("'points.npy'", "ValueError", "magic string"),
    ),
    "npy-objects": (
        as_npy(np.array([[0.0, None]])),
        "points.npy",
        ("'points.npy'", "ValueError: Object arrays"),
    ),
    "npy-truncated": (as_npy(np.zeros((2, 4)))[:-8], "points.npy", ("'points.npy'", "ValueError")),
    "npy-truncated-header": (
        as_npy(np.zeros((2, 4)))[:40],
        "points.npy",
        ("'points.npy'", "ValueError"),
    ),
    "npy-boastful-header": (header_only("(10**9, 10**9)"), "points.npy", ("'points.npy'", "Error")),
    "npy-immense": (header_only("(99999999999, 9999)"), "points.npy", ("'points.npy'", "Error")),
    "npz-named-npy": (as_npz(np.zeros((2, 4))), "points.npy", ("'points.npy'", "magic string")),
    "npy-one-axis": (
        as_npy(np.zeros(4)),
        "points.npy",
        ("'points.npy'", "4 numbers", "shape (4,)"),
    ),
    "npy-no-rows": (
        as_npy(np.zeros((0, 4))),
        "points.npy",
        ("'points.npy'", "4 numbers", "shape (0, 4)"),
    ),
    "npy-complex": (
        as_npy(np.zeros((2, 4), complex)),
        "points.npy",
        ("'points.npy'", "complex128"),
    ),
    "npy-text": (as_npy(np.full((2, 4), "0")), "points.npy", ("'points.npy'", "<U1")),
    "npy-bool": (as_npy(np.full((2, 4), True)), "points.npy", ("'points.npy'", "bool")),
    "npy-records": (
        as_npy(np.zeros(2, [("t", float), ("x", float, 3)])),
        "points.npy",
        ("'points.npy'", "[('t'"),
    ),
}


@pytest.mark.parametrize(("content", "name", "fragments"), UNREADABLE.values(), ids=UNREADABLE)
def test_points_file(here, content, name, fragments):
    if content is not None:
        (here / name).write_bytes(content)
    refused(lambda: tables.read_points(name, DIM), "points", *fragments)


@each(
    bad("none", lambda: tables.read_points(None, DIM), "points", "got None"),  # type: ignore[arg-type]
    bad("array", lambda: tables.read_points(np.zeros((9, 4)), DIM), "points", "got array([[0."),  # type: ignore[arg-type]
    bad("folder", lambda: tables.read_points(".", DIM), "points", "'.'"),
    bad(
        "width-with-t",
        lambda: tables.read_points("wide.csv", DIM, t=0.0),
        "points",
        "rows of 3 numbers",
        "shape (1, 4)",
    ),
)
def test_points_path(here, call, fragments):
    (here / "wide.csv").write_text("0,0,0,0\n")
    refused(call, *fragments)


@each(
    bad("no-ending", lambda: ANSWER.save("answers"), "output", "'answers'", "''"),
    bad("bad-ending", lambda: ANSWER.save("answers.xlsx"), "output", "'answers.xlsx'", "'.xlsx'"),
    bad(
        "missing-folder",
        lambda: ANSWER.save("nowhere/answers.csv"),
        "output",
        "no folder",
        "nowhere'",
    ),
    bad("folder", lambda: ANSWER.save("folder.csv"), "output", "'folder.csv'", "folder"),
    bad("full-disk", lambda: ANSWER.save("full.csv"), "output", "'full.csv'", "OSError"),
    bad("none", lambda: ANSWER.save(None), "output", "got None"),  # type: ignore[arg-type]
    bad("number", lambda: ANSWER.save(3), "output", "got 3"),  # type: ignore[arg-type]
)
def test_output(here, call, fragments):
    (here / "folder.csv").mkdir()
    (here / "full.csv").symlink_to("/dev/full")
    refused(call, *fragments)


class TestQuoting:
    """What errors quote of other people's text stays on one line, short, and one sentence."""

    def test_first_line(self):
        assert (
            first_line(ValueError("It broke. Call the vendor.\nTraceback"))
            == "ValueError: It broke"
        )
        assert (
            first_line(ValueError("no e.g. here, and f(x) = 1.5"))
            == "ValueError: no e.g. here, and f(x) = 1.5"
        )
        assert first_line(ValueError()) == "ValueError"
        assert first_line(ValueError("\n\n lines ")) == "ValueError: lines"
        assert len(first_line(ValueError("word " * 100))) < 200

    def test_brief(self):
        class Unprintable:
            def __repr__(self) -> str:
                raise RuntimeError

        assert brief("a") == "'a'"
        assert brief(0.1) == "0.1"
        assert brief(np.zeros((50, 50))).startswith("array([[0., 0.")
        assert len(brief(np.zeros((50, 50)))) <= 60
        assert "\n" not in brief(np.eye(2))
        assert brief(Unprintable()) == "an object of type Unprintable"
        assert brief(10**5000) == "an object of type int"

    def test_listing(self):
        assert listing([3]) == "3"
        assert listing([0, 4, 7, 9, 12]) == "0, 4, 7, 9, 12"
        assert listing(range(17)) == "0, 1, 2, 3, 4 and 12 more"


class TestSurrogateNotFinite:
    """A surrogate that fails at some points spoils those and leaves all others bitwise unchanged."""

    @staticmethod
    def broken(t: Any, x: Any) -> Any:
        """NaN where x1 > 50: further from the good points than any path goes."""
        return jnp.where(x[0] > 50, jnp.nan, jnp.sin(x[0]) * x[1] + t)

    def test_only_the_bad_points_are_flagged(self):
        problem = scasml.Problem(
            dim=2,
            horizon=0.5,
            nonlinearity=lambda t, x, u, z: 0.3 * u + 0.1 * jnp.sum(z),
            terminal=lambda x: jnp.sin(x[0]) * x[1],
        )
        x = np.array([[0.1, 0.2], [100.0, 0.0], [-0.3, 0.5], [0.7, -0.2], [99.0, 1.0]])
        t = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
        is_bad = np.array([False, True, False, False, True])
        run = lambda rows: scasml.correct(
            problem, self.broken, t[rows], x[rows], method=Picard(1, 4), replicates=3
        )
        mixed, clean = run(slice(None)), run(~is_bad)
        np.testing.assert_array_equal(mixed.status == "not finite", is_bad)
        assert np.isnan(mixed.value[is_bad]).all()
        assert set(clean.status) == {"budget exhausted"}
        for part in (
            "value",
            "stderr",
            "surrogate_value",
            "correction",
            "gradient",
            "gradient_stderr",
        ):
            kept, alone = getattr(mixed, part)[~is_bad], getattr(clean, part)
            assert np.isfinite(alone).all()
            np.testing.assert_array_equal(kept.view(np.uint64), alone.view(np.uint64), err_msg=part)
