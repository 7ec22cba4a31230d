"""`Picard` against the literal recursion, and on problems whose solution is known."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import (
    SIGMAS,
    bias_but_rounding,
    cost,
    heat,
    manufactured,
    network_surrogate,
    replicate,
    rough,
    varying,
)
from scasml import Picard
from scasml._bench.literal import literal_picard
from scasml._equations.defect import Defect
from scasml._support.precision import cast
from scasml.paths import Gaussian
from scasml.paths.coefficients import diffuse_transposed
from scasml.surrogates import wrap

SIGMA = {
    "scalar": 0.7,
    "diagonal": np.array([0.5, 0.7, 0.9]),
    "full": np.array([[0.7, 0.1, 0.0], [0.0, 0.6, -0.2], [0.1, 0.0, 0.8]]),
}
TIME = {"full-history": {}, "quadrature": {"time": "quadrature", "nodes": 2}}
X = np.array([0.2, -0.4, 0.3])


def one_replicate(problem, surrogate, method, key, s, x, gradient=True):
    """Return one replicate of the problem, or of the defect of a surrogate, by a new program."""
    equation = problem if surrogate is None else Defect(problem, wrap(surrogate, problem))
    run = jax.jit(lambda s, x: replicate(method, equation, key, s, x, gradient))
    return run(jnp.asarray(s), jnp.asarray(x))


@pytest.mark.usefixtures("x64")
class TestLiteral:
    """The vectorised estimator equals the recursion in Python loops with the same streams.

    They agree to rounding.
    """

    @staticmethod
    def check(problem, surrogate, n, samples, options, threshold=None):
        method = Picard(n, samples, threshold=threshold, **options)
        s, key = 0.1, jax.random.key(7)
        got = one_replicate(problem, surrogate, method, key, s, X)
        weights = options.get("gradient") == "weights"
        u, z = literal_picard(
            problem,
            surrogate,
            n,
            samples,
            key,
            s,
            X,
            nodes=options.get("nodes"),
            exponent=0.5 if weights else 0.0,
            weights=weights,
            threshold=threshold,
            steps=options.get("steps"),
        )
        np.testing.assert_allclose(got.value, u, rtol=1e-11, atol=1e-13)
        got_z = diffuse_transposed(problem.diffusion(jnp.asarray(s), jnp.asarray(X)), got.gradient)
        np.testing.assert_allclose(got_z, z, rtol=1e-9, atol=1e-11)

    @pytest.mark.parametrize(
        "time", ["full-history", pytest.param("quadrature", marks=pytest.mark.slow)]
    )
    @pytest.mark.parametrize("gradient", ["pathwise", "weights"])
    @pytest.mark.parametrize("with_surrogate", [pytest.param(False, marks=pytest.mark.slow), True])
    @pytest.mark.parametrize(("n", "samples"), [(1, 3), (2, 2)])
    def test_two_levels(self, n, samples, with_surrogate, gradient, time):
        problem, _ = manufactured()
        surrogate = wrap(rough, problem) if with_surrogate else None
        self.check(problem, surrogate, n, samples, {"gradient": gradient, **TIME[time]})

    @pytest.mark.slow
    def test_three_levels(self):
        problem, _ = manufactured()
        self.check(problem, None, 3, 2, {"gradient": "weights"})

    @pytest.mark.slow
    def test_three_levels_pathwise(self):
        """Here derivatives of derivatives of derivatives are taken."""
        problem = scasml.Problem(
            dim=3,
            horizon=0.8,
            nonlinearity=lambda t, x, u, z: 0.5 * u * z[0] + z @ z,
            terminal=lambda x: jnp.sin(x @ x),
        )
        self.check(problem, None, 3, 2, {})

    @pytest.mark.slow
    def test_a_network(self):
        problem, _ = manufactured()
        self.check(problem, network_surrogate(problem, width=2), 2, 1, {})

    @pytest.mark.parametrize(
        "sigma",
        [
            pytest.param(name, marks=() if name == "diagonal" else pytest.mark.slow)
            for name in SIGMA
        ],
    )
    def test_every_shape_of_diffusion(self, sigma):
        problem, _ = manufactured(diffusion=SIGMA[sigma])
        self.check(problem, wrap(rough, problem), 2, 2, {"gradient": "weights"})

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("sigma", "gradient"),
        [
            ("diagonal", "weights"),
            ("full", "weights"),
            ("scalar", "pathwise"),
            ("full", "pathwise"),
        ],
    )
    def test_a_general_diffusion(self, sigma, gradient):
        """The literal recursion carries X, its derivative and the weight integral along a path.

        The residual contains sigma(t, x).
        """
        problem = varying(sigma)
        self.check(problem, wrap(rough, problem), 2, 2, {"gradient": gradient, "steps": 2})

    def test_nonlinearity_without_z(self):
        problem, _ = manufactured(uses_z=False)
        assert problem.uses_u
        assert not problem.uses_z
        self.check(problem, network_surrogate(problem), 2, 2, {})

    @pytest.mark.parametrize("gradient", ["pathwise", "weights"])
    def test_threshold(self, gradient):
        problem, _ = manufactured()
        self.check(problem, None, 2, 2, {"gradient": gradient}, threshold=0.3)

    @pytest.mark.slow
    def test_tiles(self):
        """13 samples of level 1 and 169 terminal samples take two tiles each, the last not full.

        Tiles inside an inner iterate are tested in test_means.py.
        """
        problem, _ = manufactured()
        self.check(problem, wrap(rough, problem), 2, 13, {})
        self.check(problem, None, 2, 13, {"gradient": "weights"})


@pytest.mark.parametrize(
    ("gradient", "time"),
    [
        ("pathwise", "quadrature"),
        ("weights", "full-history"),
        pytest.param("mixed", "full-history", marks=pytest.mark.slow),
    ],
)
def test_exact_surrogate_gives_zero_with_zero_variance(gradient, time):
    check_exact_surrogate(Picard(2, 4, gradient=gradient, **TIME[time]))


def check_exact_surrogate(method):
    """Check that the correction of an exact surrogate is zero to rounding."""
    problem, exact = manufactured()
    answer = scasml.correct(problem, exact, 0.1, X, method=method, replicates=8, dtype="float64")
    assert abs(answer.correction) < 1e-14
    assert answer.stderr < 1e-14
    assert np.max(np.abs(answer.gradient_stderr)) < 1e-12


@pytest.mark.parametrize("gradient", ["pathwise", "weights", "centred"])
def test_one_level_is_unbiased_for_a_linear_problem(gradient):
    check_linear_unbiased(gradient)


def check_linear_unbiased(gradient="pathwise", replicates=400):
    """Check value and gradient to 6 standard errors.

    The false-fail rate is 5e-9 (Student t, 399) for each of 8 comparisons.
    """
    problem, exact = heat()
    assert problem.is_linear
    wrong = lambda t, x: exact(t, x) + 0.3 * jnp.sin(jnp.sum(x) + t)
    x = np.array([0.3, -0.2, 0.5])
    method = Picard(1, 256, gradient=gradient)
    for surrogate in (None, wrong):
        answer = scasml.correct(
            problem, surrogate, 0.1, x, method=method, replicates=replicates, seed=3
        )
        truth, slope = jax.value_and_grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(x, jnp.float32))
        assert abs(answer.value - truth) < SIGMAS * answer.stderr + answer.bias
        allowed = SIGMAS * answer.gradient_stderr + answer.gradient_bias
        assert np.all(np.abs(answer.gradient - slope) < allowed)
        assert answer.stderr < 0.01
        # A gradient weight that is too singular would have an infinite variance.
        assert np.max(answer.gradient_stderr) < 0.05
        assert bias_but_rounding(answer) == 0
        assert answer.bias < 2e-6


@pytest.mark.parametrize(
    "gradient",
    ["pathwise", *(pytest.param(g, marks=pytest.mark.slow) for g in ("weights", "mixed"))],
)
def test_a_known_perturbation_is_recovered(gradient):
    check_perturbation_recovered(gradient)


REMAINDER = 3e-3


def check_perturbation_recovered(gradient="pathwise", replicates=200):
    """Check that the correction of u + p is -p, to 6 standard errors plus a remainder.

    The false-fail rate is 9e-9 per comparison (Student t, 199). The remainder is the second Picard
    iterate, which two levels omit. It is allowed a fifteenth of p, whose value is 0.049.
    """
    problem, exact = manufactured()
    perturbation = lambda t, x: 0.05 * jnp.cos(x[0] - 0.5 * x[1] + t)
    x = X.astype(np.float32)
    surrogate = lambda t, x: exact(t, x) + perturbation(t, x)
    method = Picard(2, 24, gradient=gradient)
    answer = scasml.correct(
        problem, surrogate, 0.1, x, method=method, replicates=replicates, seed=5
    )
    p = perturbation(jnp.asarray(0.1), jnp.asarray(x))
    assert abs(answer.correction + p) < SIGMAS * answer.stderr + REMAINDER
    true_slope = jax.grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(x))
    allowed = SIGMAS * answer.gradient_stderr + 10 * REMAINDER
    assert np.all(np.abs(answer.gradient - true_slope) < allowed)
    assert answer.stderr < 5e-4


@pytest.mark.slow
def test_quadrature_and_full_history_agree():
    check_time_laws_agree()


def check_time_laws_agree(replicates=200):
    """Check that three time laws agree to 6 joint standard errors (1e-8 each).

    The error of a quadrature with 5 nodes is too small to see.
    """
    problem, _ = manufactured()
    answers = [
        scasml.correct(
            problem, rough, 0.1, X, method=Picard(2, 16, **options), replicates=replicates, seed=11
        )
        for options in ({}, {"time": "quadrature", "nodes": 5}, {"time_exponent": 0.5})
    ]
    for a, b in itertools.combinations(answers, 2):
        assert abs(a.value - b.value) < SIGMAS * np.hypot(a.stderr, b.stderr)
        allowed = SIGMAS * np.hypot(a.gradient_stderr, b.gradient_stderr)
        assert np.all(np.abs(a.gradient - b.gradient) < allowed)
    assert max(a.stderr for a in answers) < 0.02


def test_streams_are_independent():
    check_streams_independent()


def check_streams_independent():
    """Check that all Brownian draws of one replicate differ.

    If they do, no key serves two samples, levels or calls.
    """
    problem = scasml.Problem(
        dim=2,
        horizon=1.0,
        nonlinearity=lambda t, x, u, z: jnp.sin(u) + jnp.sum(z),
        terminal=lambda x: jnp.sum(x**2),
    )
    draws = []
    original = Gaussian.move

    def recording(self, noise, s, x, duration, weight):
        jump = original(self, noise, s, x, duration, True)
        jax.debug.callback(
            lambda w: draws.append(tuple(np.asarray(w).tolist())), jump.weight * jnp.sqrt(duration)
        )
        return jump

    Gaussian.move = recording
    try:
        method = Picard(3, 2, gradient="weights")
        jax.block_until_ready(
            one_replicate(problem, None, method, jax.random.key(0), 0.0, np.zeros(2, np.float32))
        )
        jax.effects_barrier()
    finally:
        Gaussian.move = original
    assert len(draws) == cost(method, problem).normals // 2
    rounded = {tuple(np.round(d, 4)) for d in draws}
    assert len(rounded) > 0.95 * len(draws)


def test_centred_weights_are_less_noisy():
    """For E g(X_T) of the HJB problem at d = 100, METHOD.md states 2.17 and 0.14 per sample.

    The test requires a factor of ten.
    """
    problem = scasml.problems.hjb(100)
    noise = {
        kind: scasml.correct(
            problem, None, 0.0, np.zeros(100), method=Picard(1, 256, gradient=kind), replicates=16
        ).gradient_stderr.mean()
        for kind in ("weights", "centred")
    }
    assert noise["centred"] < 0.1 * noise["weights"]


def test_casting_keeps_the_answer():
    """The two dtypes draw different numbers from one key, so they agree to 6 standard errors."""
    problem, _ = manufactured()
    single, double = (
        scasml.correct(problem, rough, 0.1, X, method=Picard(1, 100), replicates=200, dtype=d)
        for d in ("float32", "float64")
    )
    assert abs(single.value - double.value) < SIGMAS * np.hypot(single.stderr, double.stderr)
    assert cast(problem, np.dtype("float32")).dynamics.mu.dtype == np.float32


def test_a_steep_time_exponent_stays_finite():
    problem, _ = heat()
    method = Picard(1, 3000, gradient="weights", time_exponent=0.9)
    answer = scasml.correct(problem, None, 0.1, np.zeros(3), method=method, replicates=2)
    assert np.isfinite(answer.gradient).all()


def test_pathwise_gradients_do_not_invert_sigma():
    """sigma^-T sigma^T of a slope would lose all digits for this sigma."""
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))
    sigma = rotation @ np.diag(np.logspace(0, -6, 5)) @ rotation.T
    problem = scasml.Problem(dim=5, horizon=1.0, diffusion=sigma, terminal=jnp.sum)
    answer = scasml.correct(problem, None, 0.0, np.ones(5), method=Picard(1, 2), replicates=2)
    np.testing.assert_array_equal(answer.gradient, np.ones(5))
