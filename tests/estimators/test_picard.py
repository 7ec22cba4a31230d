"""Picard against the literal recursion, the oracles of the method, and the paper's cost counters."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import SIGMAS, bias_but_rounding, heat, manufactured, network_surrogate, rough, varying
from literal import literal_picard
from scasml import Picard
from scasml._equations.defect import Defect
from scasml._support.precision import cast
from scasml.estimators import _means as means
from scasml.estimators.base import FIRST_HALF, MINUS_NOISE, NOISE, ORDINARY, SECOND_HALF
from scasml.paths import Gaussian
from scasml.paths.coefficients import diffuse_transposed
from scasml.surrogates import wrap

SIGMA = {
    "scalar": 0.7,
    "diagonal": np.array([0.5, 0.7, 0.9]),
    "full": np.array([[0.7, 0.1, 0.0], [0.0, 0.6, -0.2], [0.1, 0.0, 0.8]]),
}
TIME = {"full-history": {}, "quadrature": {"time": "quadrature", "nodes": 2}}


def one_replicate(problem, surrogate, method, key, s, x, gradient=True):
    equation = problem if surrogate is None else Defect(problem, surrogate)
    return jax.jit(lambda s, x: method.replicate(equation, key, s, x, gradient))(
        jnp.asarray(s), jnp.asarray(x)
    )


@pytest.mark.usefixtures("x64")
class TestLiteral:
    """Vectorised == literal recursion with the same streams, to rounding."""

    @staticmethod
    def check(problem, surrogate, n, samples, options, threshold=None):
        method = Picard(n, samples, threshold=threshold, **options)
        s, x, key = 0.1, np.array([0.2, -0.4, 0.3]), jax.random.key(7)
        got = one_replicate(problem, surrogate, method, key, s, x)
        exponent = getattr(method.time_law(False), "exponent", 0.0)
        log = dict.fromkeys(("g", "F", "normals", "uniforms"), 0)
        u, z = literal_picard(
            problem, surrogate, n, samples, key, s, x, nodes=options.get("nodes"), exponent=exponent,
            weights=options.get("gradient") == "weights", threshold=threshold, log=log, steps=options.get("steps"),
        )  # fmt: skip
        np.testing.assert_allclose(got.value, u, rtol=1e-11, atol=1e-13)
        got_z = diffuse_transposed(problem.diffusion(jnp.asarray(s), jnp.asarray(x)), got.gradient)
        np.testing.assert_allclose(got_z, z, rtol=1e-9, atol=1e-11)
        return log, method.cost(problem)

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
        """The derivative is taken three deep."""
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

    @pytest.mark.parametrize(
        ("sigma", "gradient"),
        [
            pytest.param("diagonal", "weights", marks=pytest.mark.slow),
            pytest.param("full", "weights", marks=pytest.mark.slow),
            pytest.param("scalar", "pathwise", marks=pytest.mark.slow),
            pytest.param("full", "pathwise", marks=pytest.mark.slow),
        ],
    )
    def test_a_general_diffusion(self, sigma, gradient):
        """Paths in steps, with X, D and the weight integral carried literally; the residual with sigma(t, x)."""
        self.check(
            varying(sigma), wrap(rough, varying(sigma)), 2, 2, {"gradient": gradient, "steps": 2}
        )

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
    def test_tiles(self, monkeypatch):
        """The same sums when samples come a few at a time, through a loop, at inner levels too, with a ragged last tile."""
        problem, _ = manufactured()
        monkeypatch.setattr(means, "TILE", 2)
        self.check(problem, wrap(rough, problem), 2, 3, {})
        self.check(problem, None, 2, 5, {"gradient": "weights"})

    def test_counters_are_what_the_recursion_evaluates(self):
        problem, _ = manufactured()
        for n, samples, time in [
            (1, 3, "full-history"),
            (2, 2, "full-history"),
            (2, 2, "quadrature"),
            (3, 2, "full-history"),
        ]:
            log = dict.fromkeys(("g", "F", "normals", "uniforms"), 0)
            options = TIME[time]
            literal_picard(
                problem,
                None,
                n,
                samples,
                jax.random.key(0),
                0.1,
                np.zeros(3),
                nodes=options.get("nodes"),
                weights=True,
                log=log,
            )
            cost = Picard(n, samples, gradient="weights", **options).cost(problem)
            assert log == {
                "g": cost.terminal,
                "F": cost.nonlinearity,
                "normals": cost.normals,
                "uniforms": cost.uniforms,
            }


def paper_recursions(n, m, d, q=None):
    """FE and RV (full history) or RN (quadrature), transcribed from the paper's complexity sections with equality."""
    fe, rv = [0], [0]
    nodes = q or 1
    for k in range(1, n + 1):
        inner = lambda table, k=k: sum(
            nodes * m ** (k - l) * (table[l] + (table[l - 1] if l else 0)) for l in range(k)
        )
        fe.append(m**k + sum(nodes * m ** (k - l) * (1 + (l > 0)) for l in range(k)) + inner(fe))
        rv.append(
            d * m**k + sum(nodes * m ** (k - l) * (d + (q is None)) for l in range(k)) + inner(rv)
        )
    return fe[n], rv[n]


@pytest.mark.parametrize(
    ("n", "m", "q"), list(itertools.product([1, 2, 3, 4], [1, 2, 10], [None, 3]))
)
def test_counters_are_the_papers(n, m, q):
    problem, _ = manufactured()
    options = {} if q is None else {"time": "quadrature", "nodes": q}
    cost = Picard(n, m, **options).cost(problem)
    assert (cost.functions, cost.random_numbers) == paper_recursions(n, m, problem.dim, q)


@pytest.mark.parametrize("time", TIME)
def test_counters_are_what_the_kernel_evaluates(time):
    """Count the calls of F and g from inside the compiled program, per element of every batch."""
    calls = {"F": 0, "g": 0}

    def counted(name, value, x):
        jax.debug.callback(lambda _: calls.__setitem__(name, calls[name] + 1), x)
        return value

    problem = scasml.Problem(
        dim=2,
        horizon=1.0,
        nonlinearity=lambda t, x, u, z: counted("F", jnp.sin(u) + jnp.sum(z), x),
        terminal=lambda x: counted("g", jnp.sum(x**2), x),
    )
    method = Picard(2, 3, **TIME[time])
    jax.block_until_ready(
        one_replicate(
            problem, None, method, jax.random.key(0), 0.0, np.zeros(2, np.float32), gradient=False
        )
    )
    jax.effects_barrier()
    cost = method.cost(problem)
    assert calls == {"F": cost.nonlinearity, "g": cost.terminal}


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
    problem, exact = manufactured()
    answer = scasml.correct(
        problem,
        exact,
        0.1,
        np.array([0.2, -0.4, 0.3]),
        method=method,
        replicates=8,
        dtype="float64",
    )
    assert abs(answer.correction) < 1e-14
    assert answer.stderr < 1e-14
    assert np.max(np.abs(answer.gradient_stderr)) < 1e-12


@pytest.mark.parametrize("gradient", ["pathwise", "weights", "centred"])
def test_one_level_is_unbiased_for_a_linear_problem(gradient):
    check_linear_unbiased(gradient)


def check_linear_unbiased(gradient="pathwise", replicates=400):
    """Value and gradient within 6 standard errors of the exact ones: false-fail rate 5e-9 (Student t, 399) x 8 comparisons."""
    problem, exact = heat()
    assert problem.is_linear
    wrong = lambda t, x: exact(t, x) + 0.3 * jnp.sin(jnp.sum(x) + t)
    x = np.array([0.3, -0.2, 0.5])
    for surrogate in (None, wrong):
        answer = scasml.correct(
            problem,
            surrogate,
            0.1,
            x,
            method=Picard(1, 256, gradient=gradient),
            replicates=replicates,
            seed=3,
        )
        truth, slope = jax.value_and_grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(x, jnp.float32))
        assert abs(answer.value - truth) < SIGMAS * answer.stderr + answer.bias
        assert np.all(
            np.abs(answer.gradient - slope) < SIGMAS * answer.gradient_stderr + answer.gradient_bias
        )
        assert answer.stderr < 0.01
        assert (
            np.max(answer.gradient_stderr) < 0.05
        )  # finite variance: a weight that is too singular shows here
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
    """u_hat = u + p with p known: the correction is -p, to 6 standard errors (Student t, 199: 9e-9 each) plus the remainder.

    What two levels leave of a p of 0.049 is its second Picard iterate: allowed REMAINDER, a fifteenth of p.
    """
    problem, exact = manufactured()
    perturbation = lambda t, x: 0.05 * jnp.cos(x[0] - 0.5 * x[1] + t)
    x = np.array([0.2, -0.4, 0.3], np.float32)
    surrogate = lambda t, x: exact(t, x) + perturbation(t, x)
    answer = scasml.correct(
        problem,
        surrogate,
        0.1,
        x,
        method=Picard(2, 24, gradient=gradient),
        replicates=replicates,
        seed=5,
    )
    p = perturbation(jnp.asarray(0.1), jnp.asarray(x))
    assert abs(answer.correction + p) < SIGMAS * answer.stderr + REMAINDER
    true_slope = jax.grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(x))
    assert np.all(
        np.abs(answer.gradient - true_slope) < SIGMAS * answer.gradient_stderr + 10 * REMAINDER
    )
    assert answer.stderr < 5e-4


@pytest.mark.slow
def test_quadrature_and_full_history_agree():
    check_time_laws_agree()


def check_time_laws_agree(replicates=200):
    """Two time laws, one expectation: within 6 joint standard errors (1e-8 each); 5 nodes leave no visible quadrature error."""
    problem, _ = manufactured()
    surrogate = rough
    x = np.array([0.2, -0.4, 0.3])
    answers = [
        scasml.correct(
            problem,
            surrogate,
            0.1,
            x,
            method=Picard(2, 16, **options),
            replicates=replicates,
            seed=11,
        )
        for options in ({}, {"time": "quadrature", "nodes": 5}, {"time_exponent": 0.5})
    ]
    for a, b in itertools.combinations(answers, 2):
        assert abs(a.value - b.value) < SIGMAS * np.hypot(a.stderr, b.stderr)
        assert np.all(
            np.abs(a.gradient - b.gradient)
            < SIGMAS * np.hypot(a.gradient_stderr, b.gradient_stderr)
        )
    assert max(a.stderr for a in answers) < 0.02


def test_streams_are_independent():
    check_streams_independent()


def check_streams_independent():
    """Record every Brownian draw of one replicate: all distinct, so no key serves two samples, levels or calls."""
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
    assert len(draws) == method.cost(problem).normals // 2
    rounded = {tuple(np.round(d, 4)) for d in draws}
    assert len(rounded) > 0.95 * len(draws)


def test_centred_weights_are_less_noisy():
    """E g(X_T) of the HJB problem at d = 100: METHOD's 2.17 against 0.14 a sample, seen as a tenth at least."""
    problem = scasml.problems.hjb(100)
    noise = {
        kind: scasml.correct(
            problem, None, 0.0, np.zeros(100), method=Picard(1, 256, gradient=kind), replicates=16
        ).gradient_stderr.mean()
        for kind in ("weights", "centred")
    }
    assert noise["centred"] < 0.1 * noise["weights"]


def test_the_mean_of_others():
    values, present = jnp.array([1.0, 2.0, 6.0, 9.0]), jnp.array([True, True, True, False])
    np.testing.assert_allclose(means.mean_of_others(values, present)[:3], [4.0, 3.5, 1.5])
    np.testing.assert_allclose(means.mean_of_others(values[:1], present[:1]), [0.0])


def test_a_linear_law_takes_one_level_only():
    problem, _ = heat()
    one, three = Picard(1, 8).cost(problem), Picard(3, 2).cost(problem)
    assert three == one


@pytest.mark.parametrize(
    ("count", "most"),
    [(100, 128), (100, 12), (1000, 128), (211, 128), (4099, 128), (512, 128), (1, 1)],
)
def test_tile(count, most):
    tile = means.tile_size(count, most)
    assert 1 <= tile <= max(count if count <= most else most, 1)
    assert -(-count // tile) * tile - count < tile


def test_casting_keeps_the_answer():
    """float32 and float64 draw different numbers from one key, so they agree statistically: 6 standard errors."""
    problem, _ = manufactured()
    x = np.array([0.2, -0.4, 0.3])
    single, double = (
        scasml.correct(problem, rough, 0.1, x, method=Picard(1, 100), replicates=200, dtype=d)
        for d in ("float32", "float64")
    )
    assert abs(single.value - double.value) < SIGMAS * np.hypot(single.stderr, double.stderr)
    assert cast(problem, np.dtype("float32")).dynamics.mu.dtype == np.float32


def test_bias_is_unknown_where_the_increments_do_not_show_it():
    """A quadrature in time and a clip both bias even a linear problem."""
    problem, _ = heat()
    zero = np.zeros((1, 2))
    assert np.isnan(Picard(1, 2, time="quadrature").bias(problem, zero, zero)).all()
    assert np.isnan(Picard(1, 2, threshold=0.1).bias(problem, zero, zero)).all()
    assert (Picard(1, 2).bias(problem, zero, zero) == 0).all()


def test_bias_is_unknown_where_nothing_can_be_halved():
    """One sample inside F: its noise biases, and no half of it tells by how much."""
    problem, _ = manufactured(uses_z=False)
    increments = np.ones((3, 3))
    assert np.isnan(Picard(2, 1).bias(problem, increments, increments)).all()
    assert np.isfinite(Picard(2, 2).bias(problem, increments, increments)).all()


class TestNoiseInside:
    """The versions of a replicate that tell what noise inside F does."""

    @staticmethod
    def last(terminal, nonlinearity, levels=2, samples=4, **options):
        """By version, the last increment of one replicate at one point."""
        problem = scasml.Problem(
            dim=2, horizon=0.5, diffusion=0.8, terminal=terminal, nonlinearity=nonlinearity
        )
        method = Picard(levels, samples, **options)

        @jax.jit
        def run(version):
            varied = method.vary(problem, version)
            got = varied.replicate(
                problem, jax.random.key(3), jnp.asarray(0.1), jnp.array([0.2, -0.3]), True
            )
            return got.increments[-1], got.increments[0], got.gradient_increments[-1]

        return {v: run(v) for v in (ORDINARY, FIRST_HALF, SECOND_HALF, NOISE, MINUS_NOISE)}

    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize(
        ("gradient", "time"),
        [
            ("pathwise", "full-history"),
            ("mixed", "quadrature"),
            ("centred", "full-history"),
            ("weights", "quadrature"),
        ],
    )
    def test_jackknife_and_noise_alone_agree_on_a_quadratic(self, gradient, time):
        """Exactly, sample by sample: (F(a) + F(b))/2 - F((a + b)/2) = F(e) - F(0) with e = (a - b)/2, if F has no linear part."""
        z_too = (
            0.3 if gradient in ("pathwise", "mixed") else 0.0
        )  # "centred" centres each half by its own mean
        got = self.last(
            lambda x: jnp.sum(jnp.sin(x)),
            lambda t, x, u, z: u**2 - z_too * jnp.sum(z) ** 2,
            gradient=gradient,
            **TIME[time],
        )
        for i in (0, 2):
            jackknife = (got[FIRST_HALF][i] + got[SECOND_HALF][i]) / 2 - got[ORDINARY][i]
            alone = (got[NOISE][i] + got[MINUS_NOISE][i]) / 2
            assert np.all(jackknife != 0)
            if not (i == 2 and gradient in ("centred", "weights")):
                np.testing.assert_allclose(alone, jackknife, rtol=1e-9)

    @pytest.mark.usefixtures("x64")
    def test_noise_alone_knows_nothing_of_the_solution(self):
        """A constant more in g is a constant more in U, and none in half the difference of its halves."""
        bend = lambda t, x, u, z: jnp.cos(3 * u)
        low, high = (self.last(lambda x, c=c: jnp.sum(x) + c, bend)[NOISE][0] for c in (0.0, 50.0))
        np.testing.assert_allclose(low, high, rtol=1e-9)
        assert low != 0

    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("levels", [2, pytest.param(3, marks=pytest.mark.slow)])
    def test_noise_in_a_linear_function_does_nothing(self, levels):
        got = self.last(lambda x: 3 + jnp.sum(x), lambda t, x, u, z: 0.5 * u, levels)
        assert got[NOISE][0] != 0
        np.testing.assert_allclose(got[NOISE][0], -got[MINUS_NOISE][0], rtol=1e-9)

    def test_only_the_last_increment_is_run_again(self):
        got = self.last(jnp.sum, lambda t, x, u, z: u**2)
        assert got[ORDINARY][1] != 0
        assert all(got[v][1] == 0 for v in (FIRST_HALF, SECOND_HALF, NOISE, MINUS_NOISE))

    def test_a_bias_that_the_jackknife_cannot_see(self):
        """F = min(1, u^2) of noise of size 20 is 1, of twice the noise too; the solution of F = 0 with g of mean 0 is 0."""
        problem = scasml.Problem(
            dim=2, horizon=1.0, diffusion=1.0, terminal=lambda x: 60 * jnp.sum(jnp.sin(5 * x)),
            nonlinearity=lambda t, x, u, z: jnp.minimum(1, u**2),
        )  # fmt: skip
        answer = scasml.correct(
            problem, None, 0.0, np.zeros((8, 2)), method=Picard(2, 4), replicates=32, safe=False
        )
        assert np.all(answer.bias > 0.4)


def test_bias_extrapolates_from_the_last_two_increments():
    problem, _ = manufactured()
    increments, stderr = np.array([[9.0, 9.0, 0.4, 0.1]]), np.zeros((1, 4))
    np.testing.assert_allclose(Picard(3, 2).bias(problem, increments, stderr), 0.1 * 0.25 / 0.75)
    np.testing.assert_allclose(Picard(3, 2).bias(problem, increments[:, [0, 1, 3, 2]], stderr), 0.4)
    np.testing.assert_allclose(Picard(2, 2).bias(problem, increments[:, :3], stderr[:, :3]), 0.4)


@pytest.mark.parametrize(("sigma0", "is_steep"), [(0.25, False), (3.0, True)])
def test_bias_is_unknown_where_f_is_steep(sigma0, is_steep):
    """Burgers: |F_z|^2 (T - t) = sigma0^2 u^2 d (T - t), here 0.03 and 4.5 in the middle of the wave, and next to nothing far behind it."""
    x = np.array([[0.0, 0.0, 0.0, 0.0], [-3.0, -3.0, -3.0, -3.0]])
    surrogate = lambda t, x: jax.nn.sigmoid(1.02 * t + jnp.sum(x))
    answer = scasml.correct(
        scasml.problems.burgers(4, sigma0), surrogate, 0.0, x, method=Picard(2, 2), replicates=4
    )
    assert np.isnan(answer.bias).tolist() == [is_steep, False]
    assert np.isnan(answer.gradient_bias).all(1).tolist() == [is_steep, False]
    assert ("too steep" in str(answer.diagnose())) == is_steep


def test_a_steep_time_exponent_stays_finite():
    problem, _ = heat()
    method = Picard(1, 3000, gradient="weights", time_exponent=0.9)
    answer = scasml.correct(problem, None, 0.1, np.zeros(3), method=method, replicates=2)
    assert np.isfinite(answer.gradient).all()


def test_pathwise_gradient_does_not_go_through_an_ill_conditioned_sigma():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))
    sigma = rotation @ np.diag(np.logspace(0, -6, 5)) @ rotation.T
    problem = scasml.Problem(dim=5, horizon=1.0, diffusion=sigma, terminal=jnp.sum)
    answer = scasml.correct(problem, None, 0.0, np.ones(5), method=Picard(1, 2), replicates=2)
    np.testing.assert_array_equal(answer.gradient, np.ones(5))
