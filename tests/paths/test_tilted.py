"""Tests of `Tilted`: the formula of a step, coarse paths, the order of convergence, and weights."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import SIGMAS
from scasml import GeometricBrownian, OrnsteinUhlenbeck
from scasml.paths import Gaussian, General, Tilted

pytestmark = pytest.mark.usefixtures("x64")

DYNAMICS = {
    "gaussian": Gaussian(0.2, np.array([0.7, 0.5])),
    "geometric": GeometricBrownian(0.1, 0.4),
    "relaxing": OrnsteinUhlenbeck(1.0, 0.5, 0.6),
    "general": General(lambda t, x: -0.3 * x, lambda t, x: 0.5 + 0.1 * jnp.sin(x)),
}
X, TAU = np.array([0.9, 1.2]), 0.8


def tilt(t, x):
    """Return an additional drift v and a potential a that depend on t and x."""
    return jnp.sin(2 * x[::-1]) - 0.5 * t * x, jnp.cos(x[0] - x[1]) + 0.3 * t


def paths_of(name, steps, tilt=tilt, coarse=False):
    return Tilted(dynamics=DYNAMICS[name], tilt=tilt, scheme="euler", steps=steps, coarse=coarse)


def literal(name, steps, noise, x, tau):
    """Return X at the end and the growth, by the formula in the docstring of the module."""
    dynamics, h, t, growth = DYNAMICS[name], tau / steps, 0.0, 0.0
    v, a = tilt(t, x)
    for xi in noise:
        y = x + h / 2 * v
        if dynamics.exact is not None:
            y = dynamics.exact.move(xi[None], t, y, jnp.asarray(h), False).x
        else:
            y = y + h * dynamics.drift(t, y) + jnp.sqrt(h) * dynamics.diffusion(t, y) * xi
        t = t + h
        v_next, a_next = tilt(t, y + h / 2 * v)
        x, growth = y + h / 2 * v_next, growth + h / 2 * (a + a_next)
        v, a = v_next, a_next
    return x, growth


@pytest.mark.parametrize("name", DYNAMICS)
def test_formula_on_fine_and_coarse_paths(name):
    """Coarse paths use sums of the same Brownian increments. `coarse` is traced."""
    noise = np.random.default_rng(0).normal(size=(6, 2))
    move = jax.jit(
        lambda coarse: paths_of(name, 6, coarse=coarse).move(
            noise, jnp.zeros(()), X, jnp.asarray(TAU), False
        )
    )
    pairs = (noise[0::2] + noise[1::2]) / np.sqrt(2)
    for coarse, steps, step_noise in ((False, 6, noise), (True, 3, pairs)):
        end, growth = literal(name, steps, step_noise, X, TAU)
        np.testing.assert_allclose(move(coarse).x, end, rtol=1e-12)
        np.testing.assert_allclose(move(coarse).growth, growth, rtol=1e-12)


def moments(name, steps, count=2**15):
    """Return E e^growth f(X) for three functions f.

    Every number of steps uses the same Brownian increments, so differences show the step bias.
    """
    finest = np.random.default_rng(1).normal(size=(count, 16, 2))
    finest = np.concatenate([finest, -finest])
    noise = finest.reshape(2 * count, steps, 16 // steps, 2).sum(2) / np.sqrt(16 // steps)

    def one(noise):
        jump = paths_of(name, steps).move(
            noise, jnp.zeros(()), jnp.asarray(X), jnp.asarray(TAU), False
        )
        return jump.carry(jnp.stack([jnp.ones(()), jump.x[0], jnp.sum(jump.x**2)]))

    return np.asarray(jax.lax.map(jax.jit(one), jnp.asarray(noise), batch_size=4096)).mean(0)


@pytest.mark.parametrize("name", ["gaussian", "geometric", "relaxing"])
def test_step_bias_is_of_second_order(name):
    """Each time the number of steps doubles, the moments change by about a quarter as much.

    Under a scheme of first order they would change by about half as much.
    """
    values = [moments(name, steps) for steps in (2, 4, 8, 16)]
    first, second, third = (np.linalg.norm(a - b) for a, b in itertools.pairwise(values))
    assert 3 < first / second < 6
    assert 3 < second / third < 6


def test_constant_tilt_is_exact():
    paths = Tilted(
        dynamics=DYNAMICS["gaussian"],
        tilt=lambda t, x: (jnp.array([0.3, -0.1]), jnp.asarray(0.4)),
        scheme="euler",
        steps=2,
    )
    noise = np.random.default_rng(0).normal(size=(2, 2))
    jump = paths.move(noise, jnp.zeros(()), X, jnp.asarray(TAU), True)
    walk = np.sqrt(TAU / 2) * noise.sum(0)
    sigma = np.array([0.7, 0.5])
    np.testing.assert_allclose(
        jump.x, X + TAU * (0.2 + np.array([0.3, -0.1])) + sigma * walk, rtol=1e-12
    )
    np.testing.assert_allclose(jump.growth, 0.4 * TAU, rtol=1e-12)
    np.testing.assert_allclose(jump.weight, walk / TAU, rtol=1e-12)


def check_weights(name, count=400_000):
    """sigma^T grad E e^growth f(X) by weights agrees with the derivative along the paths.

    The difference is at most 6 standard errors plus the step bias of the weights, of order 1/steps.
    """
    f = lambda jump: jump.carry(jnp.sin(jump.x[0]) + 0.3 * jnp.sum(jump.x**2))
    paths, sigma = paths_of(name, 32), DYNAMICS[name].diffusion(jnp.zeros(()), jnp.asarray(X))

    def one(noise):
        along = lambda x: f(paths.move(noise, jnp.zeros(()), x, jnp.asarray(TAU), False))
        value, slope = jax.value_and_grad(along)(jnp.asarray(X))
        jump = paths.move(noise, jnp.zeros(()), jnp.asarray(X), jnp.asarray(TAU), True)
        return (value - 1.5) * jump.weight + value * jump.lift, sigma * slope

    noise = np.random.default_rng(2).normal(size=(count // 2, 32, 2))
    noise = jnp.asarray(np.concatenate([noise, -noise]))
    weighed, derived = (np.asarray(a) for a in jax.lax.map(jax.jit(one), noise, batch_size=8192))
    difference = (weighed - derived).reshape(2, -1, 2).mean(0)
    slack = 0.02 * np.abs(derived.mean(0)).max()
    assert np.all(
        np.abs(difference.mean(0)) < SIGMAS * difference.std(0) / np.sqrt(len(difference)) + slack
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", DYNAMICS)
def test_weights(name):
    check_weights(name)


@pytest.mark.slow
def test_weights_that_forget_the_growth(monkeypatch):
    """`check_weights` fails if the lift, the derivative of the growth, is left out."""
    right = Tilted.move

    def move(self, noise, s, x, duration, weight):
        jump = right(self, noise, s, x, duration, weight)
        return jump._replace(lift=jnp.zeros(2)) if weight else jump

    monkeypatch.setattr(Tilted, "move", move)
    with pytest.raises(AssertionError):
        check_weights("gaussian")
