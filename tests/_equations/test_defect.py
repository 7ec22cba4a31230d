"""The equation of the defect: its identities hold to rounding for any surrogate and point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_generator import jit

import scasml
from helpers import manufactured, network_surrogate, rough
from scasml import Picard, problems
from scasml._equations.base import Solution
from scasml._equations.defect import Defect
from scasml._support.errors import ArgumentTypeError
from scasml.surrogates import wrap

pytestmark = pytest.mark.usefixtures("x64")

SIGMA = {
    "scalar": 0.7,
    "diagonal": np.array([0.5, 0.7, 0.9]),
    "full": np.array([[0.7, 0.1, 0.0], [0.0, 0.6, -0.2], [0.1, 0.0, 0.8]]),
}
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
T, X = np.array([0.05, 0.3, 0.7]), RNG.normal(size=(3, 3))
U, Z, V, W = (
    RNG.normal(size=3),
    RNG.normal(size=(3, 3)),
    RNG.normal(size=3),
    RNG.normal(size=(3, 3)),
)


def second(t, x):
    """A second surrogate, with another functional form."""
    return 0.3 * jnp.cos(x[0] - x[1] * x[2] + 2 * t) + 0.2 * x[1] * t


def everywhere(f, *rows):
    """Evaluate f at three points."""
    return jit(jax.vmap(f))(*rows)


def matrix_of(problem):
    """Return sigma as a (d, d) matrix."""
    sigma = np.asarray(problem.dynamics.sigma)
    return sigma if sigma.ndim == 2 else np.diag(np.broadcast_to(sigma, (problem.dim,)))


def parabolic(problem, u, t, x):
    """Return u_t + L u by its definition, with a full Hessian."""
    matrix = matrix_of(problem)
    gradient, hessian = jax.grad(u, 1)(t, x), jax.hessian(u, 1)(t, x)
    return (
        jax.grad(u, 0)(t, x)
        + np.broadcast_to(problem.dynamics.mu, x.shape) @ gradient
        + 0.5 * jnp.trace(matrix @ matrix.T @ hessian)
    )


def functions_of(equation):
    """Return a function that evaluates an equation at (t, x) and at two solutions there."""
    return lambda t, x, u, z, v, w: {
        "terminal": equation.terminal(x),
        "source": equation.source(t, x, KEY),
        "nonlinearity": equation.nonlinearity(t, x, u, z, KEY),
        "difference": equation.difference(t, x, Solution(u, z), Solution(v, w)),
    }


def check_equal(one, other, **tolerance):
    for name in one:
        np.testing.assert_allclose(one[name], other[name], err_msg=name, **tolerance)


ZOO = {
    "burgers": lambda t, x: jax.nn.sigmoid(t + jnp.sum(x)),
    "burgers_type": lambda t, x: jax.nn.sigmoid(t + jnp.mean(x)),
    "convection_diffusion": lambda t, x: jnp.sum(x) + t,
    "diffusion_reaction": lambda t, x: (
        1.6 + jnp.sin(0.1 * jnp.sum(x)) * jnp.exp(0.01 * x.size / 2 * (t - 1))
    ),
    "hjb_lin": lambda t, x: jnp.sum(x) + 1 - t,
    "quadratic_gradient": lambda t, x: jnp.sin((1 - t + jnp.mean(x**2)) ** 0.4),
}


def check_no_defect(problem, exact):
    """Check that the defect of the exact solution has zero source and zero terminal condition."""
    equation = Defect(problem, wrap(exact, problem))
    t = T * problem.horizon
    source, terminal, size = everywhere(
        lambda t, x: (equation.source(t, x, KEY), equation.terminal(x), problem.source(t, x)), t, X
    )
    np.testing.assert_allclose(source, 0, atol=1e-13 * (1 + np.max(np.abs(size))))
    np.testing.assert_allclose(terminal, 0, atol=1e-14)


@pytest.mark.parametrize("name", ZOO)
def test_exact_solutions_of_the_zoo_have_zero_defect(name):
    check_no_defect(problems.catalogue()[name](dim=3), ZOO[name])


@pytest.mark.parametrize("sigma", SIGMA)
def test_a_manufactured_solution_has_zero_defect(sigma):
    check_no_defect(*manufactured(diffusion=SIGMA[sigma]))


@pytest.mark.parametrize("sigma", SIGMA)
def test_against_the_definition(sigma):
    """Fb(v, z) = F(uh + v, zh + z) - F(uh, zh) + eps and gb = g - uh(T).

    Here eps has a full Hessian, and z is not multiplied by sigma again.
    """
    problem, _ = manufactured(diffusion=SIGMA[sigma])
    equation = Defect(problem, wrap(rough, problem))

    def literal(t, x, u, z, v, w):
        uh, zh = rough(t, x), matrix_of(problem).T @ jax.grad(rough, 1)(t, x)
        f = lambda u, z: problem.nonlinearity(t, x, uh + u, zh + z)
        eps = parabolic(problem, rough, t, x) + f(0.0, jnp.zeros(3))
        fb = lambda u, z: f(u, z) - f(0.0, jnp.zeros(3)) + eps
        gb = problem.terminal(x) - rough(jnp.asarray(problem.horizon), x)
        return {
            "terminal": gb,
            "source": fb(0.0, jnp.zeros(3)),
            "nonlinearity": fb(u, z),
            "difference": fb(u, z) - fb(v, w),
        }

    rows = (T, X, U, Z, V, W)
    check_equal(
        *everywhere(lambda *row: (functions_of(equation)(*row), literal(*row)), *rows),
        rtol=1e-11,
        atol=1e-12,
    )


def test_the_defect_has_the_dynamics_of_its_problem():
    problem, _ = manufactured(diffusion=SIGMA["full"], uses_z=False)
    equation = Defect(problem, wrap(rough, problem))
    assert (equation.dim, equation.horizon, equation.uses_u, equation.uses_z) == (
        3,
        problem.horizon,
        True,
        False,
    )
    assert equation.dynamics is problem.dynamics


def test_a_nonlinearity_without_z_needs_no_gradient():
    """With uses_z = False the difference is the same without the gradient of uh."""
    problem, _ = manufactured(uses_z=False)
    equation = Defect(problem, wrap(rough, problem))
    literal = lambda t, x, u, v: (
        problem.nonlinearity_fn(t, x, rough(t, x) + u, x)
        - problem.nonlinearity_fn(t, x, rough(t, x) + v, x)
    )
    got, want = everywhere(
        lambda t, x, u, z, v, w: (
            equation.difference(t, x, Solution(u, z), Solution(v, w)),
            literal(t, x, u, v),
        ),
        T,
        X,
        U,
        Z,
        V,
        W,
    )
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_difference_has_no_residual():
    """The difference depends on the value and gradient of the surrogate only, bit for bit.

    Two surrogates agree in value and gradient at a point, and differ in their time derivative and
    second derivatives there. Their sources differ by the change of these.
    """
    problem, _ = manufactured(diffusion=SIGMA["full"])
    t0, x0 = 0.3, X[0]
    bent = lambda t, x: rough(t, x) + 0.7 * (x - x0) @ (x - x0) + 0.4 * (t - t0)
    equations = [Defect(problem, wrap(u, problem)) for u in (rough, bent)]
    one, other = everywhere(
        lambda *row: [functions_of(equation)(*row) for equation in equations],
        np.full(3, t0),
        np.stack([x0] * 3),
        U,
        Z,
        V,
        W,
    )
    np.testing.assert_array_equal(one["difference"], other["difference"])
    np.testing.assert_allclose(
        other["source"] - one["source"], 0.4 + 0.7 * np.sum(SIGMA["full"] ** 2), rtol=1e-12
    )


@pytest.mark.parametrize("uses_z", [True, False])
def test_a_correction_of_a_correction(uses_z):
    """Defect(Defect(P, u1), u2) and Defect(P, u1 + u2) have the same functions."""
    problem, _ = manufactured(uses_z=uses_z)
    first, other = network_surrogate(problem, seed=1), wrap(second, problem)
    nested = Defect(Defect(problem, first), other)
    joint = Defect(problem, wrap(lambda t, x: first(t, x) + second(t, x), problem))
    one, two = everywhere(
        lambda *row: [functions_of(equation)(*row) for equation in (nested, joint)],
        T,
        X,
        U,
        Z,
        V,
        W,
    )
    check_equal(one, two, rtol=1e-11, atol=1e-12)


def test_a_corrected_correction_is_the_same_simulation():
    """`correct` accepts a `Defect` as the problem.

    It draws the same paths for both equations, so the corrections agree to rounding.
    """
    problem = scasml.Problem(
        dim=3,
        horizon=0.8,
        nonlinearity=lambda t, x, u, z: u**2 + z[0],
        terminal=lambda x: jnp.sum(x**2),
    )
    first, other = (lambda t, x: x[0] * x[1] * t), (lambda t, x: x[2] ** 2)
    options = {"method": Picard(1, 2), "replicates": 3, "dtype": "float64", "with_gradient": False}
    nested = scasml.correct(Defect(problem, wrap(first, problem)), other, T, X, **options)
    joint = scasml.correct(problem, lambda t, x: first(t, x) + other(t, x), T, X, **options)
    np.testing.assert_allclose(nested.correction, joint.correction, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(nested.stderr, joint.stderr, rtol=1e-9)


def test_the_zero_surrogate_does_not_change_the_problem():
    problem, _ = manufactured(diffusion=SIGMA["full"])
    equation = Defect(problem, wrap(lambda t, x: 0.0, problem))
    one, other = everywhere(
        lambda *row: [functions_of(equation)(*row) for equation in (equation, problem)],
        T,
        X,
        U,
        Z,
        V,
        W,
    )
    check_equal(one, other, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("model", ["closed form", "network"])
@pytest.mark.parametrize("sigma", ["diagonal", "full"])
def test_the_defect_solves_its_equation(sigma, model):
    """v = u - uh solves v_t + L v + Fb(v, sigma^T grad v) = 0 with v(T) = gb.

    The derivatives of v are taken by automatic differentiation of the known u.
    """
    problem, exact = manufactured(diffusion=SIGMA[sigma])
    surrogate = (
        wrap(rough, problem) if model == "closed form" else network_surrogate(problem, seed=2)
    )
    equation = Defect(problem, surrogate)
    v = lambda t, x: exact(t, x) - surrogate(t, x)

    def residual(t, x):
        z = matrix_of(problem).T @ jax.grad(v, 1)(t, x)
        end = jnp.asarray(problem.horizon)
        return (
            parabolic(problem, v, t, x) + equation.nonlinearity(t, x, v(t, x), z, KEY),
            v(end, x) - equation.terminal(x),
            equation.source(t, x, KEY),
        )

    inside, end, eps = everywhere(residual, T, X)
    np.testing.assert_allclose(inside, 0, atol=1e-12)
    np.testing.assert_allclose(end, 0, atol=1e-14)
    assert np.min(np.abs(eps)) > 1e-3  # the surrogate is wrong, so the test is not vacuous


@pytest.mark.parametrize("surrogate", [rough, None, 1.0])
def test_a_surrogate_that_is_not_wrapped_is_refused(surrogate):
    problem, _ = manufactured()
    message = (
        "^surrogate must be made by scasml.surrogates.wrap for Defect, got .*: wrap it first.$"
    )
    with pytest.raises(ArgumentTypeError, match=message):
        Defect(problem, surrogate)
