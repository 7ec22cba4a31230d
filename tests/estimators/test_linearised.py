"""`Linearised` against its formula in Python loops, and on problems whose solution is known."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_diffusions
from literal_linearised import LiteralLinearised
from test_diffusions import Diffusion, Drift, Nonlinearity, Perturbed, Terminal, Wave

import scasml
from helpers import SIGMAS, bias_but_rounding, cost, heat, manufactured, replicate, rough
from scasml import GeometricBrownian, Linearised, Problem
from scasml._equations.defect import Defect
from scasml._equations.linearised import LinearisedEquation
from scasml.estimators import Tuning, total_evaluations
from scasml.estimators._families import NAMES, REMAINDER, SOURCE, TERMINAL, increments_of
from scasml.estimators._remainder_tree import RemainderMean
from scasml.surrogates import wrap
from scasml.surrogates.terminal import SmoothedTerminal, directions

X = np.array([0.2, -0.4, 0.3], np.float32)
# Programs that run briefly are compiled quickly.
QUICK: Any = {"xla_backend_optimization_level": 0}


def expected(**samples: float) -> np.ndarray:
    """Return the expected samples of all increments; those that are not named have none."""
    found = np.zeros(len(NAMES), np.float32)
    for name, count in samples.items():
        found[NAMES.index(name.replace("_", " "))] = count
    return found


@pytest.mark.usefixtures("x64")
class TestLiteral:
    """The compiled estimator equals the formula in Python loops with the same random words."""

    T, POINT = 0.1, np.array([0.2, -0.4])
    # The source takes two tiles, and paths of the second one end at their random time. The clusters
    # of three increments are rounded at random.
    SAMPLES = expected(
        terminal=4, source=36, steps_4=7.5, remainder=5, remainder_depth_1=4, remainder_steps_2=3
    )

    @pytest.mark.parametrize(
        ("gradient", "sampling"),
        [
            ("pathwise", "rqmc"),
            pytest.param("centred", "antithetic", marks=pytest.mark.slow),
            pytest.param("pathwise", "mc", marks=pytest.mark.slow),
        ],
    )
    def test_increments_and_gradient(self, gradient, sampling):
        """They agree to rounding: 1e-11, because an increment is a difference of larger numbers."""
        problem = Problem(
            dim=2,
            horizon=1.0,
            drift=lambda t, x: jnp.cos(x[::-1]) - t * x,
            diffusion=lambda t, x: 0.6 + 0.2 * jnp.sin(x + t),
            nonlinearity=lambda t, x, u, z: (
                jnp.sin(x[0]) * u - 0.4 * u**3 + 0.3 * u * z @ z + 0.5 * z[0] * z[1] + x[1] * z[0]
            ),
            terminal=lambda x: jnp.sin(x[0] + x @ x),
        )
        surrogate = lambda t, x: 0.5 * jnp.sin(x[0] * x[1] + t)
        method = Linearised(samples=8, remainder=4, gradient=gradient, sampling=sampling)
        tuning = Tuning(gradient, 0, self.SAMPLES, np.int32(1))
        key, x = jax.random.key(3), jnp.asarray(self.POINT)
        found, slope = LiteralLinearised(problem, surrogate, method, tuning, 3).replicate(
            key, self.T, x
        )
        equation = Defect(problem, wrap(surrogate, problem))
        run = lambda key, x: replicate(method, equation, key, self.T, x, tuning=tuning)
        got = jax.jit(run, compiler_options=QUICK)(key, x)
        wanted = np.array([found.get(name, 0.0) for name in NAMES])
        np.testing.assert_array_equal(wanted != 0, self.SAMPLES > 0)
        np.testing.assert_allclose(got.increments, wanted, rtol=1e-11)
        np.testing.assert_allclose(got.value, wanted.sum(), rtol=1e-11)
        np.testing.assert_allclose(got.gradient, slope, rtol=1e-11)


class Case(NamedTuple):
    """A problem, its solution, a surrogate with a large error, and a gradient method."""

    problem: Problem
    exact: Any
    surrogate: Any
    gradient: str


def constant() -> Case:
    """Return a case with a constant sigma, and a cubic F that contains z."""
    problem, exact = manufactured()
    surrogate = lambda t, x: exact(t, x) + 0.3 * jnp.cos(x[0] - 0.5 * x[1] + t)
    return Case(problem, exact, surrogate, "centred")


def varying() -> Case:
    """Return a case with a full sigma(t, x), and an F that is not a polynomial."""
    wave = Wave(np.array([0.5, -0.7, 0.4]), np.asarray(0.9), np.asarray(0.1))
    drift, diffusion = Drift(np.array([0.3, 0.5, -0.4])), Diffusion(np.full(3, 0.3), "full")
    c = np.array([0.5, 0.4, -1.5, 1.2])
    problem = Problem(
        dim=3,
        horizon=0.8,
        drift=drift,
        diffusion=diffusion,
        nonlinearity=Nonlinearity(wave, drift, diffusion, c),
        terminal=Terminal(wave, 0.8),
    )
    ripple = Wave(np.array([1.2, 0.6, -0.9]), np.asarray(0.5), np.asarray(0.2))
    return Case(problem, wave, Perturbed(wave, ripple), "pathwise")


CASES = {"constant": constant, "varying": varying}
FINER = {f"steps_{2**k}": max(20 / 2**k, 0.5) for k in range(1, 11)}
INSIDE = {f"remainder_steps_{2**k}": max(8 / 2**k, 0.5) for k in range(1, 7)}
PATHS = {f"remainder_paths_{2**k}": max(6 / 2**k, 0.2) for k in range(1, 7)}
BASE = expected(terminal=128, source=128, remainder=16)
ALL = BASE + expected(**FINER, **INSIDE, **PATHS, remainder_depth_1=6, remainder_depth_2=3)


class Run(NamedTuple):
    """Errors of replicates: of their value and gradient, and their increments."""

    error: np.ndarray  # (replicates, 1 + d)
    increments: np.ndarray


def runs(name: str) -> Any:
    """Return a function of a seed, a base level and samples, which returns a `Run`."""
    problem, exact, surrogate, gradient = CASES[name]()
    equation, method = Defect(problem, wrap(surrogate, problem)), Linearised(remainder=4)
    t, x = jnp.asarray(0.1), jnp.asarray(X)
    defect = lambda x: exact(t, x) - surrogate(t, x)
    truth = np.concatenate([[defect(x)], jax.grad(defect)(x)]).astype(np.float64)
    tails = method.tails(equation)
    has = BASE + sum(np.bincount(tail, minlength=len(NAMES)) for tail in tails.values() if tail) > 0

    def one(key: Any, samples: Any, level: Any) -> Any:
        tuning = Tuning(gradient, 0, samples, level)
        got = replicate(method, equation, key, t, x, tuning=tuning)
        return jnp.concatenate([got.value[None], got.gradient]), got.increments

    program = jax.jit(
        lambda keys, samples, level: jax.lax.map(lambda key: one(key, samples, level), keys),
        compiler_options=QUICK,
    )

    def run(seed: int, level: int, samples: np.ndarray, replicates: int = 400) -> Run:
        samples = samples * has
        finer = [k for kind in ("steps", "remainder steps") for k in tails[kind][:level]]
        samples[finer] = 0  # steps that the base level has already
        keys = jax.random.split(jax.random.key(seed), replicates)
        found, increments = program(keys, samples.astype(np.float32), jnp.int32(level))
        return Run(np.asarray(found, np.float64) - truth, np.asarray(increments, np.float64))

    return run


shared_runs = functools.cache(runs)


def z_scores(errors: np.ndarray) -> np.ndarray:
    """Return the mean errors in standard errors."""
    return errors.mean(0) / (errors.std(0, ddof=1) / np.sqrt(len(errors)))


class TestUnbiased:
    """Value and gradient are right at every base level, in float32.

    A bound of 4 standard errors of four means has a false-fail rate of 3e-4 for a random seed.
    """

    @pytest.mark.parametrize("level", [0, pytest.param(2, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("name", CASES)
    def test_value_and_gradient(self, name, level):
        got = shared_runs(name)(level, level, ALL)
        assert np.all(np.abs(z_scores(got.error)) < 4)
        # A wrong sign of one of the large increments would be seen.
        names = ["terminal", "source", "steps 2", "remainder"]
        names += ["remainder depth 1", "remainder depth 2"] if name == "varying" else []
        for k in map(NAMES.index, names):
            if level == 0 or not NAMES[k].startswith("steps"):
                assert abs(z_scores(got.error[:, 0] - 2 * got.increments[:, k])) > 6


def reversed_part(part):
    """Return a fault that reverses the sign of one part of a pair of results."""
    signs = np.where(np.arange(2) == part, -1, 1)

    def plant(right):
        wrong = lambda *a: tuple(s * one for s, one in zip(signs, right(*a), strict=True))
        return wrong

    return plant


FAULTS = {
    "sign of b": (LinearisedEquation, "tilt", reversed_part(0)),
    "sign of a": (LinearisedEquation, "tilt", reversed_part(1)),
    "R with its first order": (
        LinearisedEquation,
        "difference",
        lambda right: lambda self, *a: self.equation.difference(*a),
    ),
    "noise inside R": (
        RemainderMean,
        "exact",
        lambda right: property(lambda self: self.combination({self.groups: 1.0})),
    ),
    "sign of the residual": (
        Defect,
        "source",
        lambda right: lambda self, t, x, key: -right(self, t, x, key),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.usefixtures("programs_anew")
def test_planted_faults_are_seen(fault, monkeypatch):
    owner, name, plant = FAULTS[fault]
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    assert np.max(np.abs(z_scores(runs("constant")(0, 0, ALL).error))) > 6


def test_choices_without_a_pilot():
    """`steps` is the base level, and expected samples of all other increments are zero."""
    problem, _ = manufactured()
    for steps, level in (("auto", 0), (1, 0), (8, 3), (1024, 10)):
        tuning = Linearised(steps=steps, samples=256).default_tuning(problem, True)
        assert (tuning.gradient, tuning.steps, tuning.level) == ("pathwise", 0, level)
        np.testing.assert_array_equal(
            tuning.samples, expected(terminal=256, source=256, remainder=4)
        )


def test_the_cost_of_points_with_different_base_levels():
    """Costs add up over points. A sample on a finer grid costs more, a difference does not."""
    problem, _ = manufactured()
    method, levels, replicates = Linearised(), np.array([0, 3, 3]), np.array([2, 5, 1])
    samples = np.stack([ALL, 2 * ALL, BASE])
    together = total_evaluations(method, problem, Tuning("", 0, samples, levels), replicates)
    each = [
        method.evaluations(problem, Tuning("", 0, count * one, level))
        for count, one, level in zip(replicates, samples, levels, strict=True)
    ]
    np.testing.assert_allclose(together, np.sum(each, 0), rtol=1e-6)
    coarse, fine = (method.sample_evaluations(problem, level) for level in (0, 3))
    steps = NAMES.index("steps 16")
    assert fine[steps] == coarse[steps]
    for k in (TERMINAL, SOURCE, REMAINDER):
        assert fine[k].normals > coarse[k].normals


def test_the_bias_is_unknown_without_a_remainder():
    """It is zero with R, or if F is affine."""
    means = np.ones((4, len(NAMES)))
    affine = Problem(dim=1, horizon=1.0, nonlinearity=lambda t, x, u, z: -u, terminal=jnp.sum)
    bias = lambda problem, remainder: Linearised(remainder=remainder).level_bias(
        problem, means, means
    )
    assert np.all(np.isnan(bias(manufactured()[0], 0)))
    for problem, remainder in ((manufactured()[0], 2), (affine, 0), (heat()[0], 0)):
        np.testing.assert_array_equal(bias(problem, remainder), np.zeros(4))


class TestZeroTerminal:
    """A start that equals g at the horizon needs no paths to the horizon."""

    PROBLEM = scasml.problems.lqg(3)

    def smoothed(self, problem=PROBLEM):
        return SmoothedTerminal(problem, directions(3, 2, 0))

    def defects(self):
        """Return the defect of smoothed g, and of a function that hides what it is."""
        smoothed = self.smoothed()
        models = smoothed, lambda t, x: smoothed(t, x)
        return [Defect(self.PROBLEM, wrap(model, self.PROBLEM)) for model in models]

    def test_which_defects_have_it(self):
        known, hidden = self.defects()
        assert known.zero_terminal
        assert not hidden.zero_terminal
        equal = self.smoothed(scasml.problems.lqg(3))  # an equal problem, not the same object
        assert Defect(self.PROBLEM, equal).zero_terminal
        other_numbers = self.smoothed(scasml.problems.lqg(3, seed=1))
        assert not Defect(self.PROBLEM, other_numbers).zero_terminal
        inner = Defect(self.PROBLEM, wrap(rough, self.PROBLEM))
        assert not Defect(inner, self.smoothed()).zero_terminal

    @pytest.mark.parametrize(
        "gradient", ["pathwise", pytest.param("centred", marks=pytest.mark.slow)]
    )
    def test_the_means_are_the_same_as_with_paths_to_the_horizon(self, gradient):
        """They agree within 6 standard errors, which are below 2 % of the source."""
        x = jnp.asarray(X)
        tuning = Tuning(gradient, 0, BASE, np.int32(1))

        def run(defect):
            one = lambda key: replicate(Linearised(remainder=4), defect, key, 0.1, x, tuning=tuning)
            every = jax.jit(lambda keys: jax.lax.map(one, keys), compiler_options=QUICK)
            got = every(jax.random.split(jax.random.key(1), 64))
            assert np.all(np.abs(got.increments[:, TERMINAL]) < 1e-6)
            found = [got.increments[:, SOURCE, None], got.increments[:, [REMAINDER]], got.gradient]
            return np.concatenate(found, 1).astype(np.float64)

        short, full = map(run, self.defects())
        stderr = np.hypot(short.std(0), full.std(0)) / np.sqrt(len(short))
        assert np.all(np.abs(short.mean(0) - full.mean(0)) < SIGMAS * stderr)
        assert stderr[0] < 0.02 * abs(short[:, 0].mean())

    def test_it_costs_no_paths_to_the_horizon(self):
        known, hidden = self.defects()
        method = Linearised(samples=32)
        work = lambda defect: method.work(defect, method.default_tuning(defect, False), False)
        assert work(known)[0] == 0 < work(hidden)[0]
        assert cost(method, known).terminal == 0 < cost(method, hidden).terminal
        assert cost(method, known).normals < cost(method, hidden).normals


def test_an_exact_surrogate_is_not_corrected():
    problem, exact = manufactured()
    answer = scasml.correct(
        problem, exact, 0.1, X, method=Linearised(steps=2, samples=32), replicates=8, safe=False
    )
    assert abs(answer.correction) < 2e-6
    assert answer.stderr < 2e-6


def check_perturbation_recovered(
    gradient="pathwise", sampling="rqmc", size=0.1, replicates=100, sharp=0.05
):
    """Check that the correction of u + p is -p, to 6 standard errors and the stated bias.

    The false-fail rate is 3e-8 per comparison (Student t, 99).
    """
    problem, exact = manufactured()
    surrogate = lambda t, x: exact(t, x) + size * jnp.cos(x[0] - 0.5 * x[1] + t)
    method = Linearised(steps=4, samples=64, gradient=gradient, sampling=sampling)
    answer = scasml.correct(
        problem, surrogate, 0.1, X, method=method, replicates=replicates, seed=5, safe=False
    )
    value, slope = jax.value_and_grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(X))
    assert abs(answer.value - value) < SIGMAS * answer.stderr + answer.bias + 2e-6
    allowed = SIGMAS * answer.gradient_stderr + answer.gradient_bias + 5e-6
    assert np.all(np.abs(answer.gradient - slope) < allowed)
    assert SIGMAS * answer.stderr + answer.bias < sharp * size
    return answer


@pytest.mark.parametrize(
    ("gradient", "sampling", "sharp"),
    [("pathwise", "rqmc", 0.05), pytest.param("centred", "mc", 0.2, marks=pytest.mark.slow)],
)
def test_a_known_perturbation_is_recovered(gradient, sampling, sharp):
    check_perturbation_recovered(gradient, sampling, sharp=sharp)


@pytest.mark.slow
def test_a_large_perturbation_needs_the_remainder():
    """p is up to 0.6 of the solution.

    Without R the error is more than 20 standard errors. With R it is within the interval.
    """
    problem, exact = manufactured()
    surrogate = lambda t, x: exact(t, x) + 0.6 * jnp.cos(x[0] - 0.5 * x[1] + t)
    value = exact(jnp.asarray(0.1), jnp.asarray(X))
    run = lambda remainder: scasml.correct(
        problem,
        surrogate,
        0.1,
        X,
        method=Linearised(4, 128, remainder),
        replicates=64,
        with_gradient=False,
        safe=False,
    )
    without, answer = run(0), run(16)
    assert np.isnan(without.bias)
    assert abs(without.value - value) > 20 * without.stderr
    assert abs(answer.value - value) < SIGMAS * answer.stderr + answer.bias
    assert abs(answer.value - value) < 0.2 * abs(without.value - value)


def test_an_affine_equation_is_exact_without_remainder():
    """F = -r u + <c, z> gives geometric paths of drift mu + sigma c with a discount.

    The forward price is known in closed form.
    """
    rate, c, volatility = 0.05, 0.3, 0.4
    problem = Problem(
        dim=2,
        horizon=1.0,
        dynamics=GeometricBrownian(0.1, volatility),
        nonlinearity=lambda t, x, u, z: -rate * u + c * jnp.sum(z),
        terminal=lambda x: jnp.sum(x),
    )
    method = Linearised(steps=8, samples=256)
    x = np.array([1.0, 2.0])
    answer = scasml.correct(problem, None, 0.0, x, method=method, replicates=64)
    growth = np.exp(0.1 + c * volatility - rate)
    assert abs(answer.value - growth * 3) < SIGMAS * answer.stderr + answer.bias
    allowed = SIGMAS * answer.gradient_stderr + answer.gradient_bias
    assert np.all(np.abs(answer.gradient - growth) < allowed)
    tuning = method.default_tuning(problem, True)
    evaluations = method.evaluations(problem, tuning)
    assert all(evaluations[k].functions == 0 for k in increments_of("remainder"))
    assert answer.stderr < 1e-3


def test_a_linear_equation_takes_no_steps():
    problem, exact = heat()
    answer = scasml.correct(
        problem, rough, 0.1, X, method=Linearised(samples=64), replicates=64, safe=False
    )
    assert answer.steps == 0
    assert bias_but_rounding(answer) == 0
    assert answer.bias < 2e-6
    truth = exact(jnp.asarray(0.1), jnp.asarray(X))
    assert abs(answer.value - truth) < SIGMAS * answer.stderr + answer.bias


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["scalar", "diagonal", "full"])
def test_every_diffusion(shape):
    """Paths of random problems with sigma(t, x) are simulated in steps.

    Value and gradient are right to 6 standard errors and the stated bias.
    """
    for seed in range(3):
        problem, exact, surrogate, x = test_diffusions.random_problem(seed, 3, shape)
        method = Linearised(steps=16, samples=64)
        answer = scasml.correct(
            problem, surrogate, 0.1, x, method=method, replicates=32, seed=seed, safe=False
        )
        value, slope = jax.value_and_grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(x, jnp.float32))
        assert abs(answer.value - value) <= SIGMAS * answer.stderr + answer.bias + 2e-6
        allowed = SIGMAS * answer.gradient_stderr + answer.gradient_bias + 5e-6
        assert np.all(np.abs(answer.gradient - slope) <= allowed)
        assert SIGMAS * answer.stderr + answer.bias < 0.03
