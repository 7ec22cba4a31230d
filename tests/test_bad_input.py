"""Refused arguments of `correct`, and a surrogate that is not finite at some points."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from bad_input_case import DIM, INF, NAN, PROBLEM, MustNotRun, answer, bad, each, refused, u
from scasml import Hutchinson, Picard, problems
from scasml.surrogates import wrap

KEY = jax.random.key(0)
FITTING = eqx.nn.MLP(DIM + 1, 1, 4, 1, key=KEY)


def a_correction(
    x: Any = (0.0, 0.0, 0.0),
    t: Any = 0.0,
    surrogate: Any = u,
    problem: Any = PROBLEM,
    **keywords: Any,
) -> Any:
    """Return a call of `correct` that fails the test if it evaluates or simulates anything."""
    options = {"method": Picard(1, 4), "replicates": 2, "executor": MustNotRun()} | keywords
    return lambda: scasml.correct(problem, surrogate, t, x, **options)


def points(count: int, **at: float) -> np.ndarray:
    """Return points at 0, except that `i4=nan` sets a coordinate of point 4 to NaN."""
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
    bad("executor-text", a_correction(executor="threads"), "executor", "got 'threads'"),
    bad("executor-class", a_correction(executor=MustNotRun), "executor", "got <class"),
    bad("executor-and-chunk", a_correction(chunk=4), "chunk", "got 4 and an executor"),
    bad("progress-text", a_correction(progress="yes"), "progress", "got 'yes'"),
    bad("progress-number", a_correction(progress=1), "progress", "got 1"),
    bad("progress-none", a_correction(progress=None), "progress", "got None"),
)
def test_correct(call, fragments):
    refused(call, *fragments)


def test_good_input_is_not_refused():
    """Good input reaches the executor, so the tests above would notice a simulation."""
    with pytest.raises(pytest.fail.Exception, match="reached the simulation"):
        refused(a_correction())


@each(
    bad("zero", lambda: answer().interval(0), "level", "got 0"),
    bad("one", lambda: answer().interval(1.0), "level", "got 1.0"),
    bad("percent", lambda: answer().interval(95), "level", "got 95"),
    bad("negative", lambda: answer().interval(-0.5), "level", "got -0.5"),
    bad("nan", lambda: answer().interval(NAN), "level", "got nan"),
    bad("text", lambda: answer().interval("0.95"), "level", "got '0.95'"),  # type: ignore[arg-type]
    bad("none", lambda: answer().interval(None), "level", "got None"),  # type: ignore[arg-type]
    bad("bool", lambda: answer().interval(True), "level", "got True"),
)
def test_interval(call, fragments):
    refused(call, *fragments)


class TestSurrogateNotFinite:
    """A surrogate that is NaN at some points does not change the answers at the others."""

    @staticmethod
    def broken(t: Any, x: Any) -> Any:
        """Return NaN where x1 > 50, which no path from the good points reaches."""
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
