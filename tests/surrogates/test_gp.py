"""The Gaussian process surrogate: covariances, the fit, the fitted function and its errors."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scasml import Problem, ScasmlError, problems
from scasml._equations.generator import Generator
from scasml._support.precision import use_dtype
from scasml.surrogates import GaussianProcess, gp
from scasml.surrogates._gp import kernels, sparse

DIM = 3
FLOAT64 = np.dtype(np.float64)


def by_autodiff(kernel, a, b, y, other):
    """Apply observation `b` to the kernel at the point `other`, then `a` at y = (t, x)."""

    def measure(which, function, at):
        if which == kernels.Observation.VALUE:
            return function(at)
        if which == kernels.Observation.LAPLACIAN:
            return jnp.trace(jax.hessian(function)(at)[1:, 1:])
        gradient = jax.grad(function)(at)
        return gradient[0] if which == kernels.Observation.TIME else jnp.sum(gradient[1:])

    phi = lambda y, o: kernel.derivatives(jnp.sum((y - o) ** 2))[0]
    return measure(a, lambda y: measure(b, lambda o: phi(y, o), other), y)


MATRIX = 0.5 * np.eye(4) + np.tri(4, k=-1) / 5
SAMPLE_POINTS = np.random.default_rng(0).normal(size=(2, 5, 1 + DIM))


@functools.cache
def exact_blocks(kernel_type, width):
    """The covariances of all pairs of observations at SAMPLE_POINTS, by autodiff."""
    kernel = kernel_type(width)
    pairs = lambda y, o: [by_autodiff(kernel, a, b, y, o) for a in range(4) for b in range(4)]
    table = jax.jit(jax.vmap(jax.vmap(pairs, (None, 0)), (0, None)))(*SAMPLE_POINTS)
    return [np.asarray(block) for block in table]


def largest_error(kernel):
    """The largest error of the closed forms, relative to the largest entry of each block.

    A block holds the covariances of one pair of observations.
    """
    left, right = (kernels.Points(v[:, 0], v[:, 1:]) for v in SAMPLE_POINTS)
    unit = [np.broadcast_to(np.eye(4)[a], (5, 4)) for a in range(4)]
    # The function without jit, which is traced anew and so sees a patched table.
    covariance = kernels.covariance.__wrapped__
    closed = jax.jit(
        lambda: [
            covariance(kernel, left, right, unit[a], unit[b]) for a in range(4) for b in range(4)
        ]
    )()
    exact = exact_blocks(type(kernel), kernel.width)
    return max(
        np.max(np.abs(c - e)) / np.max(np.abs(e)) for c, e in zip(closed, exact, strict=True)
    )


class Rational(kernels.Gaussian):
    """The kernel phi(s) = 1 / (1 + s / width^2), since the table holds for any phi."""

    def derivatives(self, s):
        base, c = 1 + s / self.width**2, 1 / self.width**2
        return (
            1 / base,
            -c / base**2,
            2 * c**2 / base**3,
            -6 * c**3 / base**4,
            24 * c**4 / base**5,
        )


class TestKernels:
    @pytest.mark.parametrize("kernel", [kernels.Gaussian(1.3), Rational(1.3)])
    def test_matches_autodiff(self, x64, kernel):
        assert largest_error(kernel) < 1e-12

    @pytest.mark.parametrize("at", [(1, 1), (2, 3), (3, 3)])
    def test_wrong_sign_is_detected(self, x64, monkeypatch, at):
        original = kernels.operator_products

        def wrong(*args):
            table = original(*args)
            table[at[0]][at[1]] = -table[at[0]][at[1]]
            return table

        monkeypatch.setattr(kernels, "operator_products", wrong)
        assert largest_error(kernels.Gaussian(1.3)) > 0.1

    @pytest.mark.parametrize("count", [6, kernels.ROWS_PER_BLOCK + 3])
    def test_observations_equal_covariances_times_weights(self, x64, count):
        """With one block of rows, and with a last block that is not full."""
        rng = np.random.default_rng(1)
        points = kernels.Points(rng.normal(size=count), rng.normal(size=(count, DIM)))
        weights, kernel = rng.normal(size=(count, 4)), kernels.Gaussian(1.1)
        got = kernels.observations(kernel, points, points, weights)
        for a in range(4):
            unit = np.broadcast_to(np.eye(4)[a], (count, 4))
            want = kernels.covariance(kernel, points, points, unit, weights).sum(1)
            np.testing.assert_allclose(got[:, a], want, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def burgers():
    return problems.burgers(4, 0.5)


@pytest.fixture(scope="module")
def fitted(burgers):
    return gp(burgers, interior=120, boundary=30, nugget=1e-8)


def residual(problem, surrogate, t, x):
    """u_t + L u + F of a surrogate, in float64."""
    with use_dtype(FLOAT64):
        generator = Generator(problem, surrogate)

        def one(t, x):
            u, z, generated = generator(t, x, jax.random.key(0))
            return generated + problem.nonlinearity(t, x, u, z)

        return np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(t), jnp.asarray(x)))


def values(surrogate, t, x, dtype=np.float64):
    """The values of a surrogate at points, computed in `dtype`."""
    with use_dtype(np.dtype(dtype)):
        return np.asarray(
            jax.jit(jax.vmap(surrogate))(jnp.asarray(t, dtype), jnp.asarray(x, dtype))
        )


def draw_inside(problem, count=200, seed=7):
    """Random points of the domain of the problem."""
    with use_dtype(FLOAT64):
        draw = lambda key: problem.domain.draw(key, problem.dim, problem.horizon)
        t, x = jax.vmap(draw)(jax.random.split(jax.random.key(seed), count))
        return np.asarray(t), np.asarray(x)


class TestFit:
    @pytest.mark.parametrize("preset", [pytest.param("default", marks=pytest.mark.slow), "paper"])
    def test_terminal_values(self, burgers, preset):
        surrogate = gp(burgers, interior=60, boundary=20, nugget=1e-8, preset=preset)
        assert (surrogate.draws is None) == (preset == "paper")
        x = surrogate.x[60:]
        exact = burgers.exact(burgers.horizon, x)
        np.testing.assert_allclose(
            values(surrogate, np.full(20, burgers.horizon), x), exact, atol=1e-4
        )

    def test_pde_holds_at_interior_points(self, burgers, fitted):
        at = residual(burgers, fitted, fitted.t[:120] / fitted.clock, fitted.x[:120])
        without_fit = residual(
            burgers, offset_of(fitted), fitted.t[:120] / fitted.clock, fitted.x[:120]
        )
        assert np.abs(at).max() < 1e-4 * np.abs(without_fit).max()

    def test_converges_and_improves_on_the_offset(self, burgers, fitted):
        record = dict(fitted.record)
        assert record["gradient"] < 1e-5
        assert record["steps"] < 20
        assert record["cpu_seconds"] > 0
        t, x = draw_inside(burgers)
        exact = burgers.exact(t, x)
        error = np.linalg.norm(values(fitted, t, x) - exact)
        assert error < 0.3 * np.linalg.norm(values(offset_of(fitted), t, x) - exact)

    @pytest.mark.slow
    def test_linear_problem_takes_one_step(self):
        surrogate = gp(
            problems.convection_diffusion(5), interior=60, boundary=20, preset="paper", nugget=1e-6
        )
        assert surrogate.record["steps"] == 1

    @pytest.mark.slow
    def test_reaction_without_z(self):
        problem = problems.diffusion_reaction(4, frequency=0.5)
        surrogate = gp(problem, interior=100, boundary=30)
        t, x = draw_inside(problem)
        exact = problem.exact(t, x)
        assert np.linalg.norm(values(surrogate, t, x) - exact) < 0.05 * np.linalg.norm(exact)

    def test_least_norm(self, x64):
        """The gradient of b^T K^-1 b by the free observations, by autodiff, is zero at the fit."""
        problem, m = problems.burgers(2, 1.0), 6
        surrogate = gp(
            problem,
            interior=m,
            boundary=4,
            preset="paper",
            tolerance=1e-10,
            nugget=1e-6,
            iterations=100,
        )
        points, n = kernels.Points(surrogate.t, surrogate.x), m + 4
        unit = [np.broadcast_to(np.eye(4)[a], (n, 4)) for a in range(4)]
        kernel = kernels.Gaussian(surrogate.width)
        cov = lambda a, b: np.asarray(kernels.covariance(kernel, points, points, unit[a], unit[b]))
        used = np.concatenate([np.arange(n), *(k * n + np.arange(m) for k in (1, 2, 3))])
        matrix = np.block([[cov(a, b) for b in range(4)] for a in range(4)])[np.ix_(used, used)]
        matrix += 1e-6 * np.diag(np.diag(matrix))
        inverse, g = np.linalg.inv(matrix), problem.exact(problem.horizon, surrogate.x[m:])
        speed = 1 / 2 + 1 / 2

        def loss(free):
            u, laplacian, total = free
            u_t = speed * total - laplacian / 2 - u * total
            b = jnp.concatenate([u, jnp.asarray(g), laplacian, u_t / surrogate.clock, total])
            return b @ inverse @ b

        b = matrix @ surrogate.weights.T.reshape(-1)[used]
        free = jnp.stack([b[:m], b[n : n + m], b[n + 2 * m :]])
        assert float(jnp.linalg.norm(jax.grad(loss)(free))) < 1e-5
        assert float(jnp.linalg.norm(jax.grad(loss)(0.99 * free))) > 1e-3

    def test_sparse_agrees_with_dense(self, burgers):
        dense, iterative = (
            gp(burgers, interior=250, boundary=50, factor=f) for f in ("dense", "sparse")
        )
        assert dict(iterative.record)["products"] > 0
        t, x = draw_inside(burgers)
        np.testing.assert_allclose(values(iterative, t, x), values(dense, t, x), atol=1e-6)

    @pytest.mark.slow
    def test_preconditioner_is_reused_in_later_steps(self, burgers, monkeypatch):
        """With 10 landmarks for 80 points, solves take many products, and later ones take more."""
        calls, original = [], sparse.nystrom_inverse

        def counted(*args):
            calls.append(1)
            return original(*args)

        monkeypatch.setattr(sparse, "LANDMARKS", 10)
        monkeypatch.setattr(sparse, "nystrom_inverse", counted)
        record = gp(burgers, interior=60, boundary=20, factor="sparse").record
        assert 1 <= len(calls) < record["steps"]

    @pytest.mark.slow
    def test_points_along_paths_without_a_domain(self):
        problem = Problem(dim=2, horizon=1.0, terminal=lambda x: jnp.sum(x * x), x0=[3.0, 3.0])
        surrogate = gp(problem, interior=80, boundary=20)
        assert abs(float(surrogate.x.mean()) - 3.0) < 1.0
        u = values(surrogate, np.zeros(1), np.full((1, 2), 3.0))
        np.testing.assert_allclose(u, 18.0 + 2.0, rtol=0.02)


def offset_of(fitted):
    """The same surrogate with all weights zero: its offset alone."""
    return dataclasses.replace(fitted, weights=0 * fitted.weights)


class TestSparse:
    def sample(self):
        rng = np.random.default_rng(3)
        points = kernels.Points(rng.normal(size=40), rng.normal(size=(40, DIM)))
        return kernels.Gaussian(1.0), points, rng.normal(size=(40, 4))

    @pytest.mark.parametrize("landmarks", [40, 10])
    def test_approximation_has_the_diagonal_of_the_matrix(self, x64, monkeypatch, landmarks):
        """With every point as a landmark, the approximation is the matrix itself."""
        kernel, points, a = self.sample()
        noise = np.full(40, 1e-6)
        matrix = np.asarray(kernels.covariance(kernel, points, points, a, a)) + np.diag(noise)
        monkeypatch.setattr(sparse, "LANDMARKS", landmarks)
        inverse = sparse.nystrom_inverse(kernel, points, a, noise)
        approximation = np.linalg.inv(np.stack([inverse(e) for e in np.eye(40)], 1))
        np.testing.assert_allclose(np.diag(approximation), np.diag(matrix), rtol=1e-3)
        if landmarks == 40:
            np.testing.assert_allclose(approximation, matrix, atol=1e-3)


class TestProcess:
    @pytest.mark.parametrize("sigma", ["one number", "a matrix"])
    def test_generator_matches_the_hessian(self, burgers, fitted, sigma):
        """The closed form applies if sigma is one number; with a matrix it does not."""
        equation = (
            burgers
            if sigma == "one number"
            else Problem(dim=4, horizon=0.5, terminal=jnp.sum, diffusion=MATRIX)
        )
        t, x = draw_inside(burgers, 5)
        with use_dtype(FLOAT64):
            generator = Generator(equation, fitted)
            at = lambda t, x: generator(t, x, jax.random.key(0))
            u, z, generated = jax.jit(jax.vmap(at))(t, x)
            both = lambda t, x: (
                jax.value_and_grad(fitted, (0, 1))(t, x),
                jax.hessian(fitted, 1)(t, x),
            )
            (value, (u_t, slope)), hessian = jax.tree.map(np.asarray, jax.jit(jax.vmap(both))(t, x))
        assert generator.route == ("closed" if sigma == "one number" else "ito")
        matrix = 0.5 * np.eye(4) if sigma == "one number" else MATRIX
        want = (
            u_t
            + slope @ np.broadcast_to(equation.dynamics.mu, 4)
            + 0.5 * np.einsum("ab,cb,nac->n", matrix, matrix, hessian)
        )
        np.testing.assert_allclose(u, value, rtol=1e-9)
        np.testing.assert_allclose(z, slope @ matrix, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(generated, want, rtol=1e-6, atol=1e-7)

    @pytest.mark.slow
    def test_float32_is_accurate(self):
        problem = problems.burgers(20, 2**0.5)
        surrogate = gp(problem, interior=300, boundary=60)
        t, x = draw_inside(problem)
        single, double = values(surrogate, t, x, np.float32), values(surrogate, t, x)
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, double, atol=1e-3)
        eps = residual(problem, surrogate, t, x)
        with use_dtype(np.dtype(np.float32)):
            generator = Generator(problem, surrogate)
            at = lambda t, x: generator(t, x, jax.random.key(0))
            u, z, generated = jax.jit(jax.vmap(at))(t.astype(np.float32), x.astype(np.float32))
            single_eps = generated + jax.vmap(problem.nonlinearity)(
                t.astype(np.float32), x.astype(np.float32), u, z
            )
        np.testing.assert_allclose(single_eps, eps, atol=2e-3 * np.abs(eps).max() + 1e-3)

    def test_build_restores_the_surrogate(self, burgers, fitted):
        with use_dtype(FLOAT64):
            arrays = {name: np.asarray(a) for name, a in fitted.arrays().items()}
        again = GaussianProcess.build(burgers, fitted.architecture(), arrays, fitted.record)
        t, x = draw_inside(burgers, 5)
        np.testing.assert_array_equal(values(again, t, x), values(fitted, t, x))
        with pytest.raises(ValueError, match="of another shape: draws, x"):
            GaussianProcess.build(problems.burgers(5), fitted.architecture(), arrays, fitted.record)

    def test_the_violation_is_not_called_a_residual(self, fitted):
        pytest.importorskip("matplotlib").use("Agg")
        assert repr(fitted).startswith("<gp of burgers 4d")
        assert f", constraint violation {fitted.record['residual']:.3g}, " in repr(fitted)
        assert "residual" not in repr(fitted)
        assert fitted.plot().get_ylabel() == "constraint violation, root mean square"

    def test_progress_is_called(self, burgers):
        reports = []
        gp(burgers, interior=20, boundary=5, progress=reports.append)
        assert [report.step for report in reports] == list(range(1, len(reports) + 1))
        assert reports[-1].residual < 1e-4 < reports[-1].loss


BAD_ARGUMENTS = [
    ({"interior": 0}, "interior"),
    ({"interior": -5}, "interior"),
    ({"interior": 10.0}, "interior"),
    ({"boundary": -1}, "boundary"),
    ({"boundary": "many"}, "boundary"),
    ({"width": -1.0}, "width"),
    ({"width": "wide"}, "width"),
    ({"width": (1.0, 2.0, 3.0)}, "width"),
    ({"nugget": -1e-3}, "nugget"),
    ({"nugget": None}, "nugget"),
    ({"damping": float("nan")}, "damping"),
    ({"tolerance": True}, "tolerance"),
    ({"iterations": 0}, "iterations"),
    ({"factor": "cholesky"}, "factor"),
    ({"preset": "best"}, "preset"),
    ({"seed": -1}, "seed"),
    ({"domain": 3}, "domain"),
]
UNSUPPORTED = [
    problems.lqg(4),
    problems.heston(),
    problems.allen_cahn_variable(4),
    Problem(dim=2, horizon=1.0, terminal=jnp.sum, diffusion=[1.0, 2.0]),
    Problem(dim=2, horizon=1.0, terminal=jnp.sum, drift=[1.0, 2.0]),
    None,
    "burgers",
]


def is_one_sentence(text):
    return "\n" not in text and text.endswith(".") and ". " not in text


@pytest.mark.parametrize(("arguments", "name"), BAD_ARGUMENTS)
def test_bad_arguments(burgers, arguments, name):
    with pytest.raises(ScasmlError) as caught:
        gp(burgers, **{"interior": 10, "boundary": 5, **arguments})
    assert str(caught.value).startswith(name)
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("problem", UNSUPPORTED, ids=lambda p: getattr(p, "name", str(p)))
def test_unsupported_problem(problem):
    with pytest.raises(ScasmlError) as caught:
        gp(problem, interior=10, boundary=5)
    assert str(caught.value).startswith("problem")
    assert is_one_sentence(str(caught.value))


def test_singular_matrix(burgers):
    with pytest.raises(ScasmlError, match="nugget") as caught:
        gp(burgers, interior=200, boundary=50, nugget=0.0, width=50.0)
    assert is_one_sentence(str(caught.value))
