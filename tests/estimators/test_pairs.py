"""Picard(pairs=True): what the noise of U does inside a quadratic F is taken off, and the linear part of a difference cancels.

u_t + u_xx/2 - c u^2 = 0 with u(1, x) = x has iterates that are polynomials in time and space, so they are known.
"""

import functools

import numpy as np
import pytest

import scasml
from helpers import SIGMAS
from scasml import Picard, Problem
from scasml._planning.auto import controls
from scasml.estimators import _iterates as iterates

C = 0.4
PROBLEM = Problem(
    dim=1, horizon=1.0, nonlinearity=lambda t, x, u, z: -C * u**2, terminal=lambda x: x[0]
)
X = 0.7


def iterate(n, s, x, nodes=8):
    """U_n from U_0 = 0, by quadratures that are exact."""
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
    return abs(got.value - iterate(levels, 0.0, np.asarray(X))) / got.stderr


def test_the_quadratures_are_exact():
    """U_2 = x - c (x^2 + 1/2)."""
    assert iterate(2, 0.0, np.asarray(X)) == pytest.approx(X - C * (X**2 + 0.5), rel=1e-12)
    np.testing.assert_allclose(
        iterate(3, 0.0, np.asarray(X), 8), iterate(3, 0.0, np.asarray(X), 12), rtol=1e-12
    )


@pytest.mark.parametrize("levels", [2, 3])
def test_they_have_the_mean_of_the_iterate(levels):
    assert miss(answer(levels, 20_000, pairs=True), levels) < SIGMAS


@pytest.mark.parametrize("levels", [2, 3])
def test_without_pairs_noise_inside_biases_it(levels):
    assert miss(answer(levels, 20_000), levels) > SIGMAS


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["jackknife", "coupling", "streams"])
@pytest.mark.usefixtures("programs_anew")
def test_planted_faults(fault, monkeypatch):
    """F of the mean alone; a difference from iterates with a wrong share; one stream for both halves."""
    if fault == "jackknife":
        wrong = lambda equation, r, x, halves: equation.difference(
            r, x, iterates.Solution(*(a.mean(0) for a in halves)), iterates._nothing(r, x)
        )
        monkeypatch.setattr(iterates, "_jackknifed", wrong)
    elif fault == "coupling":
        right = iterates.Iterates._coupled
        wrong = lambda *a: tuple(
            part * share for part, share in zip(right(*a), (0.5, 1), strict=True)
        )
        monkeypatch.setattr(iterates.Iterates, "_coupled", wrong)
    else:
        right = iterates.Iterates._parts
        both = lambda *a, **k: iterates.Solution(*(b.at[1::2].set(b[::2]) for b in right(*a, **k)))
        monkeypatch.setattr(iterates.Iterates, "_parts", both)
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


def test_coupling_takes_noise_off():
    """Of level 2, F(U_2) - F(U_1), whose iterates would be drawn apart: at least a third of its variance."""
    levels = [answer(3, 20_000, pairs=pairs).levels[0] for pairs in (False, True)]
    apart, coupled = (each.variance[..., -1] for each in levels)
    assert np.all(coupled < 0.67 * apart)


def test_z_too():
    """With |z|^2 in F: u = x^2/(1 + ...) is not needed, two levels are E g - c E int |z_1|^2 with z_1 = 2 x, known."""
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


@pytest.mark.slow
def test_tiles_of_one_sample_end_in_no_segmentation_fault():
    """They did, for three levels of 16 about g where paths end: see `means.mean`."""
    problem = scasml.problems.hjb(6)
    start = controls(problem, None, None)[0]
    assert start.name == "g where paths end"
    method = Picard(3, 16, pairs=True)
    got = scasml.correct(
        problem, start.model, 0.0, np.full(6, 0.2), method=method, replicates=4, with_gradient=False
    )
    assert np.isfinite(got.value)
