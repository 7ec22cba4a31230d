"""`Picard(pairs=True)`: no bias from noise inside a quadratic F, and coupled differences.

The equation u_t + u_xx/2 - c u^2 = 0 with u(1, x) = x has iterates that are polynomials in time
and space, so they are known.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import SIGMAS
from scasml import Picard, Problem
from scasml.estimators import _iterates
from scasml.estimators.base import jackknifed

C = 0.4
PROBLEM = Problem(
    dim=1, horizon=1.0, nonlinearity=lambda t, x, u, z: -C * u**2, terminal=lambda x: x[0]
)
X = 0.7


def test_the_jackknife_of_a_square_is_the_product_of_the_halves():
    a, b = jnp.array([0.3, -1.0]), jnp.array([0.7, 0.9])
    np.testing.assert_allclose(jackknifed(lambda z: z @ z, jnp.stack([a, b])), a @ b, rtol=1e-6)
    np.testing.assert_allclose(
        jackknifed(lambda z: 3 + 2 * z[0], jnp.stack([a, b])), 4.0, rtol=1e-6
    )


def iterate(n, s, x, nodes=8):
    """Return U_n from U_0 = 0, by quadratures that are exact."""
    if n == 0:
        return 0.0 * x
    times, w = np.polynomial.legendre.leggauss(nodes)
    ends, v = np.polynomial.hermite_e.hermegauss(nodes)
    total = x
    for time, weight in zip((1 + times) / 2 * (1 - s), w / 2 * (1 - s), strict=True):
        there = x[..., None] + np.sqrt(time) * ends
        total = total - weight * C * iterate(n - 1, s + time, there) ** 2 @ (v / v.sum())
    return total


@functools.cache
def answer(levels, replicates, **options):
    """Return the answer of `levels` levels of 4 samples."""
    return scasml.correct(
        PROBLEM,
        None,
        0.0,
        np.full(1, X),
        method=Picard(levels, 4, **options),
        replicates=replicates,
        with_gradient=False,
    )


def miss(got, levels):
    """Return the distance from the mean of the iterate, in standard errors."""
    return abs(got.value - iterate(levels, 0.0, np.asarray(X))) / got.stderr


def test_the_quadratures_are_exact():
    """U_2 = x - c (x^2 + 1/2)."""
    assert iterate(2, 0.0, np.asarray(X)) == pytest.approx(X - C * (X**2 + 0.5), rel=1e-12)
    np.testing.assert_allclose(
        iterate(3, 0.0, np.asarray(X), 8), iterate(3, 0.0, np.asarray(X), 12), rtol=1e-12
    )


@pytest.mark.parametrize("levels", [2, 3])
def test_pairs_have_the_mean_of_the_iterate(levels):
    assert miss(answer(levels, 20_000, pairs=True), levels) < SIGMAS


@pytest.mark.parametrize("levels", [2, 3])
def test_without_pairs_the_noise_causes_a_bias(levels):
    assert miss(answer(levels, 20_000), levels) > SIGMAS


def mean_of_halves(f, halves):
    """A wrong jackknife: F of the mean alone."""
    return f(jax.tree.map(lambda a: a.mean(0), halves))


def half_the_difference(right):
    """A wrong coupling: half of the difference of the iterates."""
    return lambda *arguments: (0.5 * right(*arguments)[0], right(*arguments)[1])


def one_stream(right):
    """Wrong streams: both halves use the same samples."""
    return lambda *arguments, **options: jax.tree.map(
        lambda a: a.at[1::2].set(a[::2]), right(*arguments, **options)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "plant"),
    [
        (_iterates, "jackknifed", lambda right: mean_of_halves),
        (_iterates.Iterates, "_coupled", half_the_difference),
        (_iterates.Iterates, "_parts", one_stream),
    ],
    ids=["jackknife", "coupling", "streams"],
)
@pytest.mark.usefixtures("programs_anew")
def test_planted_faults_are_seen(owner, name, plant, monkeypatch):
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    problem = Problem(
        dim=1, horizon=1.0, nonlinearity=lambda t, x, u, z: -C * u**2, terminal=lambda x: x[0]
    )
    got = scasml.correct(
        problem,
        None,
        0.0,
        np.full(1, X),
        method=Picard(3, 4, pairs=True),
        replicates=20_000,
        with_gradient=False,
    )
    assert miss(got, 3) > SIGMAS


def test_coupling_removes_noise():
    """It removes at least a third of the variance of level 2, whose iterates are coupled."""
    levels = [answer(3, 20_000, pairs=pairs).levels[0] for pairs in (False, True)]
    independent, coupled = (each.variance[..., -1] for each in levels)
    assert np.all(coupled < 0.67 * independent)


def test_pairs_of_z():
    """With F = -c |z|^2, two levels are E g - c E int |z_1|^2, where z_1 = 2 x is known."""
    problem = Problem(
        dim=1, horizon=1.0, nonlinearity=lambda t, x, u, z: -C * z @ z, terminal=lambda x: x[0] ** 2
    )
    got = scasml.correct(
        problem,
        None,
        0.0,
        np.full(1, X),
        method=Picard(2, 4, pairs=True),
        replicates=20_000,
        with_gradient=False,
    )
    exact = X**2 + 1 - C * 4 * (X**2 + 0.5)
    assert abs(got.value - exact) < SIGMAS * got.stderr
