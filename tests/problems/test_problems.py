"""Tests of the zoo: references solve the equations, and they agree with published values.

Further tests of the pricing problems are in test_pricing_problems.py, and tests of the registry are
in test_registry.py.
"""

import inspect
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scasml import problems
from scasml._equations.problem import Problem, Reference
from scasml._support.errors import ScasmlError
from scasml.paths import General, GeometricBrownian
from scasml.problems.references import log_quadratic, radial

ZOO = problems.catalogue()
every_problem = pytest.mark.parametrize("name", ZOO)

# test_pricing_problems.py tests the references of these.
KNOWN_AT_ONE_POINT = ("default_risk", "different_rates")
every_solved_problem = pytest.mark.parametrize(
    "name", [name for name in ZOO if name not in KNOWN_AT_ONE_POINT]
)


def build(name: str, dim: int) -> Problem:
    """Build a problem of the zoo in `dim` dimensions, or in its own dimension if that is fixed."""
    return ZOO[name](dim=dim) if "dim" in inspect.signature(ZOO[name]).parameters else ZOO[name]()


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def points(problem: Problem, count: int = 5, seed: int = 0) -> tuple[Any, Any]:
    """Return random times (B,) away from 0 and T, and random states (B, d). Prices are positive."""
    rng = np.random.default_rng(seed)
    t, x = problem.horizon * rng.uniform(0.1, 0.9, count), rng.normal(size=(count, problem.dim))
    prices = isinstance(problem.dynamics, GeometricBrownian) or problem.name == "heston"
    return t, problem.x0 * np.exp(0.2 * x) if prices else x


def reference(problem: Problem) -> Reference:
    """Return the reference of a problem that has one."""
    assert problem.reference is not None
    return problem.reference


# Closed forms, repeated here in JAX so that they can be differentiated.


def riccati(t: Any, x: Any, k: float = 1.0, s: float = 1.0, c: float = 1.0) -> Any:
    """The solution of `ornstein_uhlenbeck`."""
    decayed = 1 - jnp.exp(-2 * k * (1 - t))
    p = 2 * k * c * (1 - decayed) / (2 * k + s**2 * c * decayed)
    return p * x @ x / 2 + x.size / 2 * jnp.log(1 + s**2 * c * decayed / (2 * k))


def black_scholes(tau: Any, forward: Any, strike: float, variance: float, rate: float) -> Any:
    """The Black-Scholes price of a call."""
    deviation = jnp.sqrt(variance * tau)
    above = jnp.log(forward / strike) / deviation + deviation / 2
    cdf = jax.scipy.stats.norm.cdf
    return jnp.exp(-rate * tau) * (forward * cdf(above) - strike * cdf(above - deviation))


def basket(
    t: Any,
    x: Any,
    rho: float = 0.3,
    r: float = 0.05,
    s: float = 0.2,
    k: float = 100.0,
    end: float = 1.0,
) -> Any:
    """The solution of `black_scholes_basket`."""
    variance = s**2 / x.size**2 * (x.size + x.size * (x.size - 1) * rho)
    growth = jnp.exp((r - s**2 / 2 + variance / 2) * (end - t))
    return black_scholes(end - t, jnp.prod(x) ** (1 / x.size) * growth, k, variance, r)


CLOSED: list[tuple[Problem, Callable[..., Any]]] = [
    (problems.convection_diffusion(3), lambda t, x: x.sum() + t),
    (problems.burgers(3), lambda t, x: jax.nn.sigmoid(t + x.sum())),
    (problems.burgers(3, problems.BURGERS_PAPER), lambda t, x: jax.nn.sigmoid(t + x.sum())),
    (
        problems.burgers(3, problems.BURGERS_PAPER, "nonlinearity"),
        lambda t, x: jax.nn.sigmoid(t + x.sum()),
    ),
    (problems.burgers_type(3), lambda t, x: jax.nn.sigmoid(t + x.sum() / 3)),
    (
        problems.diffusion_reaction(3),
        lambda t, x: 1.6 + jnp.sin(0.1 * x.sum()) * jnp.exp(0.015 * (t - 1)),
    ),
    (
        problems.diffusion_reaction(3, 3**-0.5),
        lambda t, x: 1.6 + jnp.sin(x.sum() / jnp.sqrt(3)) * jnp.exp((t - 1) / 2),
    ),
    (problems.quadratic_gradient(3), lambda t, x: jnp.sin((1 - t + x @ x / 3) ** 0.4)),
    (problems.hjb_lin(3), lambda t, x: x.sum() + 1 - t),
    (problems.hjb_lin(3, 2.5), lambda t, x: x.sum() + 1 - t),
    (problems.black_scholes_barenblatt(3), lambda t, x: jnp.exp(0.21 * (1 - t)) * x @ x),
    (
        problems.different_rates(1),
        lambda t, x: black_scholes(0.5 - t, x[0] * jnp.exp(0.06 * (0.5 - t)), 100.0, 0.04, 0.06),
    ),
    (problems.ornstein_uhlenbeck(3), riccati),
    (problems.ornstein_uhlenbeck(4, 0.3, 1.7, 2.5), lambda t, x: riccati(t, x, 0.3, 1.7, 2.5)),
    (problems.allen_cahn_variable(3), lambda t, x: jnp.sin(t + x.sum() / 3**0.5)),
    (problems.black_scholes_basket(3), basket),
    (problems.black_scholes_basket(1, 0.3), basket),
    (
        problems.black_scholes_basket(4, -0.3, -0.02, 0.35, 90.0, 2.0),
        lambda t, x: basket(t, x, -0.3, -0.02, 0.35, 90.0, 2.0),
    ),
    (problems.black_scholes_basket(3, 0.0), lambda t, x: basket(t, x, 0.0)),
]
every_closed_form = pytest.mark.parametrize(
    ("problem", "u"), CLOSED, ids=lambda v: v.name if isinstance(v, Problem) else ""
)


def matrix(problem: Problem, t: Any, x: Any) -> Any:
    """Return sigma(t, x) as a matrix (d, d), also if the problem has a scalar or a diagonal."""
    sigma = problem.diffusion(t, x)
    return sigma if sigma.ndim == 2 else jnp.diag(jnp.broadcast_to(sigma, x.shape))


def generator(problem: Problem, u: Callable[..., Any], t: Any, x: Any) -> Any:
    """Return <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) + F(t, x, u, sigma^T grad u).

    The derivatives are automatic.
    """
    gradient, hessian = jax.grad(u, 1)(t, x), jax.hessian(u, 1)(t, x)
    sigma = matrix(problem, t, x)
    linear = problem.drift(t, x) @ gradient + jnp.trace(sigma.T @ hessian @ sigma) / 2
    return linear + problem.nonlinearity(t, x, u(t, x), sigma.T @ gradient)


@every_closed_form
def test_closed_form_solves_the_equation(problem: Problem, u: Callable[..., Any]) -> None:
    t, x = map(jnp.asarray, points(problem))
    residual = jax.jit(jax.vmap(lambda t, x: jax.grad(u)(t, x) + generator(problem, u, t, x)))(t, x)
    np.testing.assert_allclose(residual, 0, atol=1e-10)


@every_closed_form
def test_closed_form_is_the_reference(problem: Problem, u: Callable[..., Any]) -> None:
    t, x = points(problem)
    np.testing.assert_allclose(
        problem.exact(t, x), jax.vmap(u)(t, x), rtol=0, atol=reference(problem).error
    )
    terminal = jax.vmap(lambda x: u(problem.horizon, x))(x)
    np.testing.assert_allclose(
        jax.vmap(problem.terminal)(x), terminal, rtol=1e-14, atol=0.01 * reference(problem).error
    )


def test_both_forms_of_burgers_are_the_same_equation() -> None:
    """The two forms also agree on a function that is not their solution."""
    u = lambda t, x: jnp.sin(t * x[0]) + x[1] * jnp.cos(x[2]) + x[3] ** 2
    for sigma0 in (problems.BURGERS_PAPER, problems.BURGERS_TABLE):
        paths, nonlinearity = (
            problems.burgers(4, sigma0, where) for where in ("paths", "nonlinearity")
        )
        assert np.all(nonlinearity.dynamics.mu == 0)
        t, x = points(paths)
        first, second = (
            jax.jit(jax.vmap(lambda t, x, p=p: generator(p, u, t, x)))(t, x)
            for p in (paths, nonlinearity)
        )
        np.testing.assert_allclose(first, second, rtol=1e-12)


def test_nonlinearity_away_from_the_solution() -> None:
    """Compare F with its formula, because the residual does not test F away from the solution."""
    value = lambda problem, *point: problem.nonlinearity(*map(jnp.asarray, point))
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 3))
    for u in (1.0, 1.5, 4.0):
        t, star = 0.3, 1.6 + math.sin(0.1 * x.sum()) * math.exp(0.015 * (0.3 - 1))
        assert np.isclose(
            value(problems.diffusion_reaction(3), t, x, u, z), min(1, (u - star) ** 2), rtol=1e-14
        )
    for c in (1, 1.5, 2, 2.5, 3.0, 4, 5.25):
        expected = 2 - np.mean(np.abs(z / math.sqrt(2)) ** c)
        assert np.isclose(value(problems.hjb_lin(3, c), 0.3, x, 0.0, z), expected, rtol=1e-14)
    for u in (-0.8, 0.4, 3.0):
        at = lambda problem, u=u: value(problem, 0.3, x, u, z)
        assert np.isclose(
            at(problems.black_scholes_barenblatt(3)), -0.05 * (u - z.sum() / 0.4), rtol=1e-14
        )
        assert np.isclose(at(problems.ornstein_uhlenbeck(3, 2.0, 3.0, 4.0)), -z @ z / 2, rtol=1e-14)
        assert np.isclose(at(problems.black_scholes_basket(3, rate=0.07)), -0.07 * u, rtol=1e-14)
        assert np.isclose(
            value(problems.heston(rate=0.07), 0.3, x[:2], u, z[:2]), -0.07 * u, rtol=1e-14
        )
        phase, spread = 0.3 + x.sum() / math.sqrt(3), np.mean((1 + 0.3 * np.sin(x)) ** 2)
        star, slope, curve = math.sin(phase), math.cos(phase), -math.sin(phase) * spread
        expected = u - u**3 - (star - star**3) - slope - curve / 2
        assert np.isclose(at(problems.allen_cahn_variable(3)), expected, rtol=1e-13)


# Computed references, which are differentiated by finite differences of sixth order.

# The offset, and its weights in the first and the second derivative.
STENCIL = (
    (1, 3 / 4, 3 / 2),
    (2, -3 / 20, -3 / 20),
    (3, 1 / 60, 1 / 90),
)


def derivatives(f: Callable[[float], Any], h: float) -> tuple[Any, Any]:
    """Return f'(0) and f''(0) by finite differences of width `h`."""
    ahead, behind = zip(*((f(k * h), f(-k * h)) for k, _, _ in STENCIL), strict=True)
    first = sum(a * (p - m) for (_, a, _), p, m in zip(STENCIL, ahead, behind, strict=True)) / h
    second = sum(
        b * (p + m) for (_, _, b), p, m in zip(STENCIL, ahead, behind, strict=True)
    ) - 49 / 18 * f(0.0)
    return first, second / h**2


COMPUTED = [
    problems.hjb(1, 2.0),
    problems.hjb(3),
    problems.lqg(2),
    problems.lqg(4, 1.0, seed=5),
    problems.allen_cahn(1, 1.0),
    problems.allen_cahn(3, sigma=1.0),
    problems.allen_cahn(40, 1.0),
    problems.sine_gordon(2, 1.0),
    problems.sine_gordon(3),
    problems.heston(),
    problems.heston(90.0, 0.3, 0.5, 0.09, 0.6, 0.7, 0.05, 0.0, 2.0, 110.0),
]


@pytest.mark.parametrize("problem", COMPUTED, ids=lambda p: f"{p.name}-{p.dim}")
def test_computed_reference_solves_the_equation(problem: Problem) -> None:
    t, x = points(problem, 6)
    along = lambda direction, h: derivatives(lambda k: problem.exact(t, x + k * direction), h)
    time_slope, _ = derivatives(lambda h: problem.exact(t + h, x), 0.005 * problem.horizon)
    drift_slope, _ = along(np.asarray(jax.vmap(problem.drift)(t, x)), 0.002)
    # Along the columns of sigma, the first derivatives are z, and the sum of the second derivatives
    # is Tr(sigma sigma^T Hess u).
    sigma = np.asarray(jax.vmap(lambda t, x: matrix(problem, t, x))(t, x))
    firsts, seconds = zip(*(along(sigma[:, :, j], 0.02) for j in range(problem.dim)), strict=True)
    f = jax.vmap(problem.nonlinearity)(t, x, problem.exact(t, x), jnp.stack(firsts, 1))
    np.testing.assert_allclose(time_slope + drift_slope + sum(seconds) / 2 + f, 0, atol=2e-7)


@pytest.mark.parametrize("build", [problems.allen_cahn, problems.sine_gordon])
@pytest.mark.parametrize(("dim", "horizon"), [(1, 0.3), (5, 0.3), (100, 1.0)])
def test_radial_reference_with_shorter_horizon(
    build: Callable[..., Problem], dim: int, horizon: float
) -> None:
    """u(t, .) with horizon T is u(0, .) with horizon T - t, which is computed with other steps."""
    problem = build(dim, horizon)
    _, x = points(problem, 20)
    for t in horizon * np.array([0.17, 0.38, 0.63, 0.81]):
        np.testing.assert_allclose(
            problem.exact(t, x),
            build(dim, horizon - t).exact(0.0, x),
            rtol=0,
            atol=reference(problem).error,
        )


def test_radial_reference_with_another_degree() -> None:
    for problem in (
        problems.allen_cahn(1, 1.0),
        problems.sine_gordon(2),
        problems.allen_cahn(1000, 1.0),
    ):
        t, x = points(problem, 20)
        solution = reference(problem).value
        assert isinstance(solution, radial.Radial)
        other = replace(solution, degrees=(90,))
        np.testing.assert_allclose(
            problem.exact(t, x), other(t, x), rtol=0, atol=reference(problem).error
        )


def test_log_quadratic_with_half_the_step() -> None:
    cases = (
        problems.hjb(1, 30.0),
        problems.hjb(2, 1e-3),
        problems.hjb(1000),
        problems.lqg(2, 3.0),
        problems.lqg(50),
    )
    for problem in cases:
        t, x = points(problem, 10)
        x *= np.geomspace(0.01, 1000, 10)[:, None]
        solution = reference(problem).value
        assert isinstance(solution, log_quadratic.LogQuadratic)
        finer = replace(solution, quadrature=(-3.9, 32.0, 0.1))
        np.testing.assert_allclose(
            problem.exact(t, x), finer(t, x), rtol=0, atol=reference(problem).error
        )


def test_log_quadratic_against_monte_carlo() -> None:
    """exp(-u) = E exp(-g(x + sqrt 2 W)) within 5 standard errors.

    The false-fail rate is 6e-7, and the seed is fixed. The standard error is 0.08 % of the value;
    an error of 1 % in tau would be 6 standard errors.
    """
    problem, t, x = problems.lqg(4, seed=3), 0.1, np.array([0.3, -0.5, 0.8, 0.1])
    c1, c2 = log_quadratic.chain_coefficients(4, 3)
    y = x + math.sqrt(2 * (problem.horizon - t)) * np.random.default_rng(0).normal(
        size=(1_000_000, 4)
    )
    q = np.square(y[:, :-1] - y[:, 1:]) @ c1 + np.square(y[:, 1:]) @ c2
    samples = 2 / (1 + q)
    standard_error = samples.std() / math.sqrt(len(samples))
    assert standard_error < 1e-3 * samples.mean()
    assert abs(samples.mean() - math.exp(-problem.exact(t, x))) < 5 * standard_error


# Published values.


def assert_printed(value: float, printed: str) -> None:
    """Assert that `value` rounds to the number `printed`."""
    assert abs(value - float(printed)) <= 0.5001 * 10.0 ** -len(printed.split(".")[1]), (
        value,
        printed,
    )


PUBLISHED = [
    (problems.hjb, {}, "4.5901617246"),
    (problems.allen_cahn, {}, ".052781357"),
    (problems.allen_cahn, {"dim": 20, "sigma": 1.0}, ".308698546"),
    (problems.allen_cahn, {"dim": 10, "horizon": 1.0}, ".295695603"),
    (problems.allen_cahn, {"dim": 100, "horizon": 1.0}, ".033775572"),
    (problems.allen_cahn, {"dim": 1000, "horizon": 1.0}, ".003396120"),
    (problems.sine_gordon, {"dim": 10, "horizon": 1.0}, ".306192991"),
    (problems.sine_gordon, {"dim": 100, "horizon": 1.0}, ".033789615"),
    (problems.sine_gordon, {"dim": 1000, "horizon": 1.0}, ".003396134"),
    (problems.sine_gordon, {"dim": 10}, ".322926385"),
    (problems.sine_gordon, {"dim": 100}, ".052809435"),
    (problems.sine_gordon, {"dim": 1000}, ".005588916"),
    (problems.sine_gordon, {"dim": 10000}, ".00056209"),
    (problems.burgers_type, {}, ".5"),
    (problems.burgers, {}, ".5"),
    (problems.diffusion_reaction, {"frequency": 0.1}, "1.6"),
    (problems.quadratic_gradient, {}, "0.8414709848"),
    (problems.black_scholes_barenblatt, {}, "77.1048787473"),
    (problems.different_rates, {}, "21.1714"),
    (problems.different_rates, {"dim": 1}, "7.155896"),
    (problems.heston, {}, "16.07015491703"),
    (problems.allen_cahn_variable, {}, "0.8414709848"),
    (problems.black_scholes_basket, {"dim": 1}, "10.450583572"),
]


@pytest.mark.parametrize(
    ("build", "parameters", "printed"), PUBLISHED, ids=lambda v: getattr(v, "__name__", str(v))
)
def test_published_values(
    build: Callable[..., Problem], parameters: dict[str, Any], printed: str
) -> None:
    problem = build(**parameters)
    assert_printed(problem.exact(0.0, problem.x0), printed)


@pytest.mark.parametrize(
    ("t", "u", "slope"), [(0.0, "4.707610780", "0.004441234"), (0.5, "4.124043157", "0.007984353")]
)
def test_published_gradient_of_hjb(t: float, u: str, slope: str) -> None:
    problem, x = problems.hjb(), np.full(100, 0.5)
    assert_printed(problem.exact(t, x), u)
    assert_printed(derivatives(lambda h: problem.exact(t, x + h * np.eye(100)[7]), 0.1)[0], slope)


# Properties of every problem of the zoo.


@every_solved_problem
def test_reference_at_the_horizon_is_the_terminal_condition(name: str) -> None:
    problem = build(name, 6)
    _, x = points(problem, 10)
    x *= np.geomspace(0.01, 30, 10)[:, None]
    # The logarithm of a price of about 1000, and its exponential, increase the rounding error.
    tolerance = {"rtol": 1e-14, "atol": max(1e-14, 0.01 * reference(problem).error)}
    np.testing.assert_allclose(
        problem.exact(problem.horizon, x), jax.vmap(problem.terminal)(x), **tolerance
    )
    assert 0 < reference(problem).error < 1e-9
    assert reference(problem).source


@every_solved_problem
def test_reference_at_one_many_and_zero_points(name: str) -> None:
    problem = build(name, 3)
    t, x = points(problem)
    values = problem.exact(t, x)
    assert values.shape == (5,)
    assert values.dtype == np.float64
    np.testing.assert_allclose(
        [problem.exact(s, y) for s, y in zip(t, x, strict=True)], values, rtol=1e-14
    )
    assert problem.exact(0.0, np.empty((0, problem.dim))).shape == (0,)


def test_large_batches_agree_with_small_ones() -> None:
    """References split large batches into blocks."""
    for problem in (problems.lqg(100), problems.allen_cahn(3)):
        t, x = points(problem, 5000)
        sample = slice(None, None, 499)
        np.testing.assert_allclose(
            problem.exact(t, x)[sample], problem.exact(t[sample], x[sample]), rtol=1e-13
        )


@every_problem
def test_equal_parameters_give_equal_pytrees(name: str) -> None:
    """The zoo caches its problems. Problems built without the cache still cause one trace only."""
    make, keyword = ZOO[name], {"spot": 90.0} if name == "heston" else {"dim": 4}
    assert make(**keyword) is make(*keyword.values())
    fresh = [inspect.unwrap(make)(**keyword) for _ in range(2)]
    fresh.append(pickle.loads(pickle.dumps(fresh[0])))
    assert fresh[0] is not fresh[1]
    traces = 0

    @eqx.filter_jit
    def evaluate(problem: Problem, x: Any) -> Any:
        nonlocal traces
        traces += 1
        coefficients = jnp.sum(problem.drift(x[0], x)) + jnp.sum(problem.diffusion(x[0], x))
        return problem.terminal(x) + problem.nonlinearity(x[0], x, x[1], x) + coefficients

    for problem in fresh:
        assert hash(problem.reference) == hash(fresh[0].reference)
        assert jax.tree.structure(problem) == jax.tree.structure(fresh[0])
        assert evaluate(problem, jnp.ones(problem.dim)) == evaluate(fresh[0], jnp.ones(problem.dim))
    assert traces == 1


@every_problem
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_is_kept(name: str, dtype: Any) -> None:
    problem = build(name, 4)
    scalar, vector = jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((problem.dim,), dtype)
    assert jax.eval_shape(problem.terminal_fn, vector).dtype == dtype
    assert jax.eval_shape(problem.nonlinearity_fn, scalar, vector, scalar, vector).dtype == dtype
    if isinstance(problem.dynamics, General):
        for function in (problem.dynamics.mu, problem.dynamics.sigma):
            assert function is None or jax.eval_shape(function, scalar, vector).dtype == dtype


@every_problem
def test_derivatives_are_finite(name: str) -> None:
    """Picard differentiates F and g more than once, and starts from u = 0, z = 0."""
    for problem in (
        build(name, 3),
        *([problems.hjb_lin(3, 1.5), problems.hjb_lin(3, 2.0)] if name == "hjb_lin" else []),
    ):
        x = jnp.asarray(points(problem, 1)[1][0])
        thirds = jax.jit(jax.jacfwd(jax.jacfwd(jax.grad(problem.terminal))))(x)
        assert jnp.all(jnp.isfinite(thirds))
        d = problem.dim
        nonlinearity = lambda y, p=problem, d=d: p.nonlinearity(
            y[0], y[1 : d + 1], y[d + 1], y[d + 2 :]
        )
        seconds = jax.jit(jax.hessian(nonlinearity))(
            jnp.concatenate([jnp.array([0.1]), x, jnp.zeros(d + 1)])
        )
        assert jnp.all(jnp.isfinite(seconds))


def test_even_powers_are_smooth_at_zero() -> None:
    problem = problems.hjb_lin(3, 2.0)
    hessian = jax.hessian(lambda z: problem.nonlinearity(z[0], z, z[0], z))(jnp.zeros(3))
    np.testing.assert_allclose(hessian, -np.eye(3) / 3, rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_singular_point_of_quadratic_gradient(dtype: Any) -> None:
    problem = problems.quadratic_gradient(3)
    one, zero = jnp.ones((), dtype), jnp.zeros((), dtype)
    f = jax.jit(lambda t, x: problem.nonlinearity(t, x, zero, jnp.zeros_like(x)))
    for size in (0.0, 1e-30, 1e-18, 1e-9, 1e-3):
        x = jnp.full(3, size, dtype)
        for t in (one, one - 1e-6, zero):
            assert jnp.isfinite(f(t, x))
        assert jnp.isfinite(problem.terminal(x))
    origin = jnp.zeros(3, dtype)
    assert f(one, origin) == 0
    assert jnp.all(jax.grad(f, 1)(one, origin) == 0)
    assert jnp.all(jax.grad(problem.terminal)(origin) == 0)


def test_radial_reference_is_solved_at_the_first_call() -> None:
    radial._solve.cache_clear()
    problem = inspect.unwrap(problems.allen_cahn)(7)
    assert radial._solve.cache_info().misses == 0
    problem.exact(0.0, np.zeros(7))
    problem.exact(0.1, np.ones(7))
    assert radial._solve.cache_info().misses == 1


# Errors.

REFUSED = [
    *(
        (ZOO[n], {"dim": dim}, "dim", repr(dim))
        for n in ZOO
        if n != "heston"
        for dim in (0, 2.0, True, "3", [3])
    ),
    (problems.lqg, {"dim": 1}, "dim", "1"),
    (problems.lqg, {"seed": -1}, "seed", "-1"),
    (problems.lqg, {"seed": 0.5}, "seed", "0.5"),
    (problems.lqg, {"horizon": 0.0}, "horizon", "0.0"),
    (problems.hjb, {"horizon": "long"}, "horizon", "'long'"),
    (problems.hjb, {"horizon": math.inf}, "horizon", "inf"),
    (problems.allen_cahn, {"horizon": -1}, "horizon", "-1"),
    (problems.sine_gordon, {"horizon": math.nan}, "horizon", "nan"),
    (problems.allen_cahn, {"sigma": 0.0}, "sigma", "0.0"),
    (problems.burgers, {"sigma0": -0.25}, "sigma0", "-0.25"),
    (problems.burgers, {"sigma0": None}, "sigma0", "None"),
    (problems.burgers, {"drift_in": "both"}, "drift_in", "'both'"),
    (problems.diffusion_reaction, {"frequency": 0}, "frequency", "0"),
    (problems.hjb_lin, {"exponent": 0.5}, "exponent", "0.5"),
    (problems.hjb_lin, {"exponent": math.nan}, "exponent", "nan"),
    *(
        (problems.heston, {name: value}, name, repr(value))
        for name in inspect.signature(problems.heston).parameters
        for value in (math.nan, math.inf, "low", None, True)
    ),
    *(
        (problems.heston, {name: value}, name, repr(value))
        for name in ("spot", "reversion", "mean_variance", "vol_of_variance", "horizon", "strike")
        for value in (0.0, -1.0)
    ),
    (problems.heston, {"variance": -0.04}, "variance", "-0.04"),
    (problems.heston, {"correlation": 1.0}, "correlation", "1.0"),
    (problems.heston, {"correlation": -0.99991}, "correlation", "-0.99991"),
    *(
        (problems.ornstein_uhlenbeck, {name: value}, name, repr(value))
        for name in ("rate", "sigma", "weight")
        for value in (0.0, -1.0, math.nan, "high")
    ),
    *(
        (problems.black_scholes_basket, {name: value}, name, repr(value))
        for name in ("correlation", "rate", "volatility", "strike", "horizon")
        for value in (math.nan, math.inf, "low", None)
    ),
    *(
        (problems.black_scholes_basket, {name: value}, name, repr(value))
        for name in ("volatility", "strike", "horizon")
        for value in (0.0, -1.0)
    ),
    (problems.black_scholes_basket, {"correlation": 1.0}, "correlation", "1.0"),
    (problems.black_scholes_basket, {"dim": 1, "correlation": -1.0}, "correlation", "-1.0"),
    (problems.black_scholes_basket, {"dim": 5, "correlation": -0.25}, "correlation", "-0.25"),
]


def assert_one_sentence(message: str, argument: str, received: str) -> None:
    """Assert that a message is one sentence with the argument, the value received and a remedy."""
    assert message.startswith(argument)
    assert received in message
    assert message.endswith(".")
    assert "\n" not in message
    assert ". " not in message
    assert ": " in message


@pytest.mark.parametrize(("build", "parameters", "argument", "received"), REFUSED)
def test_bad_parameters_are_refused(
    build: Callable[..., Problem], parameters: dict[str, Any], argument: str, received: str
) -> None:
    with pytest.raises(ScasmlError) as refusal:
        build(**parameters)
    assert_one_sentence(str(refusal.value), argument, received)


# Problems whose references are defined on [0, T] only.
BOUNDED_IN_TIME = [
    problems.hjb(3),
    problems.allen_cahn(3),
    problems.black_scholes_barenblatt(3),
    problems.different_rates(1),
    problems.heston(),
    problems.ornstein_uhlenbeck(3),
    problems.black_scholes_basket(3),
]


@pytest.mark.parametrize("problem", BOUNDED_IN_TIME, ids=lambda p: p.name)
def test_times_outside_the_horizon_are_refused(problem: Problem) -> None:
    x = 0.9 * np.broadcast_to(problem.x0, (3, problem.dim))
    for t in (-0.5, 1.5, math.nan):
        with pytest.raises(ScasmlError) as refusal:
            problem.exact(np.array([0.0, t, 0.1]), x)
        assert_one_sentence(str(refusal.value), "t ", f"{t} at point 1")
    # A final time that was rounded to float32 is accepted.
    np.testing.assert_allclose(
        problem.exact(np.float32(problem.horizon), x[0]),
        problem.exact(problem.horizon, x[0]),
        rtol=1e-6,
    )


def test_unresolved_reference_is_refused() -> None:
    solution = reference(problems.allen_cahn(1, 6.0)).value
    assert isinstance(solution, radial.Radial)
    with pytest.raises(ScasmlError) as refusal:
        replace(solution, degrees=(16,))(np.zeros(1), np.zeros((1, 1)))
    assert_one_sentence(str(refusal.value), "horizon", "6")
