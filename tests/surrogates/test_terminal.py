"""The smoothed g, with a Gauss-Hermite rule along the main direction of g."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml.surrogates.terminal import (
    DRAWS,
    SmoothedTerminal,
    _main_direction,
    directions,
    gauss_hermite_draws,
    smoothed_terminal,
)

DIM, SIGMA, TAU = 30, 0.8, 0.7


def ridge(axis, sigma=SIGMA, drift=0.0):
    """Return a problem whose g(x) = sin(a . x) varies along one direction."""
    return scasml.Problem(
        dim=DIM,
        horizon=1.0,
        drift=drift,
        diffusion=sigma,
        nonlinearity=lambda t, x, u, z: u - u**3,
        terminal=lambda x: jnp.sin(jnp.asarray(axis, x.dtype) @ x),
    )


def exact_mean(axis, sigma, drift, x):
    """Return E sin(a . X_T) for X_T = x + mu tau + sigma sqrt(tau) xi."""
    spread = axis @ (np.asarray(sigma) * np.eye(DIM)) if np.ndim(sigma) < 2 else axis @ sigma
    return np.exp(-0.5 * TAU * spread @ spread) * np.sin(axis @ (x + drift * TAU))


class TestGaussHermiteDraws:
    @pytest.mark.parametrize("dim", [1, 2, 5, 100])
    @pytest.mark.parametrize("count", [1, 4])
    def test_moments(self, dim, count):
        """Moments along the axis are those of a normal number, up to the degree 4K - 3 of the rule.

        The squared length across the axis is the mean of that of a normal vector.
        """
        rng = np.random.default_rng(0)
        axis = rng.normal(size=dim)
        axis /= np.linalg.norm(axis)
        draws, weights = gauss_hermite_draws(axis, directions(dim, count, 0))
        assert weights.sum() == pytest.approx(1.0, abs=1e-6)
        count = len(draws)  # at most the number of dimensions
        for power in range(2, 4 * count - 2, 2):
            expected = np.prod(np.arange(power - 1.0, 0, -2))
            assert weights @ (draws @ axis) ** power == pytest.approx(expected, rel=1e-4)
        across = draws - np.outer(draws @ axis, axis)
        np.testing.assert_allclose(np.sum(across**2, 1), dim - 1, rtol=1e-4, atol=1e-6)


class TestSmoothedTerminal:
    @pytest.mark.parametrize("kind", ["scalar", "diagonal", "full", "drift"])
    def test_it_is_the_mean_if_g_varies_along_one_direction(self, kind):
        """The error is that of float32; with equal weights it is at least 100 times larger."""
        rng = np.random.default_rng(1)
        axis, x = rng.normal(size=DIM) / np.sqrt(DIM), rng.normal(size=DIM)
        sigma = {
            "diagonal": rng.uniform(0.5, 1.0, DIM),
            "full": 0.3 * np.eye(DIM) + 0.1 * rng.normal(size=(DIM, DIM)),
        }.get(kind, SIGMA)
        drift = rng.normal(size=DIM) if kind == "drift" else np.zeros(DIM)
        problem = ridge(axis, sigma, drift)
        exact = exact_mean(axis, sigma, drift, x)
        value = lambda model: float(model(jnp.asarray(1 - TAU), jnp.asarray(x, jnp.float32)))
        model = smoothed_terminal(problem)
        assert model.weights is not None
        assert abs(value(model) - exact) < 1e-5
        assert abs(value(SmoothedTerminal(problem, directions(DIM, DRAWS, 0))) - exact) > 1e-3

    @pytest.mark.parametrize("dim", [1, 2, 3])
    def test_fewer_dimensions_than_draws(self, dim):
        """The directions are repeated, so that each node of the rule has one."""
        problem = scasml.Problem(
            dim=dim,
            horizon=1.0,
            diffusion=SIGMA,
            nonlinearity=lambda t, x, u, z: u - u**3,
            terminal=lambda x: jnp.sin(x[0]),
        )
        model = smoothed_terminal(problem)
        assert model.draws.shape == (DRAWS, dim)
        value = float(model(jnp.asarray(1 - TAU), jnp.full(dim, 0.3)))
        assert abs(value - np.exp(-0.5 * TAU * SIGMA**2) * np.sin(0.3)) < 1e-6

    def test_it_is_g_at_the_horizon(self):
        axis = np.ones(DIM) / np.sqrt(DIM)
        model, x = smoothed_terminal(ridge(axis)), jnp.linspace(-1.0, 1.0, DIM)
        assert float(model(jnp.asarray(1.0), x)) == float(jnp.sin(jnp.asarray(axis, x.dtype) @ x))

    def test_equal_weights_without_a_main_direction(self):
        for problem in (scasml.problems.hjb(DIM), scasml.problems.allen_cahn(DIM)):
            assert smoothed_terminal(problem).weights is None

    def test_equal_weights_if_a_slope_is_not_finite(self):
        problem = scasml.Problem(
            dim=3,
            horizon=1.0,
            diffusion=1.0,
            nonlinearity=lambda t, x, u, z: u - u**3,
            terminal=lambda x: jnp.sqrt(jnp.sum(x)),  # NaN at some ends of paths
            x0=np.ones(3),
        )
        assert smoothed_terminal(problem).weights is None

    def test_the_direction_is_not_cached_by_structure(self):
        """Two problems with the same code and other numbers have different main directions."""
        first, second = (smoothed_terminal(ridge(np.eye(DIM)[k])) for k in (0, 1))
        assert abs(first.draws[1, 0]) > 1
        assert abs(second.draws[1, 0]) < abs(second.draws[1, 1])


def test_a_correction_that_starts_from_it():
    """The reaction vanishes on the solution, so `auto` reaches rtol=1e-5 without a network."""
    problem = scasml.problems.diffusion_reaction(20)
    x = np.linspace(-0.3, 0.3, 20)
    got = scasml.correct(problem, None, 0.0, x, rtol=1e-5, with_gradient=False)
    assert got.choices[0].start == "smoothed g"
    assert abs(got.value - problem.exact(0.0, x)) < 1e-5


def test_the_main_direction():
    """It is that of a singular value decomposition, for rows with one dominant direction."""
    rows = np.random.default_rng(0).normal(size=(64, DIM)) + np.outer(
        np.linspace(-4, 4, 64), np.arange(DIM) / DIM
    )
    expected = np.linalg.svd(rows)[2][0]
    assert abs(_main_direction(rows) @ expected) > 1 - 1e-9
    assert np.all(_main_direction(np.zeros((3, DIM))) == 0)
