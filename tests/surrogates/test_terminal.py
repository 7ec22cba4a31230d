"""g where paths end, turned toward the one direction that g varies along."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml.surrogates.terminal import DRAWS, Base, _leading, along, directions, turned

DIM, SIGMA, TAU = 30, 0.8, 0.7


def ridge(axis, sigma=SIGMA, drift=0.0):
    return scasml.Problem(
        dim=DIM,
        horizon=1.0,
        drift=drift,
        diffusion=sigma,
        nonlinearity=lambda t, x, u, z: u - u**3,
        terminal=lambda x: jnp.sin(jnp.asarray(axis, x.dtype) @ x),
    )


def smoothed(axis, sigma, drift, x):
    """E sin(a . X_T) for X_T = x + mu tau + sigma sqrt(tau) xi."""
    spread = axis @ (np.asarray(sigma) * np.eye(DIM)) if np.ndim(sigma) < 2 else axis @ sigma
    return np.exp(-0.5 * TAU * spread @ spread) * np.sin(axis @ (x + drift * TAU))


class TestAlong:
    @pytest.mark.parametrize("dim", [1, 2, 5, 100])
    @pytest.mark.parametrize("count", [1, 4])
    def test_moments(self, dim, count):
        """Along the axis those of a normal number up to the degree of Gauss, 4K - 3; across it the length of a normal vector."""
        rng = np.random.default_rng(0)
        axis = rng.normal(size=dim)
        axis /= np.linalg.norm(axis)
        draws, weights = along(axis, directions(dim, count, 0))
        assert weights.sum() == pytest.approx(1.0, abs=1e-6)
        count = len(draws)  # no more than there are dimensions
        for power in range(2, 4 * count - 2, 2):
            expected = np.prod(np.arange(power - 1.0, 0, -2))
            assert weights @ (draws @ axis) ** power == pytest.approx(expected, rel=1e-4)
        across = draws - np.outer(draws @ axis, axis)
        np.testing.assert_allclose(np.sum(across**2, 1), dim - 1, rtol=1e-4, atol=1e-6)


class TestTurned:
    @pytest.mark.parametrize("kind", ["scalar", "diagonal", "full", "drift"])
    def test_of_one_direction_it_is_the_mean(self, kind):
        """To float32, whatever the direction; equal draws are off by far more."""
        rng = np.random.default_rng(1)
        axis, x = rng.normal(size=DIM) / np.sqrt(DIM), rng.normal(size=DIM)
        sigma = {
            "diagonal": rng.uniform(0.5, 1.0, DIM),
            "full": 0.3 * np.eye(DIM) + 0.1 * rng.normal(size=(DIM, DIM)),
        }.get(kind, SIGMA)
        drift = rng.normal(size=DIM) if kind == "drift" else np.zeros(DIM)
        problem = ridge(axis, sigma, drift)
        exact = smoothed(axis, sigma, drift, x)
        value = lambda base: float(base(jnp.asarray(1 - TAU), jnp.asarray(x, jnp.float32)))
        base = turned(problem)
        assert base.weights is not None
        assert abs(value(base) - exact) < 1e-5
        assert abs(value(Base(problem, directions(DIM, DRAWS, 0))) - exact) > 1e-3

    @pytest.mark.parametrize("dim", [1, 2, 3])
    def test_in_few_dimensions(self, dim):
        """In one it is all that there is; in more the mean over the rest is as crude as ever."""
        problem = scasml.Problem(
            dim=dim,
            horizon=1.0,
            diffusion=SIGMA,
            nonlinearity=lambda t, x, u, z: u - u**3,
            terminal=lambda x: jnp.sin(x[0]),
        )
        base = turned(problem)
        assert base.draws.shape == (DRAWS, dim)
        value = float(base(jnp.asarray(1 - TAU), jnp.full(dim, 0.3)))
        assert abs(value - np.exp(-0.5 * TAU * SIGMA**2) * np.sin(0.3)) < 1e-6

    def test_it_ends_in_g(self):
        axis = np.ones(DIM) / np.sqrt(DIM)
        base, x = turned(ridge(axis)), jnp.linspace(-1.0, 1.0, DIM)
        assert float(base(jnp.asarray(1.0), x)) == float(jnp.sin(jnp.asarray(axis, x.dtype) @ x))

    def test_not_where_no_direction_leads(self):
        for problem in (scasml.problems.hjb(DIM), scasml.problems.allen_cahn(DIM)):
            assert turned(problem).weights is None

    def test_not_where_slopes_are_not_finite(self):
        problem = scasml.Problem(
            dim=3,
            horizon=1.0,
            diffusion=1.0,
            nonlinearity=lambda t, x, u, z: u - u**3,
            terminal=lambda x: jnp.sqrt(jnp.sum(x)),  # of a negative number
            x0=np.ones(3),
        )
        assert turned(problem).weights is None

    def test_the_numbers_of_g_count(self):
        """Two problems of one structure have each its own direction: nothing is remembered of the first."""
        first, second = (turned(ridge(np.eye(DIM)[k])) for k in (0, 1))
        assert abs(first.draws[1, 0]) > 1
        assert abs(second.draws[1, 0]) < abs(second.draws[1, 1])


def test_a_correction_from_it():
    """Reaction that vanishes on the solution: `auto` needs no network to be right to 1e-6."""
    problem = scasml.problems.diffusion_reaction(20)
    x = np.linspace(-0.3, 0.3, 20)
    got = scasml.correct(problem, None, 0.0, x, rtol=1e-5, with_gradient=False)
    assert got.choices[0].control == "g where paths end"
    assert abs(got.value - problem.exact(0.0, x)) < 1e-5


def test_the_leading_direction():
    """That of a singular value decomposition, where the first has more than half of the squares; the rows are noise but for that."""
    rows = np.random.default_rng(0).normal(size=(64, DIM)) + np.outer(
        np.linspace(-4, 4, 64), np.arange(DIM) / DIM
    )
    want = np.linalg.svd(rows)[2][0]
    assert abs(_leading(rows) @ want) > 1 - 1e-9
    assert np.all(_leading(np.zeros((3, DIM))) == 0)
