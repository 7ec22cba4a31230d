"""Linearised against its formula in plain loops, the oracles of the method, and every kind of diffusion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_diffusions

import scasml
from helpers import SIGMAS, bias_but_rounding, heat, manufactured, rough, varying
from scasml import GeometricBrownian, Linearised, Problem
from scasml._equations import linearised as linearisation
from scasml._equations.defect import Defect
from scasml._equations.linearised import LinearisedEquation, is_affine
from scasml._equations.problem import Solution
from scasml.estimators import linearised
from scasml.estimators.base import jackknifed
from scasml.surrogates.terminal import Base, directions

X = np.array([0.2, -0.4, 0.3], np.float32)


class TestLinearisation:
    @pytest.mark.usefixtures("x64")
    def test_it_is_the_same_law(self):
        """F(v, z) = F(0) + a v + <b, z> + R(v, z), of a law of defect too, with b read off the tilt."""
        problem = varying("full")
        equation = Defect(problem, rough)
        linear, t, x = LinearisedEquation(equation), jnp.asarray(0.3), jnp.asarray(X, jnp.float64)
        drift, a = linear.tilt(t, x)
        b = jnp.linalg.solve(equation.diffusion(t, x), drift)
        key, rng = jax.random.key(0), np.random.default_rng(0)
        zero = Solution(jnp.zeros(()), jnp.zeros(3))
        for _ in range(5):
            v, z = jnp.asarray(rng.normal()), jnp.asarray(rng.normal(size=3))
            first_order = equation.source(t, x, key) + a * v + b @ z
            rest = linear.difference(t, x, Solution(v, z), zero)
            np.testing.assert_allclose(
                first_order + rest, equation.nonlinearity(t, x, v, z, key), rtol=1e-10
            )
            small = linear.difference(t, x, Solution(1e-4 * v, 1e-4 * z), zero)
            assert abs(small) < 1e-7 * (1 + abs(v) + jnp.linalg.norm(z)) ** 2

    @pytest.mark.parametrize(
        ("f", "affine"),
        [
            (lambda t, x, u, z: -0.05 * u + 0.1 * jnp.sum(z) * x[0] + t, True),
            (lambda t, x, u, z: jnp.sin(x[0]) * u, True),
            (lambda t, x, u, z: u - u**3, False),
            (lambda t, x, u, z: -0.5 * z @ z, False),
            (lambda t, x, u, z: u * z[0], False),
            (lambda t, x, u, z: jnp.maximum(u, 0.0), False),
        ],
    )
    def test_affine(self, f, affine):
        problem = Problem(dim=3, horizon=1.0, nonlinearity=f, terminal=lambda x: jnp.sum(x))
        assert is_affine(problem) == affine
        assert is_affine(Defect(problem, lambda t, x: jnp.sin(jnp.sum(x) + t))) == affine


def test_the_jackknife_is_the_product_of_its_halves():
    a, b = jnp.array([0.3, -1.0]), jnp.array([0.7, 0.9])
    np.testing.assert_allclose(jackknifed(lambda z: z @ z, jnp.stack([a, b])), a @ b, rtol=1e-6)
    np.testing.assert_allclose(
        jackknifed(lambda z: 3 + 2 * z[0], jnp.stack([a, b])), 4.0, rtol=1e-6
    )


@pytest.mark.usefixtures("x64")
class TestLiteral:
    """Vectorised == the formula in Python loops with the same draws, to rounding."""

    @pytest.mark.parametrize("sampling", ["mc", pytest.param("rqmc", marks=pytest.mark.slow)])
    def test_value(self, sampling, monkeypatch):
        monkeypatch.setattr(
            linearised, "TILE", 2
        )  # several tiles of each kind, the last of one not full
        problem, _ = manufactured()
        equation, key, t, x = (
            Defect(problem, rough),
            jax.random.key(3),
            jnp.asarray(0.1),
            jnp.asarray(X, jnp.float64),
        )
        method = Linearised(
            steps=2, samples=16, remainder=4, gradient="pathwise", sampling=sampling
        )
        method = method.but(counts=np.array([5, 4, 2], np.int32))
        got = jax.jit(lambda method: method.replicate(equation, key, t, x, True))(
            jax.tree.map(jnp.asarray, method)
        )
        terms = self.literal(method, equation, key, t, x)
        np.testing.assert_allclose(got.increments, terms, rtol=1e-9)
        np.testing.assert_allclose(got.value, sum(terms), rtol=1e-9)
        slope = jax.grad(lambda x: sum(self.first_order(method, equation, key, t, x)))(x)
        np.testing.assert_allclose(np.sum(got.gradient_increments[:2], 0), slope, rtol=1e-8)

    def first_order(self, method, equation, key, s, x):
        """The terms of g and of the residual."""
        keys = jax.random.split(jax.random.split(key)[0])
        terminal = [
            e * equation.terminal(y)
            for e, _, y, _, _ in self.ends(method, equation, keys[0], s, x, 5, True)
        ]
        source = [
            e * w * equation.source(r, y, key)
            for e, r, y, w, _ in self.ends(method, equation, keys[1], s, x, 4, False)
        ]
        return [sum(a) / len(a) for a in (terminal, source)]

    def literal(self, method, equation, key, s, x):
        """The three terms."""
        key_remainder, remainder = jax.random.split(key)[1], []
        for e, r, y, w, i in self.ends(method, equation, key_remainder, s, x, 2, False, weigh=True):
            both = jax.random.split(jax.random.fold_in(key_remainder, 3 * i + 2))
            halves = [self.inner(method, equation, k, r, y, 2) for k in both]
            f = lambda v, r=r, y=y: self.rest(equation, r, y, v)
            mean = jax.tree.map(lambda a, b: (a + b) / 2, *halves)
            remainder.append(e * w * (2 * f(mean) - (f(halves[0]) + f(halves[1])) / 2))
        return [*self.first_order(method, equation, key, s, x), sum(remainder) / len(remainder)]

    def inner(self, method, equation, key, s, x, count):
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

    def ends(self, method, equation, key, s, x, count, to_end, weigh=False):
        """e^A, r, X_r and w of every path, and its number."""
        draw = linearised._Paths(method, equation, s, jnp.asarray(True))._draws(
            key, x, jnp.asarray(count)
        )
        for i, (uniform, noise) in enumerate(zip(*draw(jnp.arange(count)), strict=True)):
            left = equation.horizon - s
            duration, w = (
                (left * uniform**2, 2 * left * uniform) if weigh else (left * uniform, left)
            )
            duration, w = (left, 1.0) if to_end else (duration, w)
            y, t, h, growth = x, s, duration / 2, 0.0
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
        """F_u and F_z of the problem at the surrogate."""
        problem, surrogate = equation.equation, equation.surrogate
        u, slope = jax.value_and_grad(surrogate, 1)(t, x)
        return jax.grad(lambda u, z: problem.nonlinearity(t, x, u, z), (0, 1))(
            u, problem.diffusion(t, x) * slope
        )

    def tilt(self, equation, t, x):
        a, b = self.slopes(equation, t, x)
        return equation.diffusion(t, x) * b, a

    def rest(self, equation, t, x, v):
        problem, surrogate = equation.equation, equation.surrogate
        u, slope = jax.value_and_grad(surrogate, 1)(t, x)
        z, (a, b) = problem.diffusion(t, x) * slope, self.slopes(equation, t, x)
        f = lambda u, z: problem.nonlinearity(t, x, u, z)
        return f(u + v.u, z + v.z) - f(u, z) - a * v.u - b @ v.z


class TestAnEndThatIsNothing:
    """A surrogate that has g built in: no path goes to the end, and the answer is the same."""

    PROBLEM = scasml.problems.lqg(3)

    def base(self, problem=PROBLEM):
        return Base(problem, directions(3, 2, 0))

    def test_who_has_it(self):
        assert Defect(self.PROBLEM, self.base()).zero_terminal
        assert Defect(
            self.PROBLEM, self.base(scasml.problems.lqg(3))
        ).zero_terminal  # equal, not the same
        # The same in every way but the numbers of g.
        assert not Defect(self.PROBLEM, self.base(scasml.problems.lqg(3, seed=1))).zero_terminal
        assert not Defect(
            self.PROBLEM, lambda t, x: self.base()(t, x)
        ).zero_terminal  # nobody knows
        assert not Defect(Defect(self.PROBLEM, rough), self.base()).zero_terminal

    @pytest.mark.parametrize("gradient", ["pathwise", "centred"])
    def test_the_same_as_with_paths_to_it(self, gradient, x64):
        base, key, t, x = (
            self.base(),
            jax.random.key(1),
            jnp.asarray(0.1),
            jnp.asarray(X, jnp.float64),
        )
        method = Linearised(steps=2, samples=32, remainder=4, gradient=gradient)
        short, full = (
            method.replicate(Defect(self.PROBLEM, model), key, t, x, True)
            for model in (base, lambda t, x: base(t, x))
        )
        assert short.increments[0] == 0
        np.testing.assert_allclose(short.increments[:2], full.increments[:2], rtol=1e-9, atol=1e-14)
        # The slope of such a surrogate at T is that of a moment before, 2^-20 of T: what is differentiated differs by so much.
        np.testing.assert_allclose(short.increments[2], full.increments[2], rtol=1e-4)
        np.testing.assert_allclose(short.gradient, full.gradient, rtol=1e-4, atol=1e-6)

    def test_it_costs_none(self):
        ends, not_known = (
            Defect(self.PROBLEM, model) for model in (self.base(), lambda t, x: self.base()(t, x))
        )
        method = Linearised(samples=32)
        assert method.work(ends, False)[0] == 0 < method.work(not_known, False)[0]
        assert method.cost(ends).terminal == 0 < method.cost(not_known).terminal
        assert method.cost(ends).normals < method.cost(not_known).normals


def test_an_exact_surrogate_is_left_alone():
    problem, exact = manufactured()
    answer = scasml.correct(
        problem, exact, 0.1, X, method=Linearised(steps=2, samples=32), replicates=8, safe=False
    )
    assert abs(answer.correction) < 2e-6
    assert answer.stderr < 2e-6


def check_perturbation_recovered(
    gradient="pathwise", sampling="rqmc", size=0.1, replicates=100, sharp=0.05
):
    """u_hat = u + p with p known: the correction is -p to 6 standard errors (Student t, 99: 3e-8 each) and the bias it states."""
    problem, exact = manufactured()
    surrogate = lambda t, x: exact(t, x) + size * jnp.cos(x[0] - 0.5 * x[1] + t)
    method = Linearised(steps=4, samples=64, gradient=gradient, sampling=sampling)
    answer = scasml.correct(
        problem, surrogate, 0.1, X, method=method, replicates=replicates, seed=5, safe=False
    )
    value, slope = jax.value_and_grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(X))
    assert abs(answer.value - value) < SIGMAS * answer.stderr + answer.bias + 2e-6
    assert np.all(
        np.abs(answer.gradient - slope)
        < SIGMAS * answer.gradient_stderr + answer.gradient_bias + 5e-6
    )
    assert SIGMAS * answer.stderr + answer.bias < sharp * size
    return answer


@pytest.mark.parametrize(
    ("gradient", "sampling", "sharp"),
    [("pathwise", "rqmc", 0.05), pytest.param("centred", "mc", 0.2, marks=pytest.mark.slow)],
)
def test_a_known_perturbation_is_recovered(gradient, sampling, sharp):
    check_perturbation_recovered(gradient, sampling, sharp=sharp)


@pytest.mark.slow
def test_a_large_perturbation_takes_the_remainder():
    """p up to 0.6 of the solution: without R the error is many standard errors, with it none to see."""
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


@pytest.mark.parametrize(
    "fault",
    [
        (
            linearisation.LinearisedEquation,
            "tilt",
            lambda right: lambda self, t, x: (right(self, t, x)[0], -right(self, t, x)[1]),
        ),
        (
            linearisation.LinearisedEquation,
            "tilt",
            lambda right: lambda self, t, x: (-right(self, t, x)[0], right(self, t, x)[1]),
        ),
        (
            linearisation.LinearisedEquation,
            "difference",
            lambda right: lambda self, *a: self.equation.difference(*a),
        ),
        (
            linearised,
            "jackknifed",
            lambda right: lambda f, halves: f(jax.tree.map(lambda a: a[0], halves)),
        ),
        (linearised, "_keys", lambda right: lambda key, indices: right(key, 0 * indices)),
        (Defect, "source", lambda right: lambda self, t, x, key: -right(self, t, x, key)),
    ],
    ids=[
        "sign of a",
        "sign of b",
        "R with its first order",
        "no jackknife",
        "one key for all",
        "sign of the residual",
    ],
)
@pytest.mark.slow
@pytest.mark.usefixtures("programs_anew")
def test_planted_faults_are_seen(fault, monkeypatch):
    """Each of them makes the formula in loops, or the recovery of a perturbation, fail."""
    module, name, wrong = fault
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    seen = 0
    for check in (check_perturbation_recovered, lambda: check_perturbation_recovered(size=0.6)):
        try:
            check()
        except AssertionError:
            seen += 1
    if name == "_keys":  # biases nothing: only the formula sees it
        with pytest.raises(AssertionError), jax.enable_x64(True):
            TestLiteral().test_value("mc", monkeypatch)
        seen += 1
    assert seen


def test_an_affine_law_is_exact_without_remainder():
    """F = -r u + <c, z>: geometric paths of drift mu + sigma c, discounted; the forward price in closed form."""
    rate, c, volatility = 0.05, 0.3, 0.4
    problem = Problem(
        dim=2,
        horizon=1.0,
        dynamics=GeometricBrownian(0.1, volatility),
        nonlinearity=lambda t, x, u, z: -rate * u + c * jnp.sum(z),
        terminal=lambda x: jnp.sum(x),
    )
    x = np.array([1.0, 2.0])
    method = Linearised(steps=8, samples=256)
    answer = scasml.correct(problem, None, 0.0, x, method=method, replicates=64)
    growth = np.exp(0.1 + c * volatility - rate)
    assert abs(answer.value - growth * 3) < SIGMAS * answer.stderr + answer.bias
    assert np.all(
        np.abs(answer.gradient - growth) < SIGMAS * answer.gradient_stderr + answer.gradient_bias
    )
    assert method.costs(problem)[2].functions == 0
    assert answer.stderr < 1e-3


def test_a_linear_law_takes_no_steps():
    problem, exact = heat()
    answer = scasml.correct(
        problem, rough, 0.1, X, method=Linearised(samples=64), replicates=64, safe=False
    )
    assert answer.steps == 0
    assert bias_but_rounding(answer) == 0
    assert answer.bias < 2e-6
    assert (
        abs(answer.value - exact(jnp.asarray(0.1), jnp.asarray(X)))
        < SIGMAS * answer.stderr + answer.bias
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["scalar", "diagonal", "full"])
def test_every_diffusion(shape):
    """Random problems with sigma(t, x), in steps: value and gradient to 6 standard errors and the bias that is stated."""
    for seed in range(3):
        problem, exact, surrogate, x = test_diffusions.random_problem(seed, 3, shape)
        method = Linearised(steps=16, samples=64)
        answer = scasml.correct(
            problem, surrogate, 0.1, x, method=method, replicates=32, seed=seed, safe=False
        )
        value, slope = jax.value_and_grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(x, jnp.float32))
        assert abs(answer.value - value) <= SIGMAS * answer.stderr + answer.bias + 2e-6
        assert np.all(
            np.abs(answer.gradient - slope)
            <= SIGMAS * answer.gradient_stderr + answer.gradient_bias + 5e-6
        )
        assert SIGMAS * answer.stderr + answer.bias < 0.03
