"""The degree of F as a polynomial in u and z, and that differences of this order say the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import problems
from scasml._equations.base import Solution
from scasml._equations.defect import Defect
from scasml._equations.linearised import LinearisedEquation
from scasml._equations.smoothness import polynomial_degree
from scasml.surrogates import wrap

pytestmark = pytest.mark.usefixtures("x64")

# Values of s, and a bound on the rounding of a difference of values of size 1.
NODES = np.linspace(-1.0, 1.0, 12)
ROUNDING = 1e-13

ZOO = {
    "convection_diffusion": 0,
    "burgers": 2,
    "lqg": 2,
    "diffusion_reaction": None,
    "hjb": 2,
    "allen_cahn": 3,
    "sine_gordon": None,
    "burgers_type": 2,
    "quadratic_gradient": 2,
    "hjb_lin": None,
    "black_scholes_barenblatt": 1,
    "default_risk": None,
    "different_rates": None,
    "heston": 1,
    "ornstein_uhlenbeck": 2,
    "allen_cahn_variable": 3,
    "black_scholes_basket": 1,
}

# Constructors, their parameters and the degree of F, where the defaults do not show it.
VARIANTS = [
    (problems.burgers, {"drift_in": "nonlinearity"}, 2),
    (problems.hjb_lin, {"exponent": 2.0}, 2),
    (problems.hjb_lin, {"exponent": 3.0}, None),
    (problems.hjb_lin, {"exponent": 4.0}, 4),
]

EXAMPLES = {
    "nothing": (None, 0),
    "source": (lambda t, x, u, z: jnp.sin(t) * jnp.max(x), 0),
    "affine": (lambda t, x, u, z: jnp.sin(x[0]) * u + z @ x - t, 1),
    "product": (lambda t, x, u, z: u * z[1], 2),
    "cubic": (lambda t, x, u, z: u - u**3, 3),
    "half square": (lambda t, x, u, z: 0.5 * z @ z, 2),
    "mixed": (lambda t, x, u, z: u**2 * jnp.sum(jnp.square(z)) / (1 + x @ x) - u, 4),
    "in jit": (jax.jit(lambda t, x, u, z: u * z[0]), 2),
    "selected by x": (lambda t, x, u, z: jnp.where(x[0] > 0, u * u, u - u * u), 2),
    "rough in x": (lambda t, x, u, z: jnp.abs(x[0]) * u**2, 2),
    "loop over x": (lambda t, x, u, z: jnp.polyval(x, t) * u, 1),
    "shape (1,)": (lambda t, x, u, z: z[:1] * u, 2),
    "sin": (lambda t, x, u, z: jnp.sin(u), None),
    "max": (lambda t, x, u, z: jnp.maximum(u, 0.0), None),
    "quotient": (lambda t, x, u, z: u / (1 + u), None),
    "selected by u": (lambda t, x, u, z: jnp.where(u > 0, u, 2 * u), None),
    "selected by z": (lambda t, x, u, z: jnp.where(z @ z > 1, x, 2 * x)[0], None),
    "abs": (lambda t, x, u, z: jnp.abs(u), None),
    "norm": (lambda t, x, u, z: jnp.linalg.norm(z), None),
    "loop over z": (lambda t, x, u, z: jax.lax.scan(lambda c, a: (c * a, None), u, z)[0], None),
    "loop of u": (lambda t, x, u, z: jax.lax.fori_loop(0, 3, lambda _, c: c * c, u), None),
    "callback": (lambda t, x, u, z: jax.pure_callback(lambda u: u, u, u), None),
}


def problem_with(nonlinearity, **options):
    return scasml.Problem(
        dim=3, horizon=1.0, nonlinearity=nonlinearity, terminal=jnp.sum, **options
    )


def network(problem, seed=0):
    """Return a surrogate of the problem: one layer with random weights."""
    weight = jnp.asarray(np.random.default_rng(seed).normal(size=(4, problem.dim)))
    return wrap(lambda t, x: jnp.sum(jnp.tanh(weight @ x / problem.dim + t)), problem)


def along_line(equation, seed=0):
    """Return F(t, x, s u0, s z0) - F(t, x, 0, 0) for s in NODES, at random t, x, u0 and z0."""
    rng = np.random.default_rng(seed)
    t, u = jnp.asarray(rng.uniform(0.1, 0.2)), jnp.asarray(rng.normal())
    x, z = (jnp.asarray(rng.normal(size=equation.dim)) for _ in range(2))
    old = Solution.zero(t, x)
    difference = lambda s: equation.difference(t, x, Solution(s * u, s * z), old)
    return np.asarray(jax.vmap(difference)(jnp.asarray(NODES)))


def highest_difference(values, order):
    """Return the largest difference of this order, relative to the rounding of such differences."""
    return np.max(np.abs(np.diff(values, order))) / (ROUNDING * 2.0**order * np.max(np.abs(values)))


def check(equation, degree):
    """Check the degree that the code shows, and that the values along a line have it too."""
    assert polynomial_degree(equation) == degree
    if not degree:
        assert degree is None or not along_line(equation).any()
        return
    values = along_line(equation)
    assert highest_difference(values, degree + 1) < 1
    assert highest_difference(values, degree) > 1e6


def test_every_problem_of_the_zoo_is_listed():
    constructors = problems.catalogue()
    own = {n for n, f in constructors.items() if f.__module__.startswith("scasml.problems.")}
    assert own == set(ZOO)


@pytest.mark.parametrize("name", ZOO)
def test_zoo(name):
    check(problems.catalogue()[name](), ZOO[name])


@pytest.mark.parametrize(("build", "parameters", "degree"), VARIANTS)
def test_variant_of_the_zoo(build, parameters, degree):
    check(build(dim=3, **parameters), degree)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    nonlinearity, degree = EXAMPLES[name]
    problem = problem_with(nonlinearity)
    if name == "callback":
        assert polynomial_degree(problem) is None
    else:
        check(problem, degree)


@pytest.mark.parametrize("name", ["burgers", "hjb", "allen_cahn", "black_scholes_barenblatt"])
def test_a_defect_has_the_degree_of_its_problem(name):
    problem = problems.catalogue()[name](dim=3)
    check(Defect(problem, network(problem)), ZOO[name])


@pytest.mark.parametrize("name", ["sine_gordon", "diffusion_reaction", "default_risk"])
def test_a_defect_of_no_polynomial_has_no_degree(name):
    problem = problems.catalogue()[name](dim=3)
    assert polynomial_degree(Defect(problem, network(problem))) is None


def test_a_defect_with_a_diffusion_that_depends_on_x():
    problem = problem_with(
        lambda t, x, u, z: u * z @ z, diffusion=lambda t, x: jnp.eye(3) + jnp.outer(x, x) / 9
    )
    defect = Defect(problem, network(problem))
    check(defect, 3)
    check(Defect(defect, network(defect, seed=1)), 3)
    check(LinearisedEquation(defect), 3)


class Power(eqx.Module):
    """F = u^k."""

    exponent: int = eqx.field(static=True)

    def __call__(self, t, x, u, z):
        return u**self.exponent


def test_problems_of_equal_shapes_have_their_own_answers():
    assert [polynomial_degree(problem_with(Power(k))) for k in (1, 4, 2)] == [1, 4, 2]


# Functions of two vectors a and b, the constant vector x and a random number generator.
SMOOTH = [
    lambda a, b, x, rng: a + rng.normal() * b,
    lambda a, b, x, rng: a * b / 2,
    lambda a, b, x, rng: jnp.square(a) / 4 - b,
    lambda a, b, x, rng: a**3 / 8,
    lambda a, b, x, rng: a / (2 + jnp.sin(b)),
    lambda a, b, x, rng: a / (2 + jnp.sin(x)) + b,
    lambda a, b, x, rng: jnp.cumsum(a) / 3 - jnp.flip(b),
    lambda a, b, x, rng: jnp.full(3, a @ b / 3),
    lambda a, b, x, rng: jnp.where(x > rng.normal(), a, b),
    lambda a, b, x, rng: a.at[jnp.argmax(x)].add(b[0]),
    lambda a, b, x, rng: a[jnp.argsort(x)],
    lambda a, b, x, rng: jnp.concatenate([a[1:], b[:1]]),
    lambda a, b, x, rng: jax.jit(lambda c: c * b)(a),
    lambda a, b, x, rng: jax.checkpoint(lambda c: c - x)(a),
    lambda a, b, x, rng: jnp.convolve(a, x, mode="same") / 3,
    lambda a, b, x, rng: jax.grad(lambda c: jnp.sum(c**3) / 6)(a),
]
ROUGH = [
    lambda a, b, x, rng: jnp.where(a > b, a, x),
    lambda a, b, x, rng: jnp.maximum(a, b),
    lambda a, b, x, rng: jnp.abs(a),
    lambda a, b, x, rng: jnp.tanh(a),
    lambda a, b, x, rng: jnp.floor(3 * a),
    lambda a, b, x, rng: jnp.sort(a),
    lambda a, b, x, rng: a[jnp.argsort(b)],
    lambda a, b, x, rng: a.at[jnp.argmax(b)].add(x[0]),
    lambda a, b, x, rng: jnp.full(3, jnp.linalg.norm(a)),
    lambda a, b, x, rng: jax.lax.fori_loop(0, 2, lambda _, c: c * c / 2, a),
    lambda a, b, x, rng: jax.lax.cond(a[0] > 0, jnp.negative, jnp.sin, b),
    lambda a, b, x, rng: (4 * a).astype(int) * b,
]


def random_nonlinearity(seed):
    """Return a random F: operations on vectors that were computed before, then a sum."""

    def nonlinearity(t, x, u, z):
        rng = np.random.default_rng(seed)
        vectors = [u * x, z, x]
        for _ in range(5):
            operations = ROUGH if rng.random() < 0.15 else SMOOTH
            a, b = (vectors[rng.integers(len(vectors))] for _ in range(2))
            vectors.append(operations[rng.integers(len(operations))](a, b, x, rng))
        return jnp.sum(vectors[-1]) + jnp.sum(vectors[-2])

    return nonlinearity


def test_random_functions():
    """Where the code shows the degree n, the differences of order n + 1 vanish."""
    degrees = []
    for seed in range(50):
        problem = problem_with(random_nonlinearity(seed))
        degree = polynomial_degree(problem)
        degrees.append(degree)
        if degree is not None and degree < len(NODES) - 1:
            values = along_line(problem, seed)
            largest = np.max(np.abs(np.diff(values, degree + 1)))
            assert largest <= ROUNDING * 2.0 ** (degree + 1) * (1 + np.max(np.abs(values))), seed
    # The functions are neither all polynomials nor all of one degree.
    assert degrees.count(None) >= 10
    assert len(set(degrees)) >= 5
