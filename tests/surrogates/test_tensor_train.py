"""The tensor-train surrogate: its value, its derivatives, its training and its errors.

The training must find a solution that is itself a tensor train up to rounding.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import heat, manufactured, varying
from scasml._equations.defect import Defect
from scasml._equations.domain import Box
from scasml._equations.generator import Generator
from scasml._support.errors import ArgumentError, ArgumentTypeError
from scasml.surrogates import TensorTrain, tensor_train

DIM = 3
KEY = jax.random.key(0)


def polynomial(diffusion=0.8, kinked=False, dim=DIM):
    """A problem with the solution u = t^2 x_0 x_1 - t x_d^3 + 2 x_0^2, and that solution.

    F = f(t, x) + 0.3 u - 0.2 sum z, where f is chosen so that u_t + L u + F = 0. With `kinked` the
    code of g contains an absolute value, whose factor is zero.
    """
    sigma = np.asarray(diffusion, np.float64)
    matrix = sigma if sigma.ndim == 2 else np.diag(np.broadcast_to(sigma, (dim,)))
    exact = lambda t, x: t**2 * x[0] * x[1] - t * x[-1] ** 3 + 2 * x[0] ** 2
    linear = lambda u, z: 0.3 * u - 0.2 * jnp.sum(z)

    def nonlinearity(t, x, u, z):
        slope, hessian = jax.grad(exact, 1)(t, x), jax.hessian(exact, 1)(t, x)
        generated = (
            jax.grad(exact)(t, x)
            + 0.1 * jnp.sum(slope)
            + 0.5 * jnp.trace(matrix.T @ hessian @ matrix)
        )
        return linear(u, z) - linear(exact(t, x), matrix.T @ slope) - generated

    terminal = lambda x: exact(jnp.asarray(0.5, x.dtype), x) + (0 * jnp.abs(x[0]) if kinked else 0)
    problem = scasml.Problem(
        dim=dim,
        horizon=0.5,
        drift=0.1,
        diffusion=diffusion,
        nonlinearity=nonlinearity,
        terminal=terminal,
    )
    return problem, exact


def points(dim, count=20, horizon=0.5):
    """Random times (count,) and points (count, dim)."""
    keys = jax.random.split(jax.random.key(3))
    t = horizon * jax.random.uniform(keys[0], (count,))
    return t, 0.3 * jax.random.normal(keys[1], (count, dim))


def error(surrogate, exact):
    """The largest absolute error at random points."""
    t, x = points(surrogate.problem.dim)
    return float(jnp.max(jnp.abs(jax.jit(jax.vmap(surrogate))(t, x) - jax.vmap(exact)(t, x))))


def random_train(problem, rank=3, degree=3, frame=None, directions=2, seed=0):
    """A tensor train with random cores; `directions` are the draws of its offset, or None."""
    random, d = np.random.default_rng(seed), problem.dim
    return TensorTrain(
        problem=problem,
        clock=random.standard_normal((4, rank)),
        cores=random.standard_normal((d, degree + 1, rank, rank)),
        centre=random.standard_normal(d),
        scale=random.uniform(0.5, 2.0, d),
        frame=frame,
        draws=None if directions is None else random.standard_normal((directions, d)),
        record=(),
    )


def literal_sum(train, t, x):
    """The sum over all products of polynomials, with the polynomials of NumPy."""
    y = (np.asarray(x) - train.centre) / train.scale
    assert np.abs(y).max() < 3.5  # beyond, the basis functions are no polynomials
    q, (d, p, _, _) = len(train.clock), train.cores.shape
    hermite = lambda m, y: (
        np.polynomial.hermite_e.hermeval(y, np.eye(p)[m]) / np.sqrt(float(np.prod(range(1, m + 1))))
    )
    legendre = lambda n: (
        np.polynomial.legendre.legval(2 * t / 0.5 - 1, np.eye(q)[n]) * np.sqrt(2 * n + 1)
    )
    total = 0.0
    for n, *index in itertools.product(range(q), *[range(p)] * d):
        row = train.clock[n]
        for i, m in enumerate(index):
            row = row @ train.cores[i, m]
        total += legendre(n) * np.prod([hermite(m, y[i]) for i, m in enumerate(index)]) * row[0]
    return total


class TestValue:
    def test_is_the_sum_over_all_indices(self, x64):
        problem, _ = polynomial()
        train = random_train(problem, rank=2, degree=2, directions=None)
        t, x = 0.2, np.array([0.3, -0.4, 0.1])
        want = literal_sum(train, t, x)
        np.testing.assert_allclose(train(jnp.asarray(t), jnp.asarray(x)), want, rtol=1e-12)
        transposed = eqx.tree_at(
            lambda train: train.cores, train, train.cores.transpose(0, 1, 3, 2)
        )
        assert abs(transposed(jnp.asarray(t), jnp.asarray(x)) - want) > 1e-3 * abs(want)

    def test_with_an_offset_equals_g_at_the_end(self, x64):
        problem, _ = polynomial()
        train = random_train(problem)
        x = jnp.asarray([0.3, -0.4, 0.1])
        value, slope = jax.jit(jax.value_and_grad(train))(jnp.asarray(0.5), x)
        np.testing.assert_allclose(value, problem.terminal(x), rtol=1e-14)
        assert np.isfinite(slope)

    def test_dtype_is_that_of_x(self):
        problem, _ = polynomial()
        assert (
            jax.eval_shape(random_train(problem), jnp.asarray(0.2), jnp.ones(DIM)).dtype
            == np.float32
        )

    def test_is_bounded_far_from_the_paths(self, x64):
        problem, _ = polynomial()
        train = random_train(problem, directions=None)
        far = [abs(train(jnp.asarray(0.2), jnp.full(DIM, size))) for size in (1e2, 1e6)]
        np.testing.assert_allclose(far[0], far[1], rtol=1e-2)


class TestResidual:
    @pytest.mark.parametrize(
        ("sigma", "size"), [("diagonal", 0.3), ("full", 6.0), ("rotated", 0.3)]
    )
    def test_matches_the_dense_hessian(self, x64, sigma, size):
        """The reference differentiates the value; a diagonal sigma uses the closed form."""
        problem = polynomial()[0] if sigma == "rotated" else varying(sigma)
        frame = np.random.default_rng(1).standard_normal((DIM, DIM)) if sigma == "rotated" else None
        train = random_train(problem, frame=frame)
        generator = Generator(problem, train)
        assert generator.route == ("closed" if sigma == "diagonal" else "ito")
        t, x = jnp.asarray(0.3), size * jnp.asarray([0.4, -0.9, 0.6])
        derivatives = lambda t, x: (
            jax.value_and_grad(train, (0, 1))(t, x),
            jax.hessian(train, 1)(t, x),
        )
        (value, (u_t, slope)), hessian = jax.jit(derivatives)(t, x)
        s = problem.diffusion(t, x)
        s = s if s.ndim == 2 else jnp.diag(jnp.broadcast_to(s, (DIM,)))
        u, z, generated = jax.jit(lambda t, x: generator(t, x, KEY))(t, x)
        np.testing.assert_allclose(u, value, rtol=1e-12)
        np.testing.assert_allclose(z, s.T @ slope, rtol=1e-10)
        want = u_t + problem.drift(t, x) @ slope + 0.5 * jnp.trace(s.T @ hessian @ s)
        np.testing.assert_allclose(generated, want, rtol=1e-10)
        if sigma != "diagonal":
            return
        # A correction differentiates the residual once more, in reverse mode.
        equation = Defect(problem, train)
        eps = jax.jit(lambda x: equation.source(t, x, KEY))
        numeric = [(eps(x + h) - eps(x - h)) / 2e-5 for h in 1e-5 * jnp.eye(DIM)]
        np.testing.assert_allclose(
            jax.jit(jax.grad(eps))(x), np.array(numeric), rtol=1e-5, atol=1e-4
        )


class TestTraining:
    @pytest.mark.parametrize(
        ("diffusion", "kinked"),
        [
            pytest.param(0.8, False, id="scalar", marks=pytest.mark.slow),
            pytest.param([0.5, 0.8], True, id="diagonal, no offset"),
            pytest.param(
                np.eye(2) + np.tri(2, k=-1) / 3, False, id="matrix", marks=pytest.mark.slow
            ),
        ],
    )
    def test_recovers_a_solution_that_is_a_tensor_train(self, x64, diffusion, kinked):
        """In two dimensions one core can represent the solution whatever the others are.

        A small number of sweeps therefore suffices. With the sign of F reversed the solution
        differs.
        """
        problem, exact = polynomial(diffusion, kinked, dim=2)
        train = tensor_train(problem, rank=8, degree=3, iterations=8, paths=1000)
        assert (train.draws is None) == kinked
        assert error(train, exact) < 1e-8
        if not kinked:
            negated = lambda t, x, u, z: -problem.nonlinearity(t, x, u, z)
            wrong = eqx.tree_at(lambda problem: problem.nonlinearity_fn, problem, negated)
            other = tensor_train(wrong, rank=8, degree=3, iterations=2, paths=1000)
            assert error(other, exact) > 1e-2

    @pytest.mark.slow
    def test_improves_on_the_offset(self):
        problem, exact = manufactured(DIM)
        train = tensor_train(problem, rank=4, degree=3, iterations=6, paths=1500)
        offset = eqx.tree_at(lambda train: train.clock, train, np.zeros_like(train.clock))
        assert error(train, exact) < min(0.05, 0.2 * error(offset, exact))
        # At new states the residual is that of the record, within a factor of two.
        random = np.random.default_rng(5)
        t = random.uniform(0, 0.8, 400).astype(np.float32)
        x = problem.dynamics.mu * t[:, None] + 0.7 * np.sqrt(t)[:, None] * random.standard_normal(
            (400, DIM)
        )
        equation = Defect(problem, train)
        eps = jax.jit(jax.vmap(lambda t, x: equation.source(t, x, KEY)))(t, x.astype(np.float32))
        assert 0.5 < float(jnp.sqrt(jnp.mean(eps**2))) / train.record["residual"] < 2
        assert [name for name, _ in train.record] == [
            "rank",
            "degree",
            "steps",
            "residual",
            "seconds",
            "cpu_seconds",
            "residuals",
        ]
        assert "tensor_train of problem 3d" in repr(train)

    @pytest.mark.slow
    def test_variable_coefficients_and_a_domain(self):
        problem = varying()
        train = tensor_train(problem, iterations=2, paths=300, domain=Box(-0.5, 0.5))
        assert np.isfinite(train.record["residual"])

    @pytest.mark.slow
    def test_one_dimension(self, x64):
        problem, exact = heat(1)
        assert error(tensor_train(problem, iterations=4, paths=300), exact) < 1e-5

    @pytest.mark.slow
    def test_progress(self):
        reports = []
        train = tensor_train(heat()[0], iterations=3, paths=200, progress=reports.append)
        assert [(report.step, report.steps) for report in reports] == [(1, 3), (2, 3), (3, 3)]
        assert [report.residual for report in reports] == train.record["residuals"]
        assert train.plot().get_ylabel().startswith("residual")

    def test_same_seed_gives_the_same_bits(self):
        problem, _ = heat()
        one, same = (tensor_train(problem, iterations=2, paths=200, seed=1) for _ in range(2))
        for name, array in one.arrays().items():
            assert np.asarray(array).tobytes() == np.asarray(same.arrays()[name]).tobytes()


class TestBuild:
    @pytest.mark.parametrize("framed", [False, True])
    def test_gives_the_same_bits(self, framed):
        problem, _ = polynomial()
        train = random_train(problem, frame=np.eye(DIM) if framed else None)
        again = TensorTrain.build(problem, train.architecture(), train.arrays(), train.record)
        t, x = points(DIM)
        one, two = (np.asarray(jax.jit(jax.vmap(a))(t, x)) for a in (train, again))
        assert one.tobytes() == two.tobytes()

    @pytest.mark.parametrize("fault", ["missing", "shape", "dimension"])
    def test_refuses_wrong_arrays(self, fault):
        problem, _ = polynomial()
        train = random_train(problem)
        arrays, architecture = train.arrays(), train.architecture()
        if fault == "missing":
            del arrays["cores"]
        elif fault == "shape":
            arrays["clock"] = arrays["clock"][:, :1]
        else:
            architecture["dim"] = 4
        with pytest.raises((KeyError, ValueError)):
            TensorTrain.build(problem, architecture, arrays, ())


@pytest.mark.parametrize(
    ("options", "error_type", "name"),
    [
        ({"problem": 3}, ArgumentTypeError, "problem"),
        ({"rank": 0}, ArgumentError, "rank"),
        ({"rank": 2.5}, ArgumentTypeError, "rank"),
        ({"degree": 0}, ArgumentError, "degree"),
        ({"iterations": 0}, ArgumentError, "iterations"),
        ({"paths": True}, ArgumentTypeError, "paths"),
        ({"seed": -1}, ArgumentError, "seed"),
        ({"domain": "ball"}, ArgumentTypeError, "domain"),
        ({"problem": varying("full")}, ArgumentError, "problem"),
    ],
    ids=lambda value: next(iter(value.items()))[0] if isinstance(value, dict) else None,
)
def test_bad_argument(options, error_type, name):
    """The message is one sentence that begins with the name of the argument."""
    options = {"problem": heat()[0], **options}
    with pytest.raises(error_type, match=f"^{name} must") as caught:
        tensor_train(options.pop("problem"), **options)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert ". " not in text


@pytest.mark.slow
def test_residual_that_is_not_finite():
    problem = scasml.Problem(dim=2, horizon=1.0, terminal=lambda x: jnp.sqrt(x[0] - 1e3))
    with pytest.raises(ArgumentError, match="finite"):
        tensor_train(problem, iterations=1, paths=50)
