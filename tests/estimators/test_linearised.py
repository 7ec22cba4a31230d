"""`Linearised` against its formula in Python loops, and on problems whose solution is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_diffusions

import scasml
from helpers import SIGMAS, bias_but_rounding, cost, heat, manufactured, replicate, rough
from scasml import GeometricBrownian, Linearised, Problem
from scasml._equations.base import Solution
from scasml._equations.defect import Defect
from scasml._equations.linearised import LinearisedEquation
from scasml._sampling.designs import design
from scasml.estimators import Tuning, _path_means
from scasml.estimators.base import jackknifed
from scasml.surrogates import wrap
from scasml.surrogates.terminal import SmoothedTerminal, directions

X = np.array([0.2, -0.4, 0.3], np.float32)


def test_the_jackknife_of_a_square_is_the_product_of_the_halves():
    a, b = jnp.array([0.3, -1.0]), jnp.array([0.7, 0.9])
    np.testing.assert_allclose(jackknifed(lambda z: z @ z, jnp.stack([a, b])), a @ b, rtol=1e-6)
    np.testing.assert_allclose(
        jackknifed(lambda z: 3 + 2 * z[0], jnp.stack([a, b])), 4.0, rtol=1e-6
    )


@pytest.mark.usefixtures("x64")
class TestLiteral:
    """The vectorised estimator equals the formula in Python loops with the same draws.

    They agree to rounding.
    """

    STEPS, SAMPLES = 2, (5, 5, 2)

    @pytest.mark.parametrize("sampling", ["mc", pytest.param("rqmc", marks=pytest.mark.slow)])
    def test_value(self, sampling):
        """An estimator with 4 samples computes 4 paths side by side.

        So the 5 paths of g and the 5 of the source take two tiles each, the last of them not full.
        """
        problem, _ = manufactured()
        equation = Defect(problem, wrap(rough, problem))
        key, t, x = jax.random.key(3), jnp.asarray(0.1), jnp.asarray(X, jnp.float64)
        method = Linearised(
            steps=self.STEPS, samples=4, remainder=4, gradient="pathwise", sampling=sampling
        )
        run = jax.jit(
            lambda samples: replicate(
                method, equation, key, t, x, tuning=Tuning("pathwise", self.STEPS, samples)
            )
        )
        got = run(jnp.asarray(self.SAMPLES, jnp.int32))
        terms = self.literal(method, equation, key, t, x)
        np.testing.assert_allclose(got.increments, terms, rtol=1e-9)
        np.testing.assert_allclose(got.value, sum(terms), rtol=1e-9)
        slope = jax.grad(lambda x: sum(self.first_order(method, equation, key, t, x)))(x)
        np.testing.assert_allclose(np.sum(got.gradient_increments[:2], 0), slope, rtol=1e-8)

    def first_order(self, method, equation, key, s, x):
        """Return the terms of g and of the residual."""
        keys = jax.random.split(jax.random.split(key)[0])
        counts = self.SAMPLES
        terminal = [
            e * equation.terminal(y)
            for e, _, y, _, _ in self.ends(method, equation, keys[0], s, x, counts[0], True)
        ]
        source = [
            e * w * equation.source(r, y, key)
            for e, r, y, w, _ in self.ends(method, equation, keys[1], s, x, counts[1], False)
        ]
        return [sum(a) / len(a) for a in (terminal, source)]

    def literal(self, method, equation, key, s, x):
        """Return the three terms."""
        key_remainder, remainder = jax.random.split(key)[1], []
        ends = self.ends(
            method, equation, key_remainder, s, x, self.SAMPLES[2], False, weighted=True
        )
        for e, r, y, w, i in ends:
            both = jax.random.split(jax.random.fold_in(key_remainder, 3 * i + 2))
            halves = [self.inner(method, equation, k, r, y, 2) for k in both]
            f = lambda v, r=r, y=y: self.rest(equation, r, y, v)
            mean = jax.tree.map(lambda a, b: (a + b) / 2, *halves)
            remainder.append(e * w * (2 * f(mean) - (f(halves[0]) + f(halves[1])) / 2))
        return [*self.first_order(method, equation, key, s, x), sum(remainder) / len(remainder)]

    def inner(self, method, equation, key, s, x, count):
        """Return V and sigma^T grad V from `count` paths of each kind."""

        def value(x):
            keys = jax.random.split(key)
            g = [
                e * equation.terminal(y)
                for e, _, y, _, _ in self.ends(method, equation, keys[0], s, x, count, True)
            ]
            f = [
                e * w * equation.source(r, y, key)
                for e, r, y, w, _ in self.ends(method, equation, keys[1], s, x, count, False)
            ]
            return sum(g) / count + sum(f) / count

        v, slope = jax.value_and_grad(value)(x)
        return Solution(v, equation.diffusion(s, x) * slope)

    def ends(self, method, equation, key, s, x, count, to_horizon, weighted=False):
        """Yield e^A, r, X_r and w of every path, and the index of the path."""
        streams = lambda k: (jax.random.fold_in(key, 3 * k), jax.random.fold_in(key, 3 * k + 1))
        heading = equation.heading(s, x) if method.sampling == "rqmc" else None
        shape = (self.STEPS, len(x))
        draw = design(method.sampling, streams, jnp.asarray(count), shape, x, heading)
        for i in range(count):
            uniform, noise = draw(jnp.asarray(i))
            left = equation.horizon - s
            duration, w = left * uniform, left
            if weighted:
                duration, w = left * uniform**2, 2 * left * uniform
            if to_horizon:
                duration, w = left, 1.0
            y, t, h, growth = x, s, duration / self.STEPS, 0.0
            v, a = self.tilt(equation, t, y)
            for xi in noise:
                z = y + h / 2 * v
                z = z + h * equation.drift(t, z) + jnp.sqrt(h) * equation.diffusion(t, z) * xi
                t = t + h
                v_next, a_next = self.tilt(equation, t, z + h / 2 * v)
                y, growth = z + h / 2 * v_next, growth + h / 2 * (a + a_next)
                v, a = v_next, a_next
            yield jnp.exp(growth), s + duration, y, w, i

    def slopes(self, equation, t, x):
        """Return F_u and F_z of the problem at the surrogate."""
        problem, surrogate = equation.equation, equation.surrogate
        u, slope = jax.value_and_grad(surrogate, 1)(t, x)
        return jax.grad(lambda u, z: problem.nonlinearity(t, x, u, z), (0, 1))(
            u, problem.diffusion(t, x) * slope
        )

    def tilt(self, equation, t, x):
        """Return the extra drift sigma b and the potential a."""
        a, b = self.slopes(equation, t, x)
        return equation.diffusion(t, x) * b, a

    def rest(self, equation, t, x, v):
        """Return the remainder R."""
        problem, surrogate = equation.equation, equation.surrogate
        u, slope = jax.value_and_grad(surrogate, 1)(t, x)
        z, (a, b) = problem.diffusion(t, x) * slope, self.slopes(equation, t, x)
        f = lambda u, z: problem.nonlinearity(t, x, u, z)
        return f(u + v.u, z + v.z) - f(u, z) - a * v.u - b @ v.z


class TestZeroTerminal:
    """A start that equals g at the horizon needs no paths to the horizon.

    The answer is the same as with such paths.
    """

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

    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("gradient", ["pathwise", "centred"])
    def test_the_answer_is_the_same_as_with_paths_to_the_horizon(self, gradient):
        key, x = jax.random.key(1), jnp.asarray(X, jnp.float64)
        method = Linearised(steps=2, samples=32, remainder=4, gradient=gradient)
        run = lambda defect: jax.jit(lambda x: replicate(method, defect, key, 0.1, x))(x)
        short, full = map(run, self.defects())
        assert short.increments[0] == 0
        np.testing.assert_allclose(short.increments[:2], full.increments[:2], rtol=1e-9, atol=1e-14)
        # The slope of smoothed g at T is taken at 2^-20 T before T, so derivatives differ a little.
        np.testing.assert_allclose(short.increments[2], full.increments[2], rtol=1e-4)
        np.testing.assert_allclose(short.gradient, full.gradient, rtol=1e-4, atol=1e-6)

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "plant"),
    [
        (
            LinearisedEquation,
            "tilt",
            lambda right: lambda self, t, x: (right(self, t, x)[0], -right(self, t, x)[1]),
        ),
        (
            LinearisedEquation,
            "tilt",
            lambda right: lambda self, t, x: (-right(self, t, x)[0], right(self, t, x)[1]),
        ),
        (
            LinearisedEquation,
            "difference",
            lambda right: lambda self, *a: self.equation.difference(*a),
        ),
        (
            _path_means,
            "jackknifed",
            lambda right: lambda f, halves: f(jax.tree.map(lambda a: a[0], halves)),
        ),
        (_path_means, "_end_keys", lambda right: lambda key, indices: right(key, 0 * indices)),
        (Defect, "source", lambda right: lambda self, t, x, key: -right(self, t, x, key)),
    ],
    ids=[
        "sign of a",
        "sign of b",
        "R with its first order",
        "no jackknife",
        "one key for all ends",
        "sign of the residual",
    ],
)
@pytest.mark.usefixtures("programs_anew")
def test_planted_faults_are_seen(owner, name, plant, monkeypatch):
    """Each fault makes the literal formula, or the recovery of a perturbation, fail."""
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    seen = 0
    for check in (check_perturbation_recovered, lambda: check_perturbation_recovered(size=0.6)):
        try:
            check()
        except AssertionError:
            seen += 1
    if name == "_end_keys":  # one key causes no bias, so only the literal formula sees it
        with pytest.raises(AssertionError), jax.enable_x64(True):
            TestLiteral().test_value("mc")
        seen += 1
    assert seen


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
    assert method.evaluations(problem, tuning)[2].functions == 0
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
