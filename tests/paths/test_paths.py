"""Tests of the exact path laws and of `Stepped`: moments, orders of convergence, and weights.

Exact path laws are compared with closed forms. Stepped paths are compared with exact ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import SIGMAS
from scasml.paths import SCHEMES, Gaussian, General, GeometricBrownian, OrnsteinUhlenbeck, Stepped

pytestmark = pytest.mark.usefixtures("x64")


def matrix(sigma, dim):
    """Return sigma as a matrix (dim, dim)."""
    sigma = jnp.asarray(sigma)
    return sigma if sigma.ndim == 2 else jnp.diag(jnp.broadcast_to(sigma, (dim,)))


def correlated(dim, seed=0):
    """Return a lower triangular factor with unit rows, times volatilities near 0.3."""
    rng = np.random.default_rng(seed)
    factor = np.eye(dim) + 0.3 * np.tril(rng.normal(size=(dim, dim)), -1) / np.sqrt(dim)
    return (
        np.linspace(0.2, 0.4, dim)[:, None] * factor / np.linalg.norm(factor, axis=1, keepdims=True)
    )


def laws(dim):
    """Return every dynamics with an exact path law, with scalar, diagonal and full noise."""
    ramp = np.linspace(-0.2, 0.3, dim)
    return {
        "gaussian": Gaussian(ramp, 0.4),
        "gaussian full": Gaussian(ramp, correlated(dim)),
        "geometric": GeometricBrownian(0.1, 0.3),
        "geometric diagonal": GeometricBrownian(ramp, np.linspace(0.2, 0.4, dim)),
        "geometric full": GeometricBrownian(ramp, correlated(dim)),
        "relaxing": OrnsteinUhlenbeck(0.8, 0.5, 0.4),
        "relaxing diagonal": OrnsteinUhlenbeck(ramp + 0.5, ramp, np.linspace(0.2, 0.4, dim)),
        "relaxing full": OrnsteinUhlenbeck(0.8, ramp, correlated(dim)),
        "not relaxing": OrnsteinUhlenbeck(0.0, 0.5, 0.4),
    }


NAMES = list(laws(1))


def mean(dynamics, tau, x):
    """Return E X_t given X_s = x, with tau = t - s."""
    x = jnp.asarray(x)
    if isinstance(dynamics, Gaussian):
        return x + dynamics.mu * tau
    if isinstance(dynamics, GeometricBrownian):
        return x * jnp.exp(dynamics.rate * tau)
    decay = jnp.exp(-dynamics.rate * tau)
    return dynamics.mean + decay * (x - dynamics.mean)


def covariance(dynamics, tau, x):
    """Return Cov X_t given X_s = x, with tau = t - s."""
    dim = len(x)
    if isinstance(dynamics, Gaussian):
        sigma = matrix(dynamics.sigma, dim)
        return sigma @ sigma.T * tau
    if isinstance(dynamics, GeometricBrownian):
        volatility = matrix(dynamics.volatility, dim)
        m = mean(dynamics, tau, x)
        return jnp.outer(m, m) * jnp.expm1(volatility @ volatility.T * tau)
    sigma, rate = matrix(dynamics.sigma, dim), jnp.broadcast_to(jnp.asarray(dynamics.rate), (dim,))
    total = rate[:, None] + rate[None, :]
    time = jnp.where(total == 0, tau, -jnp.expm1(-total * tau) / jnp.where(total == 0, 1.0, total))
    return sigma @ sigma.T * time


def draw(paths, s, x, tau, count, weight=True, seed=0):
    """Return X at the end of `count` paths, and the weights."""
    jump = lambda key: paths.jump(key, jnp.asarray(s), jnp.asarray(x), jnp.asarray(tau), weight)[:2]
    return jax.jit(lambda keys: jax.lax.map(jump, keys, batch_size=4096))(
        jax.random.split(jax.random.key(seed), count)
    )


def within(samples, expected, sigmas=SIGMAS, slack=0.0):
    """Assert that the mean over the first axis is as expected, to `sigmas` standard errors.

    With 6 standard errors the false-fail rate is 2e-9 per entry.
    """
    error = samples.std(0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(0) - expected) <= sigmas * error + slack), (
        np.abs(samples.mean(0) - expected) / error
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [1, 2, 20])
def test_exact_law(name, dim):
    """The mean, the covariance, and sigma^T grad of E c.X and of E |X|^2 by weights.

    There are at most 4 d + d^2 comparisons, each with a false-fail rate of 2e-9.
    """
    check_exact_law(laws(dim)[name], dim)


def check_exact_law(dynamics, dim, count=50_000):
    s, tau = 0.2, 0.7
    x = np.linspace(0.8, 1.4, dim)
    ends, weights = (np.asarray(a) for a in draw(dynamics, s, x, tau, count))
    centre = np.asarray(mean(dynamics, tau, x))
    within(ends, centre)
    deviation = ends - centre
    within(
        deviation[:, :, None] * deviation[:, None, :],
        np.asarray(covariance(dynamics, tau, jnp.asarray(x))),
    )
    sigma = np.asarray(matrix(dynamics.diffusion(jnp.asarray(s), jnp.asarray(x)), dim))
    c = np.cos(np.arange(dim))
    within(weights, 0.0)
    centred = ends @ c - centre @ c  # subtracting a constant only reduces the noise
    within(
        centred[:, None] * weights,
        sigma.T @ np.asarray(jax.grad(lambda x: mean(dynamics, tau, x) @ c)(x)),
    )
    square = lambda x: (
        jnp.trace(covariance(dynamics, tau, x)) + mean(dynamics, tau, x) @ mean(dynamics, tau, x)
    )
    centred = (ends**2).sum(1) - float(square(jnp.asarray(x)))
    within(centred[:, None] * weights, sigma.T @ np.asarray(jax.grad(square)(jnp.asarray(x))))


@pytest.mark.parametrize("name", ["geometric", "relaxing"])
@pytest.mark.parametrize("dim", [1, 2, 20])
def test_weights_of_a_digital(name, dim):
    """sigma^T grad P(X_1 > k) by weights, against the lognormal or normal density.

    There are d comparisons, each with a false-fail rate of 2e-9.
    """
    dynamics, s, tau = laws(dim)[name], 0.2, 0.7
    x, k = np.linspace(0.8, 1.4, dim), 0.9
    ends, weights = (np.asarray(a) for a in draw(dynamics, s, x, tau, 50_000, seed=1))
    variance = float(covariance(dynamics, tau, jnp.asarray(x))[0, 0])
    if name == "geometric":
        sd = dynamics.volatility * np.sqrt(tau)
        gap = (np.log(x[0] / k) + (dynamics.rate - dynamics.volatility**2 / 2) * tau) / sd
        density = np.exp(-(gap**2) / 2) / np.sqrt(2 * np.pi) / (sd * x[0])
    else:
        sd = np.sqrt(variance)
        gap = (float(mean(dynamics, tau, jnp.asarray(x))[0]) - k) / sd
        density = np.exp(-(gap**2) / 2) / np.sqrt(2 * np.pi) * np.exp(-dynamics.rate * tau) / sd
    sigma = np.asarray(matrix(dynamics.diffusion(jnp.asarray(s), jnp.asarray(x)), dim))
    hit = (ends[:, 0] > k) - 0.5
    within(hit[:, None] * weights, sigma.T @ (density * np.eye(dim)[0]))


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_steps_have_the_exact_means(name):
    check_weights_of_steps(name)


def check_weights_of_steps(name):
    """The mean and the weights of 64 Euler steps agree with the exact path law.

    The difference is at most 6 standard errors plus the step bias, about 1/64 of the slope.
    """
    dim, s, tau = 2, 0.2, 0.7
    dynamics, x = laws(dim)[name], np.linspace(0.8, 1.4, dim)
    stepped = Stepped(dynamics=dynamics, scheme="euler", steps=64)
    ends, weights = (np.asarray(a) for a in draw(stepped, s, x, tau, 40_000))
    m = np.asarray(mean(dynamics, tau, x))
    within(ends, m, slack=0.005)
    within(weights, 0.0)
    sigma = np.asarray(matrix(dynamics.diffusion(jnp.asarray(s), jnp.asarray(x)), dim))
    slope = sigma.T @ np.asarray(jax.grad(lambda x: mean(dynamics, tau, x).sum())(jnp.asarray(x)))
    within((ends - m).sum(1)[:, None] * weights, slope, slack=0.02 * np.abs(slope).max())


# Orders of convergence. The drifts couple the coordinates, so D is not diagonal.


L = np.array([[0.8, 0.0], [0.4, 0.7]])
ORDERS = {
    "diagonal": General(
        lambda t, x: 0.2 * jnp.sin(x[::-1] + t), lambda t, x: 0.9 * jnp.sqrt(1 + x**2)
    ),
    # The columns of this sigma commute, and the Milstein step has cross terms.
    "full": General(
        lambda t, x: 0.2 * jnp.sin(x[::-1]), lambda t, x: jnp.sqrt(1 + x**2)[:, None] * L
    ),
}
STEPS = (16, 32, 64, 128)
FINE = 4096


def path_of(dynamics, scheme, steps, x, noise, tau):
    """Return X at the end, D = dX/dx and the weight, from Brownian increments on a finer grid."""
    paths = Stepped(dynamics=dynamics, scheme=scheme, steps=steps)
    dw = noise.reshape(steps, -1, len(x)).sum(1)
    lengths = jnp.full(steps, tau / steps)
    times = tau / steps * jnp.arange(steps)
    end, states = paths.states(x, times, lengths, dw)
    jacobians = jax.jacfwd(lambda x: paths.states(x, times, lengths, dw))(x)
    integrand = lambda t, y, d, w: (
        (jnp.linalg.inv(matrix(dynamics.diffusion(t, y), len(x))) @ d).T @ w
    )
    integral = jax.vmap(integrand)(times, states, jacobians[1], dw).sum(0)
    return (
        end,
        jacobians[0],
        matrix(dynamics.diffusion(jnp.zeros(()), x), len(x)).T @ integral / tau,
    )


@pytest.mark.parametrize("noise", ORDERS)
def test_strong_orders(noise):
    check_strong_orders(noise)


def check_strong_orders(noise):
    """The strong order of X, D and the weight is 1/2 for Euler and 1 for Milstein.

    The root mean square over 1024 paths is known to 3 %, and the fitted slope to about 0.02. The
    test allows 0.1, and the seed is fixed.
    """
    dynamics, x, tau = ORDERS[noise], jnp.array([0.3, -0.4]), 0.8

    def errors(key):
        dw = jnp.sqrt(tau / FINE) * jax.random.normal(key, (FINE, 2))
        truth = path_of(dynamics, "milstein", FINE, x, dw, tau)
        square = lambda scheme, k: [
            jnp.sum((a - b) ** 2)
            for a, b in zip(path_of(dynamics, scheme, k, x, dw, tau), truth, strict=True)
        ]
        return jnp.array([[square(scheme, k) for k in STEPS] for scheme in ("euler", "milstein")])

    squares = jax.jit(lambda keys: jax.lax.map(errors, keys, batch_size=64))(
        jax.random.split(jax.random.key(3), 1024)
    )
    rms = np.sqrt(np.asarray(squares).mean(0))  # scheme, steps, quantity
    slopes = -np.polyfit(np.log(STEPS), np.log(rms.transpose(1, 0, 2).reshape(len(STEPS), -1)), 1)[
        0
    ].reshape(2, 3)
    np.testing.assert_allclose(slopes[0], 0.5, atol=0.1)
    np.testing.assert_allclose(slopes[1], 1.0, atol=0.1)


def test_weak_orders():
    check_weak_orders()


def check_weak_orders(scheme_of=lambda scheme: scheme, paths=200_000):
    """The weak order of E X^2, E D^2 and E X^2 weight is 1 for both schemes.

    The diffusion is a geometric Brownian motion. The exact path on the same noise is subtracted,
    so the bias is known to 2 % at 32 steps, and the fitted slope to 0.03. The test allows 0.1, and
    the seed is fixed.
    """
    dynamics, x, tau = GeometricBrownian(0.4, 0.5), jnp.array([1.2]), 1.0
    steps = (8, 16, 32)
    general = General(dynamics.drift, dynamics.diffusion)

    def errors(key):
        def differences(scheme, k):
            dw = jnp.sqrt(tau / 32) * jax.random.normal(key, (32, 1))
            w = dw.sum()
            end, d, weight = path_of(general, scheme_of(scheme), k, x, dw, tau)
            truth = x[0] * jnp.exp((0.4 - 0.125) * tau + 0.5 * w)
            slope = truth / x[0]
            return [
                end[0] ** 2 - truth**2,
                d[0, 0] ** 2 - slope**2,
                end[0] ** 2 * weight[0] - truth**2 * w / tau,
            ]

        return jnp.array(
            [[differences(scheme, k) for k in steps] for scheme in ("euler", "milstein")]
        )

    keys = jax.random.split(jax.random.key(4), paths)
    bias = np.asarray(jax.jit(lambda keys: jax.lax.map(errors, keys, batch_size=4096))(keys)).mean(
        0
    )
    slopes = -np.polyfit(
        np.log(steps), np.log(np.abs(bias).transpose(1, 0, 2).reshape(len(steps), -1)), 1
    )[0]
    np.testing.assert_allclose(slopes, 1.0, atol=0.1)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("noise", ORDERS)
def test_reverse_pass_gives_the_weight_of_the_derivative_process(noise, scheme):
    dynamics, x, tau = ORDERS[noise], jnp.array([0.3, -0.4]), jnp.asarray(0.8)
    paths, key = Stepped(dynamics=dynamics, scheme=scheme, steps=8), jax.random.key(0)
    got = paths.jump(key, jnp.zeros(()), x, tau, True)
    dw = jnp.sqrt(tau / 8) * jax.random.normal(key, (8, 2))
    end, _, weight = path_of(dynamics, scheme, 8, x, dw, tau)
    np.testing.assert_allclose(got.x, end, rtol=1e-12)
    np.testing.assert_allclose(got.weight, weight, rtol=1e-10)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("noise", ORDERS)
def test_coarse_paths_take_half_the_steps_on_the_same_noise(noise, scheme):
    """`coarse` is traced. The steps of length zero do not change X or its weight."""
    dynamics, x, tau, key = (
        ORDERS[noise],
        jnp.array([0.3, -0.4]),
        jnp.asarray(0.5),
        jax.random.key(1),
    )
    fine = Stepped(dynamics=dynamics, scheme=scheme, steps=8)
    dw = jnp.sqrt(tau / 8) * jax.random.normal(key, (8, 2))
    end, _, weight = path_of(dynamics, scheme, 4, x, dw[0::2] + dw[1::2], tau)

    @jax.jit
    def jump(coarse):
        return Stepped(dynamics=dynamics, scheme=scheme, steps=8, coarse=coarse).jump(
            key, jnp.zeros(()), x, tau, True
        )

    np.testing.assert_allclose(jump(True).x, end, rtol=1e-12)
    np.testing.assert_allclose(jump(True).weight, weight, rtol=1e-10)
    np.testing.assert_allclose(
        jump(False).x, fine.jump(key, jnp.zeros(()), x, tau, False).x, rtol=1e-12
    )


def test_derivative_process_is_not_formed():
    """Without the weight there is one loop over the steps. The weight adds one reverse loop.

    For a diagonal sigma no array has the shape (d, d).
    """
    dynamics = General(lambda t, x: -x, lambda t, x: 1 + 0.1 * x**2)
    paths = Stepped(dynamics=dynamics, scheme="euler", steps=4)

    def jaxpr(weight):
        inputs = (jax.random.key(0), jnp.zeros(()), jnp.ones(7), jnp.ones(()))
        return str(jax.make_jaxpr(lambda k, s, x, tau: paths.jump(k, s, x, tau, weight))(*inputs))

    assert jaxpr(False).count(" scan[") == 1
    assert jaxpr(False).count("reverse=True") == 0
    assert jaxpr(True).count("reverse=True") == 1
    assert "7,7]" not in jaxpr(True)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_steps_with_time_dependent_coefficients(scheme):
    """dX = cos(t) dt + (1 + t) dW is Gaussian with variance ((1+t)^3 - (1+s)^3)/3.

    The comparisons allow 6 standard errors, a false-fail rate of 2e-9 each, plus the step bias.
    """
    dynamics = General(lambda t, x: jnp.cos(t) * jnp.ones_like(x), lambda t, x: 1 + t)
    s, tau = 0.5, 1.0
    ends = np.asarray(
        draw(
            Stepped(dynamics=dynamics, scheme=scheme, steps=128), s, np.zeros(1), tau, 50_000, False
        )[0]
    )
    variance = ((2.5**3) - 1.5**3) / 3
    within(ends, np.sin(1.5) - np.sin(0.5), slack=0.01)
    within(ends**2, variance + (np.sin(1.5) - np.sin(0.5)) ** 2, slack=0.03)
    # With coefficients frozen at time s the variance would be tau (1 + s)^2.
    assert np.abs(ends.var() - tau * 1.5**2) > 0.5
