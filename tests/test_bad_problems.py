"""Refused arguments of `Problem`, of its reference solution, and of the problems of the zoo."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import scasml
from bad_input_case import DIM, INF, NAN, PROBLEM, bad, each, g, raises, refused, u
from scasml import problems


def a_problem(**changes: Any) -> Any:
    """Return a call that builds a small problem with some arguments replaced."""
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


def test_a_numpy_function_is_accepted_more_than_once():
    """JAX crashed when it traced `np.sum` itself a second time."""
    for _ in range(2):
        problem = scasml.Problem(dim=2, horizon=1.0, terminal=np.sum)
    assert problem.terminal(jnp.ones(2)) == 2
