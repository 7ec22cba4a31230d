"""Tests of the pricing problems that go beyond the tests of every problem in test_problems.py.

Random points are drawn with fixed seeds.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from test_problems import (
    assert_one_sentence,
    assert_printed,
    derivatives,
    generator,
    matrix,
    points,
    reference,
)

from scasml import problems
from scasml._cli import inputs
from scasml._equations.problem import Problem
from scasml._support.errors import ArgumentError
from scasml.problems.references.black_scholes import call
from scasml.problems.references.heston_price import ACCURACY, BLOCK_ELEMENTS, HestonCall


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def value(problem: Problem, *point: Any) -> Any:
    """Return F at a point (t, x, u, z)."""
    return problem.nonlinearity(*map(jnp.asarray, point))


# Default risk has no solution formula, but the equation is linear for u < 50 and for u > 70.


@pytest.mark.parametrize(
    ("price", "intensity"), [(20.0, 0.2), (45.0, 0.2), (75.0, 0.02), (300.0, 0.02)]
)
def test_default_risk_with_constant_intensity(price: float, intensity: float) -> None:
    problem = problems.default_risk(1)
    u = lambda t, x: x[0] * jnp.exp(-intensity / 3 * (1 - t))
    t, x = jnp.asarray(0.4), jnp.full(1, price)
    np.testing.assert_allclose(jax.grad(u)(t, x) + generator(problem, u, t, x), 0, atol=1e-12)


def test_default_risk_formulas() -> None:
    x, z = np.array([90.0, 80.0, 120.0]), np.ones(3)
    for u in np.linspace(30.0, 90.0, 13):
        q = min(0.2, max(0.02, (0.02 - 0.2) / (70 - 50) * (u - 50) + 0.2))
        np.testing.assert_allclose(
            value(problems.default_risk(3), 0.3, x, u, z),
            -(1 - 2 / 3) * q * u - 0.02 * u,
            rtol=1e-14,
        )
    assert problems.default_risk(3).terminal(jnp.asarray(x)) == 80.0


def test_default_risk_reference() -> None:
    """The published value and the intervals of the two Picard runs lie within the error bound."""
    problem = problems.default_risk()
    known = problem.exact(0.0, problem.x0)
    for printed, allowed in ((57.300, 0.0), (57.294, 2 * 0.003), (57.299, 2 * 0.004)):
        assert abs(known - printed) + allowed <= reference(problem).error + 1e-12


# Different rates.


@pytest.mark.parametrize("dim", [1, 3])
def test_cash_earns_the_lending_rate(dim: int) -> None:
    problem = problems.different_rates(dim)
    u = lambda t, x: 7 * jnp.exp(-0.04 * (0.5 - t)) + 0 * jnp.sum(x)
    t, x = (jnp.asarray(a[0]) for a in points(problem))
    np.testing.assert_allclose(jax.grad(u)(t, x) + generator(problem, u, t, x), 0, atol=1e-14)


@pytest.mark.parametrize("dim", [1, 3])
def test_one_stock_solves_the_equation(dim: int) -> None:
    """u = x_1 is the price of a stock. Its hedge is the stock, without lending or borrowing."""
    problem = problems.different_rates(dim)
    u = lambda t, x: x[0] + 0 * t
    t, x = (jnp.asarray(a[0]) for a in points(problem))
    np.testing.assert_allclose(jax.grad(u)(t, x) + generator(problem, u, t, x), 0, atol=1e-12)


def test_different_rates_formulas() -> None:
    x, z = np.array([90.0, 130.0, 80.0]), np.array([5.0, -2.0, 4.0])
    for u in (10.0, 34.0, 36.0, 60.0):
        invested = z.sum() / 0.2
        expected = (
            -0.04 * u - (0.06 - 0.04) / 0.2 * z.sum() + (0.06 - 0.04) * max(0.0, invested - u)
        )
        np.testing.assert_allclose(
            value(problems.different_rates(3), 0.3, x, u, z), expected, rtol=1e-13
        )
    payoffs = ((110.0, 0.0), (130.0, 10.0), (150.0, 30.0), (160.0, 20.0), (200.0, -20.0))
    for highest, payoff in payoffs:
        assert problems.different_rates(3).terminal(jnp.array([90.0, highest, 80.0])) == payoff
    for price, payoff in ((90.0, 0.0), (100.0, 0.0), (112.0, 12.0)):
        assert problems.different_rates(1).terminal(jnp.array([price])) == payoff


@pytest.mark.parametrize("build", [problems.default_risk, problems.different_rates])
def test_reference_is_known_at_one_point_only(build: Any) -> None:
    problem = build()
    x = np.full((4, 100), 100.0)
    x[2, 7] = 101.0
    known = problem.exact(np.array([0.0, 0.1, 0.0, problem.horizon]), x)
    assert np.isnan(known).tolist() == [False, True, True, True]
    assert known[0] == problem.exact(0.0, problem.x0)
    assert build(3).reference is None
    assert problems.different_rates(1).reference is not None


# Black-Scholes.


def test_x0_is_the_state_of_published_values() -> None:
    np.testing.assert_array_equal(
        problems.black_scholes_barenblatt(5).x0, [1.0, 0.5, 1.0, 0.5, 1.0]
    )
    for build in (problems.default_risk, problems.different_rates, problems.black_scholes_basket):
        np.testing.assert_array_equal(build(3).x0, [100.0, 100.0, 100.0])
    np.testing.assert_array_equal(problems.heston().x0, [100.0, 0.04])


def test_price_is_zero_if_an_asset_price_is_not_positive() -> None:
    """Geometric Brownian motion that starts at 0 or below stays there, so u is g = 0."""
    one, three = problems.different_rates(1), problems.black_scholes_basket(3)
    for x in (0.0, -5.0):
        assert one.exact(0.1, [x]) == one.terminal(jnp.array([x])) == 0
        assert (
            three.exact(0.1, [200.0, x, 300.0]) == three.terminal(jnp.array([200.0, x, 300.0])) == 0
        )
        assert jnp.all(jax.grad(three.terminal)(jnp.array([200.0, x, 300.0])) == 0)


def test_call_without_noise() -> None:
    np.testing.assert_array_equal(
        call(np.array([90.0, 110.0, 110.0]), 100.0, np.zeros(3)), [0.0, 10.0, 10.0]
    )


def test_basket_covariance() -> None:
    x = jnp.array([80.0, 100.0, 120.0])
    for rho in (-0.4, 0.0, 0.3, 0.9):
        problem = problems.black_scholes_basket(3, rho, volatility=0.25)
        sigma = matrix(problem, jnp.asarray(0.1), x)
        expected = 0.25**2 * np.outer(x, x) * np.where(np.eye(3) == 1, 1.0, rho)
        np.testing.assert_allclose(sigma @ sigma.T, expected, rtol=1e-12, atol=1e-12)
    assert problems.black_scholes_basket(3, 0.0).dynamics.volatility.ndim == 0


# Heston. test_problems.py tests that the reference solves the equation of the problem. The tests
# below compare the reference with other integrals, bounds and limits.

POSITIVE_CORRELATION = HestonCall(0.5, 0.09, 0.6, 0.7, 0.05, 0.0, 2.0, 110.0)


def heston_call(problem: Problem) -> HestonCall:
    """Return the reference of a Heston problem."""
    price = reference(problem).value
    assert isinstance(price, HestonCall)
    return price


def gil_pelaez(model: HestonCall, tau: float, s: float, v: float) -> float:
    """Return the price S e^(-q tau) P1 - K e^(-r tau) P2.

    P1 and P2 are integrals along the real axis by Gauss-Legendre quadrature. Their characteristic
    function is the solution of its Riccati equations by a Runge-Kutta method.
    """
    nodes, weights = np.polynomial.legendre.leggauss(400)
    top = 150.0
    w = np.concatenate([top * (nodes + 1) / 2, top * (nodes + 1) / 2 - 1j])
    kappa, theta, xi, rho = (
        model.reversion,
        model.mean_variance,
        model.vol_of_variance,
        model.correlation,
    )

    def slope(_: float, y: NDArray[Any]) -> NDArray[Any]:
        d = y[: w.size]
        d_slope = -0.5 * w * (w + 1j) + (1j * rho * xi * w - kappa) * d + 0.5 * xi**2 * d * d
        return np.concatenate([d_slope, kappa * theta * d])

    solved = solve_ivp(
        slope, (0.0, tau), np.zeros(2 * w.size, complex), "DOP853", rtol=1e-11, atol=1e-12
    ).y[:, -1]
    phi = np.exp(v * solved[: w.size] + solved[w.size :])
    k = math.log(s / model.strike) + (model.rate - model.dividend) * tau
    real = np.real(w[: nodes.size])
    probability = lambda phi: (
        0.5 + top / 2 / np.pi * weights @ np.real(np.exp(1j * real * k) * phi / (1j * real))
    )
    p2, p1 = probability(phi[: nodes.size]), probability(phi[nodes.size :])
    return (
        s * math.exp(-model.dividend * tau) * p1 - model.strike * math.exp(-model.rate * tau) * p2
    )


@pytest.mark.parametrize(
    ("tau", "s", "v"),
    [
        (1.0, 100.0, 0.04),
        (0.6, 130.0, 0.2),
        (0.8, 70.0, 0.1),
        (0.35, 104.0, 0.5),
        (0.9, 95.0, 0.01),
    ],
)
def test_heston_against_another_integral(tau: float, s: float, v: float) -> None:
    model = heston_call(problems.heston())
    computed = model(np.full(1, 1.0 - tau), np.array([[s, v]]))[0]
    assert abs(computed - gil_pelaez(model, tau, s, v)) < 1e-8


def test_heston_with_positive_correlation() -> None:
    model = POSITIVE_CORRELATION
    for tau, s, v in ((2.0, 110.0, 0.2), (1.1, 180.0, 0.3), (1.5, 60.0, 0.1)):
        computed = model(np.full(1, 2.0 - tau), np.array([[s, v]]))[0]
        assert abs(computed - gil_pelaez(model, tau, s, v)) < 1e-8


def test_published_heston() -> None:
    problem = problems.heston()
    assert abs(problem.exact(0.0, problem.x0) - 16.070154917028834) < 1e-12
    delta, _ = derivatives(lambda h: problem.exact(0.0, problem.x0 + np.array([h, 0.0])), 0.3)
    assert_printed(delta, "0.59947133")


def wide_points(model: HestonCall, count: int = 300) -> tuple[Any, Any]:
    """Return random times (B,) and states (B, 2).

    Prices are 0.1 to 10 times the strike, variances are 0 to 2, and T - t is 1e-6 T to T.
    """
    rng = np.random.default_rng(0)
    tau = model.horizon * 10 ** rng.uniform(-6, 0, count)
    v = 10 ** rng.uniform(-6, 0.3, count)
    v[::20] = 0.0
    return model.horizon - tau, np.stack([model.strike * 10 ** rng.uniform(-1, 1, count), v], 1)


MODELS = [
    pytest.param(heston_call(problems.heston()), id="default"),
    pytest.param(POSITIVE_CORRELATION, id="positive-correlation"),
    pytest.param(HestonCall(9.3, 0.57, 3.7, -0.67, 0.065, 0.01, 8.0, 100.0), id="large-noise"),
    pytest.param(HestonCall(0.2, 0.01, 0.002, -0.9, 0.0, 0.03, 1.0, 100.0), id="small-noise"),
    pytest.param(HestonCall(2.0, 0.1, 1.0, 0.98, 0.02, 0.0, 0.5, 100.0), id="nearly-singular"),
]


@pytest.mark.parametrize("model", MODELS)
def test_heston_on_another_ray_with_smaller_steps(model: HestonCall) -> None:
    t, x = wide_points(model)
    finer = replace(model, angle=0.6 * model.ray_angle, step=0.08)
    price_error = np.abs(model(t, x) - finer(t, x)) / (x[:, 0] + model.strike)
    assert price_error.max() < ACCURACY


@pytest.mark.parametrize("model", MODELS)
def test_heston_satisfies_the_bounds_of_arbitrage(model: HestonCall) -> None:
    t, x = wide_points(model)
    tau, s = model.horizon - t, x[:, 0]
    present = s * np.exp(-model.dividend * tau)
    slack = ACCURACY * (s + model.strike)
    price = model(t, x)
    assert np.all(
        price >= np.maximum(present - model.strike * np.exp(-model.rate * tau), 0) - slack
    )
    assert np.all(price <= present + slack)
    assert np.all(price >= 0)
    # The derivative in S is between 0 and e^(-q tau).
    rise = model(t, x * [1.01, 1.0]) - price
    assert np.all((rise >= -slack) & (rise <= 0.01 * present + slack))


def test_heston_tends_to_black_scholes_as_xi_tends_to_zero() -> None:
    """The difference is O(xi) if rho is not 0, and O(xi^2) if it is."""
    for xi, rho, difference in ((1e-4, 0.0, 1e-7), (1e-4, 0.5, 1e-3), (1e-8, 0.5, 1e-7)):
        model = HestonCall(2.0, 0.09, xi, rho, 0.03, 0.01, 1.0, 100.0)
        s, tau = np.array([70.0, 95.0, 100.0, 130.0]), np.array([1.0, 0.5, 0.01, 0.7])
        expected = np.exp(-0.03 * tau) * call(s * np.exp(0.02 * tau), 100.0, 0.3 * np.sqrt(tau))
        np.testing.assert_allclose(
            model(1.0 - tau, np.stack([s, np.full(4, 0.09)], 1)), expected, rtol=0, atol=difference
        )


def test_heston_near_the_horizon() -> None:
    model = heston_call(problems.heston())
    tau = np.array([1e-3, 1e-5, 1e-7, 1e-9])
    at_the_money = model(1.0 - tau, np.tile([100.0, 0.04], (4, 1)))
    # The limit is S sqrt(v tau/(2 pi)), with a relative error of O(sqrt tau).
    np.testing.assert_allclose(
        at_the_money / (100 * np.sqrt(0.04 * tau / (2 * np.pi))), 1.0, atol=0.02
    )
    np.testing.assert_allclose(
        at_the_money[3] / (100 * np.sqrt(0.04e-9 / (2 * np.pi))), 1.0, atol=1e-4
    )
    off_the_money = model(np.full(2, 1.0 - 1e-7), np.array([[90.0, 0.04], [110.0, 0.04]]))
    np.testing.assert_allclose(
        off_the_money, [0.0, 110 * math.exp(-2e-9) - 100 * math.exp(-1e-9)], rtol=0, atol=1e-10
    )
    states = np.array([[90.0, 0.04], [100.0, 0.0], [123.0, 3.0]])
    np.testing.assert_array_equal(model(np.ones(3), states), [0.0, 0.0, 23.0])


def test_heston_at_invalid_states() -> None:
    model = heston_call(problems.heston())
    x = np.array(
        [[100.0, -0.01], [-1.0, 0.04], [0.0, 0.04], [100.0, 0.0], [100.0, 0.04], [np.nan, 0.04]]
    )
    price = model(np.zeros(6), x)
    assert np.isnan(price).tolist() == [True, True, False, False, False, True]
    assert price[2] == 0
    assert 0 < price[3] < price[4]
    # Half of the states are valid. Repeat them until they fill more than one block.
    copies = BLOCK_ELEMENTS // model.quadrature()[0].size
    repeated = model(np.zeros(6 * copies), np.tile(x, (copies, 1)))
    np.testing.assert_allclose(repeated, np.tile(price, copies), rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("variance", [-0.3, -1e-12, 0.0, 1e-6, 0.04])
def test_heston_coefficients(variance: float, dtype: Any) -> None:
    problem = problems.heston(correlation=-0.6, vol_of_variance=0.8)
    t, x = jnp.zeros((), dtype), jnp.array([90.0, variance], dtype)
    v = max(variance, 0.0)
    sigma = problem.diffusion(t, x)
    covariance = v * np.array([[90.0**2, -0.6 * 0.8 * 90], [-0.6 * 0.8 * 90, 0.8**2]])
    np.testing.assert_allclose(
        sigma @ sigma.T, covariance, rtol=1e-5 if dtype == jnp.float32 else 1e-12
    )
    assert sigma[0, 1] == 0
    np.testing.assert_allclose(problem.drift(t, x), [-0.9, 4 * (0.25 - v)], rtol=1e-6)
    for function in (problem.drift, problem.diffusion):
        assert jnp.all(jnp.isfinite(jax.jacrev(jax.jacfwd(function, 1), 1)(t, x)))


# The command line.


def test_command_line_refuses_to_change_a_fixed_dimension() -> None:
    with pytest.raises(ArgumentError) as refusal:
        inputs.read_problem("heston", 3, [])
    assert_one_sentence(str(refusal.value), "dim", "got 3")
    assert "heston" in str(refusal.value)
    np.testing.assert_array_equal(
        inputs.read_problem("heston", None, ["spot=90", "variance=0.1"]).x0, [90.0, 0.1]
    )
    assert inputs.read_problem("black_scholes_basket", 3, ["correlation=0"]).dim == 3
