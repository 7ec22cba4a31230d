"""Path laws: exact ones against closed forms, stepped ones against exact ones, their orders, and the gradient weights of all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from helpers import SIGMAS
from scasml._sampling import normals as noise
from scasml._sampling.normals import normal
from scasml.paths import Gaussian, General, GeometricBrownian, OrnsteinUhlenbeck, Stepped
from scasml.paths.coefficients import solve

pytestmark = pytest.mark.usefixtures("x64")


def matrix(sigma, dim):
    sigma = jnp.asarray(sigma)
    return sigma if sigma.ndim == 2 else jnp.diag(jnp.broadcast_to(sigma, (dim,)))


def correlated(dim, seed=0):
    """A lower-triangular factor with unit rows, times volatilities near 0.3."""
    rng = np.random.default_rng(seed)
    factor = np.eye(dim) + 0.3 * np.tril(rng.normal(size=(dim, dim)), -1) / np.sqrt(dim)
    return (
        np.linspace(0.2, 0.4, dim)[:, None] * factor / np.linalg.norm(factor, axis=1, keepdims=True)
    )


def laws(dim):
    """Every exact law, with scalar, diagonal and full noise."""
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


def mean(equation, tau, x):
    """E X_t, as a function of x."""
    x = jnp.asarray(x)
    if isinstance(equation, Gaussian):
        return x + equation.mu * tau
    if isinstance(equation, GeometricBrownian):
        return x * jnp.exp(equation.rate * tau)
    decay = jnp.exp(-equation.rate * tau)
    return equation.mean + decay * (x - equation.mean)


def covariance(equation, tau, x):
    """Cov X_t, as a function of x, by textbook formulae."""
    dim = len(x)
    if isinstance(equation, Gaussian):
        sigma = matrix(equation.sigma, dim)
        return sigma @ sigma.T * tau
    if isinstance(equation, GeometricBrownian):
        volatility = matrix(equation.volatility, dim)
        m = mean(equation, tau, x)
        return jnp.outer(m, m) * jnp.expm1(volatility @ volatility.T * tau)
    sigma, rate = matrix(equation.sigma, dim), jnp.broadcast_to(jnp.asarray(equation.rate), (dim,))
    total = rate[:, None] + rate[None, :]
    time = jnp.where(total == 0, tau, -jnp.expm1(-total * tau) / jnp.where(total == 0, 1.0, total))
    return sigma @ sigma.T * time


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers(dtype):
    """Kolmogorov-Smirnov at 1e-6; moments, tails and correlations between places and keys within 6 standard errors: 2e-9 each, 30 of them."""
    rows, width = 40_000, 7  # an odd width: the last block is cut
    keys = jax.random.split(jax.random.key(8), rows)
    x = np.asarray(jax.vmap(lambda key: normal(key, (width,), np.dtype(dtype)))(keys), np.float64)
    assert stats.kstest(x.ravel(), "norm").pvalue > 1e-6
    bound = lambda sd: SIGMAS * sd / np.sqrt(x.size)
    assert abs(x.mean()) < bound(1)
    assert abs((x**2).mean() - 1) < bound(np.sqrt(2))
    assert abs((x**3).mean()) < bound(np.sqrt(15))
    assert abs((x**4).mean() - 3) < bound(np.sqrt(96))
    tail = 2 * stats.norm.sf(4)
    assert abs((np.abs(x) > 4).mean() - tail) < bound(np.sqrt(tail))
    together = x.T @ x / rows - np.eye(width)
    assert np.all(np.abs(together) < SIGMAS * np.sqrt(1 + np.eye(width)) / np.sqrt(rows))
    assert abs((x[1:, 0] * x[:-1, 0]).mean()) < SIGMAS / np.sqrt(rows)
    assert len(np.unique(x)) > 0.98 * x.size


def test_normal_numbers_from_extreme_bits(monkeypatch):
    """Every bit pattern gives a finite number; the inverse is right to 3e-6 of it up to 5.5, and to 4e-4 beyond."""
    bits = np.array(
        [0, 1, 2, 2**10, 2**20, 2**27, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1], np.uint32
    )
    monkeypatch.setattr(noise, "threefry_2x32", lambda key, counter: jnp.asarray(bits))
    got = np.asarray(normal(jax.random.key(0), (len(bits),), np.dtype("float32")))
    tail = ((bits & 0x7FFFFFFF).astype(np.float64) + 0.5) * 2.0**-32
    expected = np.where(bits >> 31, -1, 1) * stats.norm.isf(tail)
    np.testing.assert_allclose(got, expected, rtol=4e-4, atol=3e-7)
    usual = np.abs(expected) < 5.5
    np.testing.assert_allclose(got[usual], expected[usual], rtol=3e-6, atol=3e-7)


def draw(paths, s, x, tau, count, weight=True, seed=0):
    jump = lambda key: paths.jump(key, jnp.asarray(s), jnp.asarray(x), jnp.asarray(tau), weight)[:2]
    return jax.jit(lambda keys: jax.lax.map(jump, keys, batch_size=4096))(
        jax.random.split(jax.random.key(seed), count)
    )


def within(samples, expected, sigmas=SIGMAS, slack=0.0):
    """The mean of samples (N, ...) is what is expected, everywhere: 2e-9 per entry at six standard errors."""
    error = samples.std(0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(0) - expected) <= sigmas * error + slack), (
        np.abs(samples.mean(0) - expected) / error
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [1, 2, 20])
def test_exact_law(name, dim):
    """Mean, covariance, and by weights sigma^T grad of E X, of E |X|^2 and of a jump: at most 3 d + d^2 comparisons at 2e-9."""
    check_exact_law(laws(dim)[name], dim)


def check_exact_law(equation, dim, count=50_000):
    s, tau = 0.2, 0.7
    x = np.linspace(0.8, 1.4, dim)
    ends, weights = (np.asarray(a) for a in draw(equation, s, x, tau, count))
    centre = np.asarray(mean(equation, tau, x))
    within(ends, centre)
    deviation = ends - centre
    within(
        deviation[:, :, None] * deviation[:, None, :],
        np.asarray(covariance(equation, tau, jnp.asarray(x))),
    )
    sigma = np.asarray(matrix(equation.diffusion(jnp.asarray(s), jnp.asarray(x)), dim))
    c = np.cos(np.arange(dim))
    within(weights, 0.0)
    centred = ends @ c - centre @ c  # a constant moves nothing but the noise
    within(
        centred[:, None] * weights,
        sigma.T @ np.asarray(jax.grad(lambda x: mean(equation, tau, x) @ c)(x)),
    )
    square = lambda x: (
        jnp.trace(covariance(equation, tau, x)) + mean(equation, tau, x) @ mean(equation, tau, x)
    )
    centred = (ends**2).sum(1) - float(square(jnp.asarray(x)))
    within(centred[:, None] * weights, sigma.T @ np.asarray(jax.grad(square)(jnp.asarray(x))))


@pytest.mark.parametrize("name", ["geometric", "relaxing"])
@pytest.mark.parametrize("dim", [1, 2, 20])
def test_weights_of_a_digital(name, dim):
    """sigma^T grad P(X^1 > K) by weights, against the lognormal or normal density: d comparisons at 2e-9, twice."""
    equation, s, tau = laws(dim)[name], 0.2, 0.7
    x, k = np.linspace(0.8, 1.4, dim), 0.9
    ends, weights = (np.asarray(a) for a in draw(equation, s, x, tau, 50_000, seed=1))
    variance = float(covariance(equation, tau, jnp.asarray(x))[0, 0])
    if name == "geometric":
        sd = equation.volatility * np.sqrt(tau)
        gap = (np.log(x[0] / k) + (equation.rate - equation.volatility**2 / 2) * tau) / sd
        density = np.exp(-(gap**2) / 2) / np.sqrt(2 * np.pi) / (sd * x[0])
    else:
        sd = np.sqrt(variance)
        gap = (float(mean(equation, tau, jnp.asarray(x))[0]) - k) / sd
        density = np.exp(-(gap**2) / 2) / np.sqrt(2 * np.pi) * np.exp(-equation.rate * tau) / sd
    sigma = np.asarray(matrix(equation.diffusion(jnp.asarray(s), jnp.asarray(x)), dim))
    hit = (ends[:, 0] > k) - 0.5
    within(hit[:, None] * weights, sigma.T @ (density * np.eye(dim)[0]))


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_steps_are_the_exact_ones(name):
    check_weights_of_steps(name)


def check_weights_of_steps(name):
    """64 Euler steps of the same coefficients: mean and weights within six standard errors and the bias of the steps, 1/64 of the slope."""
    dim, s, tau = 2, 0.2, 0.7
    equation, x = laws(dim)[name], np.linspace(0.8, 1.4, dim)
    stepped = Stepped(dynamics=equation, scheme="euler", steps=64)
    ends, weights = (np.asarray(a) for a in draw(stepped, s, x, tau, 40_000))
    m = np.asarray(mean(equation, tau, x))
    within(ends, m, slack=0.005)
    within(weights, 0.0)
    sigma = np.asarray(matrix(equation.diffusion(jnp.asarray(s), jnp.asarray(x)), dim))
    slope = sigma.T @ np.asarray(jax.grad(lambda x: mean(equation, tau, x).sum())(jnp.asarray(x)))
    within((ends - m).sum(1)[:, None] * weights, slope, slack=0.02 * np.abs(slope).max())


# Orders of convergence. The processes couple their coordinates in the drift, so D is not diagonal.


L = np.array([[0.8, 0.0], [0.4, 0.7]])
ORDERS = {
    "diagonal": General(
        lambda t, x: 0.2 * jnp.sin(x[::-1] + t), lambda t, x: 0.9 * jnp.sqrt(1 + x**2)
    ),
    # The columns of diag(sqrt(1 + x^2)) L commute, and there are cross terms.
    "full": General(
        lambda t, x: 0.2 * jnp.sin(x[::-1]), lambda t, x: jnp.sqrt(1 + x**2)[:, None] * L
    ),
}
STEPS = (16, 32, 64, 128)
FINE = 4096


def path_of(dynamics, scheme, steps, x, noise, tau):
    """X at the end, D = dX/dx and the weight, from increments given at FINE resolution."""
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
    """1/2 for Euler and 1 for Milstein, of X, D and the weight; regression within 0.1.

    The root mean square over 1024 paths is known to 3 %, the slope over a factor of 8 to about 0.02; the seed is fixed.
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
    """1 for both schemes, of E X^2, E D^2 and E X^2 weight of a geometric Brownian motion; regression within 0.1.

    The exact path on the same noise is subtracted, so the bias is known to 2 % at 32 steps, the slope to 0.03; the seed is fixed.
    """
    equation, x, tau = GeometricBrownian(0.4, 0.5), jnp.array([1.2]), 1.0
    steps = (8, 16, 32)
    general = General(equation.drift, equation.diffusion)

    def errors(key):
        def of(scheme, k):
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

        return jnp.array([[of(scheme, k) for k in steps] for scheme in ("euler", "milstein")])

    keys = jax.random.split(jax.random.key(4), paths)
    bias = np.asarray(jax.jit(lambda keys: jax.lax.map(errors, keys, batch_size=4096))(keys)).mean(
        0
    )
    slopes = -np.polyfit(
        np.log(steps), np.log(np.abs(bias).transpose(1, 0, 2).reshape(len(steps), -1)), 1
    )[0]
    np.testing.assert_allclose(slopes, 1.0, atol=0.1)


@pytest.mark.parametrize("scheme", ["euler", "milstein"])
@pytest.mark.parametrize("noise", ORDERS)
def test_the_weight_by_one_reverse_pass_is_the_one_by_the_derivative_process(noise, scheme):
    dynamics, x, tau = ORDERS[noise], jnp.array([0.3, -0.4]), jnp.asarray(0.8)
    paths, key = Stepped(dynamics=dynamics, scheme=scheme, steps=8), jax.random.key(0)
    got = paths.jump(key, jnp.zeros(()), x, tau, True)
    dw = jnp.sqrt(tau / 8) * jax.random.normal(key, (8, 2))
    end, _, weight = path_of(dynamics, scheme, 8, x, dw, tau)
    np.testing.assert_allclose(got.x, end, rtol=1e-12)
    np.testing.assert_allclose(got.weight, weight, rtol=1e-10)


@pytest.mark.parametrize("scheme", ["euler", "milstein"])
@pytest.mark.parametrize("noise", ORDERS)
def test_halved_steps_are_half_as_many_on_the_same_noise(noise, scheme):
    """Also as data, inside a compiled program; the steps of no length leave X and its weight alone."""
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
    def jump(halved):
        return Stepped(dynamics=dynamics, scheme=scheme, steps=8, halved=halved).jump(
            key, jnp.zeros(()), x, tau, True
        )

    np.testing.assert_allclose(jump(True).x, end, rtol=1e-12)
    np.testing.assert_allclose(jump(True).weight, weight, rtol=1e-10)
    np.testing.assert_allclose(
        jump(False).x, fine.jump(key, jnp.zeros(()), x, tau, False).x, rtol=1e-12
    )


def test_d_is_not_carried_when_nobody_needs_the_weight():
    """One loop over steps without the weight; another one, backward, with it; and nothing of size d x d for a diagonal sigma."""
    dynamics = General(lambda t, x: -x, lambda t, x: 1 + 0.1 * x**2)
    paths = Stepped(dynamics=dynamics, scheme="euler", steps=4)

    def loops(weight):
        inputs = (jax.random.key(0), jnp.zeros(()), jnp.ones(7), jnp.ones(()))
        return str(jax.make_jaxpr(lambda k, s, x, tau: paths.jump(k, s, x, tau, weight))(*inputs))

    assert loops(False).count(" scan[") == 1
    assert loops(False).count("reverse=True") == 0
    assert loops(True).count("reverse=True") == 1
    assert "7,7]" not in loops(True)


@pytest.mark.parametrize("scheme", ["euler", "milstein"])
def test_steps_in_a_time_dependent_field(scheme):
    """dX = cos(t) dt + (1 + t) dW is Gaussian with variance ((1+t)^3 - (1+s)^3)/3: 6 standard errors, 2e-9 each, and a bias of 1/K."""
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
    assert np.abs(ends.var() - tau * 1.5**2) > 0.5  # what a frozen clock would give


@pytest.mark.parametrize("dim", [1, 2, 7, 40])
def test_solve(dim):
    """With a zero where the first pivot would be, and in a batch."""
    rng = np.random.default_rng(dim)
    matrices, vectors = rng.normal(size=(5, dim, dim)), rng.normal(size=(5, dim))
    matrices[:, 0, 0] = 0.0 if dim > 1 else 2.0
    got = jax.jit(jax.vmap(solve))(matrices, vectors)
    np.testing.assert_allclose(
        got, np.linalg.solve(matrices, vectors[..., None])[..., 0], rtol=1e-9
    )
