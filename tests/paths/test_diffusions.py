"""Tests of `correct` on diffusions of every kind.

They cover manufactured solutions, the choice of the gradient method and of the steps,
reproducibility, and refused input.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import scasml
from bad_input_case import refused
from helpers import SIGMAS, bias_but_rounding, cost, task, varying
from scasml import GeometricBrownian, OrnsteinUhlenbeck, Picard
from scasml._equations.defect import Defect
from scasml._planning.policy import DEFAULT_POLICY
from scasml._planning.task import Start
from scasml._planning.trials import plan_given
from scasml.execution.stopping import StoppingRule
from scasml.surrogates import wrap


class Wave(eqx.Module):
    """u(t, x) = size sin(a.x + t) + shift."""

    a: np.ndarray
    size: np.ndarray
    shift: np.ndarray

    def __call__(self, t, x):
        return self.size * jnp.sin(self.a @ x + t) + self.shift


class Terminal(eqx.Module):
    """The value of a wave at the horizon."""

    wave: Wave
    horizon: float = eqx.field(static=True)

    def __call__(self, x):
        return self.wave(jnp.asarray(self.horizon, x.dtype), x)


class Drift(eqx.Module):
    """A drift that depends on t and couples the coordinates of x."""

    a: np.ndarray

    def __call__(self, t, x):
        return jnp.sin(self.a @ x - t) * self.a - 0.3 * x


class Diffusion(eqx.Module):
    """A sigma near 0.5 that depends on t and x: a scalar, a diagonal or a full matrix."""

    a: np.ndarray
    shape: str = eqx.field(static=True)

    def __call__(self, t, x):
        if self.shape == "scalar":
            return 0.5 + 0.2 * jnp.sin(self.a @ x + t)
        diagonal = 0.5 + 0.2 * jnp.sin(x * (1 + self.a) + t)
        if self.shape == "diagonal":
            return diagonal
        return jnp.diag(diagonal) + 0.15 * jnp.outer(jnp.cos(x), self.a)


class Nonlinearity(eqx.Module):
    """F = f(u, z) - f(u*, z*) - (u*_t + L u*), so that the wave u* is the solution."""

    wave: Wave
    drift: Drift
    diffusion: Diffusion
    c: np.ndarray

    def f(self, u, z):
        return (
            self.c[0] * u
            - self.c[1] * u**3
            + self.c[2] * u * jnp.sum(z) / len(z)
            + self.c[3] * jnp.sin(z[0])
        )

    def __call__(self, t, x, u, z):
        phase, size, a = self.wave.a @ x + t, self.wave.size, self.wave.a
        sigma = self.diffusion(t, x)
        spread = sigma.T @ a if sigma.ndim == 2 else sigma * a
        generator = (
            size * jnp.cos(phase) * (1 + self.drift(t, x) @ a)
            - 0.5 * size * jnp.sin(phase) * spread @ spread
        )
        true = self.f(size * jnp.sin(phase) + self.wave.shift, size * jnp.cos(phase) * spread)
        return self.f(u, z) - true - generator


class Perturbed(eqx.Module):
    """The solution plus a small wave: a surrogate with an error."""

    wave: Wave
    ripple: Wave

    def __call__(self, t, x):
        return self.wave(t, x) + self.ripple(t, x)


def random_problem(seed, dim, shape, horizon=0.3):
    """Return a random problem, its solution, a surrogate with an error, and a point.

    The random numbers are arrays in the functions of the problem, so that all seeds use one
    compiled program.
    """
    rng = np.random.default_rng(seed)
    direction = lambda: rng.normal(size=dim) / np.sqrt(dim)
    wave = Wave(direction(), np.asarray(rng.uniform(0.5, 1.0)), np.asarray(rng.uniform(-0.3, 0.3)))
    drift, diffusion = Drift(direction()), Diffusion(0.5 * direction(), shape)
    problem = scasml.Problem(
        dim=dim,
        horizon=horizon,
        drift=drift,
        diffusion=diffusion,
        nonlinearity=Nonlinearity(wave, drift, diffusion, rng.uniform(-0.2, 0.2, 4)),
        terminal=Terminal(wave, horizon),
    )
    ripple = Wave(direction(), np.asarray(0.05), np.asarray(0.05 * rng.uniform(-1, 1)))
    return problem, wave, Perturbed(wave, ripple), rng.normal(size=dim)


SHAPES = ["scalar", "diagonal", "full"]


@pytest.mark.parametrize(
    ("dim", "shape"),
    [
        pytest.param(dim, shape, marks=[] if (dim, shape) in ((1, "scalar"),) else pytest.mark.slow)
        for dim in (1, 3, 20)
        for shape in SHAPES
    ],
)
def test_manufactured_solutions(dim, shape):
    """Random mu, sigma and F with a known solution u.

    Value and gradient are within 6 standard errors plus the stated bias. With 23 degrees of freedom
    the false-fail rate is 4e-6 per comparison.
    """

    @settings(max_examples=6, deadline=None, derandomize=True, database=None)
    @given(seed=st.integers(0, 2**32 - 1))
    def check(seed):
        check_manufactured(seed, dim, shape)

    check()


def check_manufactured(seed, dim, shape, replicates=24):
    problem, exact, surrogate, x = random_problem(seed, dim, shape)
    answer = scasml.correct(
        problem,
        surrogate,
        0.1,
        x,
        method=Picard(2, 12, steps=16),
        replicates=replicates,
        seed=seed % 1000,
    )
    value, slope = jax.value_and_grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(x, jnp.float32))
    assert abs(answer.value - value) <= SIGMAS * answer.stderr + answer.bias + 2e-6
    assert np.all(
        np.abs(answer.gradient - slope)
        <= SIGMAS * answer.gradient_stderr + answer.gradient_bias + 5e-6
    )
    # The error of the surrogate is up to 0.1. So the test detects a wrong sign, or a residual with
    # a relative error of a tenth.
    assert SIGMAS * answer.stderr + answer.bias < 0.03


def digital(dynamics, dim):
    """Return a problem whose terminal value is 1 if the first coordinate exceeds 1, otherwise 0.

    The gradient of the expectation is a density.
    """
    return scasml.Problem(
        dim=dim, horizon=0.5, dynamics=dynamics, terminal=lambda x: jnp.where(x[0] > 1.0, 1.0, 0.0)
    )


@pytest.mark.parametrize("dim", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_digital_payoff_uses_weights(dim):
    check_digital(dim)


def check_digital(dim, method=None):
    """The delta of a digital by weights agrees with the lognormal density.

    Each of the d comparisons allows 6 standard errors. With 99 degrees of freedom the false-fail
    rate is 1e-8 each.
    """
    x, volatility = np.full(dim, 1.1), 0.3
    problem = digital(GeometricBrownian(0.05, volatility), dim)
    answer = scasml.correct(problem, None, 0.0, x, method=method or Picard(1, 400), replicates=100)
    assert answer.gradient_method == "centred"
    sd = volatility * np.sqrt(0.5)
    gap = (np.log(1.1) + (0.05 - volatility**2 / 2) * 0.5) / sd
    assert abs(answer.value - stats.norm.cdf(gap)) < SIGMAS * answer.stderr
    delta = stats.norm.pdf(gap) / (sd * 1.1) * np.eye(dim)[0]
    assert np.all(np.abs(answer.gradient - delta) < SIGMAS * answer.gradient_stderr)
    assert answer.gradient_stderr[0] < 0.01 * delta[0]
    # Path derivatives do not see the jump of the payoff.
    pathwise = scasml.correct(
        problem, None, 0.0, x, method=Picard(1, 400, gradient="pathwise"), replicates=2
    )
    assert np.all(pathwise.gradient == 0)


def test_digital_payoff_of_a_general_diffusion():
    """The paths take steps, and the weights use the derivative process.

    The delta is the exact one, to 6 standard errors plus the step bias.
    """
    volatility = 0.3
    problem = scasml.Problem(
        dim=1,
        horizon=0.5,
        drift=lambda t, x: 0.05 * x,
        diffusion=lambda t, x: volatility * x,
        terminal=lambda x: jnp.where(x[0] > 1.0, 1.0, 0.0),
    )
    answer = scasml.correct(
        problem, None, 0.0, np.array([1.1]), method=Picard(1, 400, steps=16), replicates=50
    )
    assert answer.gradient_method == "centred"
    assert answer.gradient_stderr[0] < 0.05 * answer.gradient[0]
    sd = volatility * np.sqrt(0.5)
    gap = (np.log(1.1) + (0.05 - volatility**2 / 2) * 0.5) / sd
    delta = stats.norm.pdf(gap) / (sd * 1.1)
    assert abs(answer.value - stats.norm.cdf(gap)) < SIGMAS * answer.stderr + answer.bias
    assert (
        abs(answer.gradient[0] - delta)
        < SIGMAS * answer.gradient_stderr[0] + answer.gradient_bias[0]
    )


@functools.cache
def kinked():
    """Return a problem with g = 2 |x| and F = -c |z|^2 / 2, its value at 0.2, and its gradient.

    The solution is u = -ln E exp(-c g(X_T)) / c. The terminal z jumps at x = 0.
    """
    c = 0.4
    problem = scasml.Problem(
        dim=1,
        horizon=0.5,
        nonlinearity=lambda t, x, u, z: -0.5 * c * z @ z,
        terminal=lambda x: 2 * jnp.abs(x[0]),
    )
    y = np.linspace(-9, 9, 400_001)
    density = stats.norm.pdf(y) * (y[1] - y[0])
    exact = lambda x: -np.log(np.exp(-2 * c * np.abs(x + np.sqrt(0.5) * y)) @ density) / c
    return problem, exact(0.2), (exact(0.21) - exact(0.19)) / 0.02


@pytest.mark.parametrize(("levels", "samples"), [(2, 32), (3, 16)])
@pytest.mark.slow
def test_kinked_payoff_uses_weights_for_the_differences_of_f(levels, samples):
    """The answer is within 6 standard errors plus the stated bias; path derivatives are not.

    With 199 degrees of freedom the false-fail rate is 1e-8 per comparison.
    """
    problem, value, slope = kinked()
    method = functools.partial(Picard, levels, samples)
    answer = scasml.correct(problem, None, 0.0, np.array([0.2]), method=method(), replicates=200)
    assert answer.gradient_method == "mixed"
    assert abs(answer.value - value) < SIGMAS * answer.stderr + answer.bias
    error = abs(answer.gradient[0] - slope)
    assert error < SIGMAS * answer.gradient_stderr[0] + answer.gradient_bias[0]
    assert answer.gradient_stderr[0] < 0.01
    pathwise = scasml.correct(
        problem, None, 0.0, np.array([0.2]), method=method(gradient="pathwise"), replicates=200
    )
    error = abs(pathwise.gradient[0] - slope)
    assert error > 6 * pathwise.gradient_stderr[0] + pathwise.gradient_bias[0]
    if levels == 3:
        assert abs(pathwise.value - value) > 6 * pathwise.stderr + pathwise.bias


def chosen(
    terminal,
    levels=2,
    uses_z=True,
    with_gradient=True,
    x=None,
    nonlinearity=None,
    surrogate=None,
    **options,
):
    """Return the gradient method that `gradient="auto"` chooses at each point."""
    F = nonlinearity or (
        (lambda t, x, u, z: 0.1 * z @ z) if uses_z else (lambda t, x, u, z: 0.1 * u)
    )
    problem = scasml.Problem(dim=2, horizon=0.5, nonlinearity=F, terminal=terminal)
    model = None if surrogate is None else wrap(surrogate, problem)
    start = Start("this", problem if model is None else Defect(problem, model), model)
    points = np.atleast_2d(np.array([0.1, -0.2]) if x is None else x).astype(np.float32)
    times = np.zeros(len(points), np.float32)
    rule = StoppingRule(replicates=2)
    some = task(problem, times, points, rule, model, gradient=with_gradient)
    names = np.empty(len(points), object)
    for assignment in plan_given(some, start, Picard(levels, 2, **options)).assignments:
        names[assignment.points.index] = assignment.tuning.gradient
    return list(names)


SMOOTH = {
    "a sum": jnp.sum,
    "logsumexp": jax.scipy.special.logsumexp,
    "guarded": lambda x: jnp.where(x @ x > 0, jnp.sqrt(jnp.where(x @ x > 0, 1 + x @ x, 1.0)), 1.0),
    "softplus": lambda x: jnp.sum(jax.nn.softplus(x)),
    "C1": lambda x: jnp.sum(jnp.maximum(x, 0.0) ** 2),
}
KINKED = {
    "a call": lambda x: jnp.maximum(jnp.sum(x), 0.0),
    "the largest": jnp.max,
    "the median": lambda x: jnp.sort(x)[1],
    "absolute": lambda x: jnp.sum(jnp.abs(x)),
    "relu": lambda x: jax.nn.relu(x[0]),
    "where": lambda x: jnp.where(x[0] > 0.3, x[0], 0.3),
    "clip": lambda x: jnp.clip(x[0] + x[1], -0.2, 0.4),
}
JUMPING = {
    "a digital": lambda x: jnp.where(x[0] > 0, 1.0, 0.0),
    "a comparison": lambda x: (jnp.sum(x) > 0.2) * 1.0,
    "floor": lambda x: jnp.floor(3 * x[0]),
    "sign": lambda x: jnp.sign(x[1]) * x[0],
    "a small step on a slope": lambda x: x[0] + 0.01 * (x[0] > 0),
    "cond": lambda x: jax.lax.cond(x[0] > 0, lambda: jnp.sum(x) + 1, lambda: jnp.sum(x)),
}


class TestGradientChoice:
    @pytest.mark.parametrize("name", SMOOTH)
    def test_smooth(self, name):
        assert chosen(SMOOTH[name]) == ["pathwise"]

    @pytest.mark.parametrize("name", KINKED)
    def test_kinked(self, name):
        assert chosen(KINKED[name]) == ["mixed"]
        # Without a gradient only z is differentiated, once.
        assert chosen(KINKED[name], levels=2, with_gradient=False) == ["pathwise"]

    def test_kinked_without_z_in_f(self):
        assert chosen(KINKED["a call"], levels=3, uses_z=False) == ["pathwise"]

    @pytest.mark.parametrize("name", JUMPING)
    def test_jumping(self, name):
        assert chosen(JUMPING[name]) == ["centred"]
        # At one level without a gradient, g is not differentiated.
        assert chosen(JUMPING[name], levels=1, with_gradient=False) == ["pathwise"]

    def test_kink_of_f_matters_if_f_is_differentiated_twice(self):
        kink = lambda t, x, u, z: jnp.maximum(z[0] - u, 0.0)
        assert chosen(jnp.sum, levels=2, nonlinearity=kink) == ["pathwise"]
        assert chosen(jnp.sum, levels=2, nonlinearity=kink, surrogate=lambda t, x: jnp.sum(x)) == [
            "mixed"
        ]
        assert chosen(jnp.sum, levels=3, nonlinearity=kink) == ["mixed"]

    def test_each_point_chooses_separately(self):
        far = np.array([[0.0, 0.0], [50.0, 0.0]])
        assert chosen(JUMPING["a digital"], x=far) == ["centred", "pathwise"]

    def test_requested_method_is_used(self):
        assert chosen(JUMPING["a digital"], gradient="pathwise") == ["pathwise"]
        assert chosen(SMOOTH["a sum"], gradient="weights") == ["weights"]


GENERAL = varying("diagonal")
POINTS = np.random.default_rng(5).normal(size=(5, 3))


class TestSteps:
    def test_step_bias_is_stated(self):
        """Two Euler steps of a geometric Brownian motion with E X = e^0.8.

        The error is about a tenth. The stated bias covers it, and the standard error does not.
        """
        problem = scasml.Problem(
            dim=1,
            horizon=1.0,
            drift=lambda t, x: 0.8 * x,
            diffusion=lambda t, x: 0.1 * x,
            terminal=lambda x: x[0],
        )
        answer = scasml.correct(
            problem, None, 0.0, np.ones(1), method=Picard(1, 500, steps=2), replicates=50
        )
        error = np.exp(0.8) - answer.value
        assert answer.steps == 2
        np.testing.assert_allclose(answer.value, 1.4**2, rtol=0.01)
        assert error > 20 * answer.stderr
        # The estimate is the difference between two steps and one: 1.96 - 1.8 to leading order.
        assert 0.5 * error < answer.bias < 2 * error
        assert 0.5 * error < answer.gradient_bias[0] < 2 * error

    def test_auto_steps_bring_the_bias_below_the_standard_error(self):
        problem = scasml.Problem(
            dim=1,
            horizon=1.0,
            drift=lambda t, x: 0.8 * x,
            diffusion=lambda t, x: 0.5 * x,
            terminal=lambda x: x[0],
        )
        short_run, long_run = (
            scasml.correct(problem, None, 0.0, np.ones(1), method=Picard(1, 100), replicates=n)
            for n in (8, 256)
        )
        assert long_run.steps > short_run.steps >= 16
        for answer in (short_run, long_run):
            # The pilot predicts the standard error to about a quarter.
            assert 0 < answer.bias < 1.5 * answer.stderr
            assert abs(answer.value - np.exp(0.8)) < SIGMAS * answer.stderr + answer.bias

    def test_exact_paths_take_no_steps(self):
        problem = scasml.Problem(
            dim=1,
            horizon=1.0,
            dynamics=OrnsteinUhlenbeck(1.0, 0.0, 0.5),
            terminal=lambda x: x[0] ** 2,
        )
        exact = scasml.correct(problem, None, 0.0, np.ones(1), method=Picard(1, 400), replicates=20)
        stepped = scasml.correct(
            problem, None, 0.0, np.ones(1), method=Picard(1, 400, steps=32), replicates=20
        )
        assert (exact.steps, stepped.steps) == (0, 32)
        assert bias_but_rounding(exact) == 0 < bias_but_rounding(stepped)
        assert exact.bias < 1e-6 < stepped.bias
        assert (
            abs(exact.value - stepped.value)
            < SIGMAS * np.hypot(exact.stderr, stepped.stderr) + stepped.bias
        )

    def test_cost_counts_steps_and_pilots(self):
        answer = scasml.correct(
            GENERAL, None, 0.1, POINTS[0], method=Picard(1, 4, steps=6), replicates=3
        )
        fine = cost(Picard(1, 4, steps=6), GENERAL)
        assert fine.normals == 3 * 6 * 8
        assert answer.cost.functions == fine.functions * (3 + 2 * DEFAULT_POLICY.pilot_replicates)


class TestReproducible:
    """Answers are equal bit for bit, also for stepped paths and automatic choices."""

    METHODS = {  # noqa: RUF012
        "auto": Picard(1, 3),
        "weights": Picard(2, 3, steps=4, gradient="weights", scheme="milstein"),
    }

    @staticmethod
    def same(a, b):
        for name in (
            "value",
            "stderr",
            "bias",
            "gradient",
            "gradient_stderr",
            "gradient_bias",
            "steps",
        ):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)

    @pytest.mark.parametrize("name", METHODS)
    def test_answer_at_a_point_does_not_depend_on_the_other_points(self, name):
        run = functools.partial(
            scasml.correct, GENERAL, None, 0.1, method=self.METHODS[name], replicates=4
        )
        together = run(POINTS)
        backwards = run(POINTS[::-1], chunk=3)
        for i in (0, 3):
            alone = run(POINTS[i])
            for field in (
                "value",
                "stderr",
                "bias",
                "gradient",
                "gradient_stderr",
                "gradient_bias",
                "steps",
            ):
                np.testing.assert_array_equal(
                    getattr(alone, field), getattr(together, field)[i], err_msg=field
                )
                np.testing.assert_array_equal(
                    getattr(alone, field), getattr(backwards, field)[4 - i], err_msg=field
                )

    def test_seed_changes_the_answer(self):
        run = functools.partial(
            scasml.correct, GENERAL, None, 0.1, POINTS[0], method=Picard(1, 3), replicates=4
        )
        self.same(run(seed=1), run(seed=1))
        assert run(seed=1).value != run(seed=2).value

    def test_other_points_and_replicates_do_not_trace_again(self):
        """A second call with other numbers of points and replicates traces neither F nor g."""
        calls = []
        problem = scasml.Problem(
            dim=2,
            horizon=1.0,
            drift=lambda t, x: -x,
            diffusion=lambda t, x: 1 + 0.1 * jnp.sin(x),
            nonlinearity=lambda t, x, u, z: calls.append("F") or jnp.sin(u),
            terminal=lambda x: calls.append("g") or jnp.max(x),
        )
        run = functools.partial(
            scasml.correct, problem, lambda t, x: jnp.sum(x), method=Picard(1, 3, steps=4)
        )
        run(0.1, np.ones((2, 2)), replicates=2)
        calls.clear()
        run(0.2, np.ones((3, 2)), replicates=3)
        assert not calls


# Bad input. Each case is a call that must fail, and fragments of its message.


def problem_with(**parts):
    """Return a function that builds a problem in which some arguments are replaced."""
    return lambda: scasml.Problem(**({"dim": 3, "horizon": 1.0, "terminal": jnp.sum} | parts))


def correct_with(x=(1.0, 1.0, 1.0), method=None, **parts):
    """Return a function that corrects such a problem at the points `x`."""

    def call():
        scasml.correct(
            problem_with(**parts)(),
            None,
            0.0,
            np.asarray(x),
            method=method or Picard(1, 2),
            replicates=2,
        )

    return call


BAD = {
    "drift of the wrong shape": (
        problem_with(drift=lambda t, x: x[:2]),
        ("drift(t, x)", "(3,)", "shape (2,)"),
    ),
    "drift a scalar": (problem_with(drift=lambda t, x: x[0]), ("drift(t, x)", "shape ()")),
    "drift a matrix": (
        problem_with(drift=lambda t, x: jnp.outer(x, x)),
        ("drift(t, x)", "shape (3, 3)"),
    ),
    "drift for a batch": (
        problem_with(drift=lambda t, x: x[:, 0]),
        ("drift(t, x)", "d = 3", "IndexError"),
    ),
    "drift of x alone": (
        problem_with(drift=lambda x: x),
        ("drift(t, x)", "takes 1 positional argument"),
    ),
    "drift a tuple": (problem_with(drift=lambda t, x: (x, x)), ("drift(t, x)", "got tuple")),
    "drift complex": (problem_with(drift=lambda t, x: 1j * x), ("drift(t, x)", "complex")),
    "drift boolean": (problem_with(drift=lambda t, x: x > 0), ("drift(t, x)", "bool")),
    "drift with a while loop": (
        problem_with(drift=lambda t, x: jax.lax.while_loop(lambda y: y[0] < 1, lambda y: y + 1, x)),
        ("drift(t, x)", "reverse mode"),
    ),
    "diffusion of the wrong shape": (
        problem_with(diffusion=lambda t, x: jnp.ones((3, 2))),
        ("diffusion(t, x)", "shape (3, 2)"),
    ),
    "diffusion None": (problem_with(diffusion=lambda t, x: None), ("diffusion(t, x)", "NoneType")),
    "dynamics and drift": (
        problem_with(dynamics=GeometricBrownian(0.1, 0.2), drift=0.3),
        ("drift", "dynamics", "0.3"),
    ),
    "dynamics and diffusion": (
        problem_with(dynamics=GeometricBrownian(0.1, 0.2), diffusion=lambda t, x: x),
        ("diffusion", "dynamics"),
    ),
    "dynamics a name": (problem_with(dynamics="gbm"), ("dynamics", "got 'gbm'")),
    "dynamics of another dimension": (
        problem_with(dynamics=GeometricBrownian(np.zeros(2), 0.2)),
        ("drift", "d = 3", "shape (2,)"),
    ),
    "volatility zero": (lambda: GeometricBrownian(0.1, 0.0), ("volatility", "invertible")),
    "volatility text": (lambda: GeometricBrownian(0.1, "high"), ("volatility", "got 'high'")),
    "volatility not square": (
        lambda: GeometricBrownian(0.1, np.ones((3, 2))),
        ("volatility", "shape (3, 2)"),
    ),
    "rates and a matrix": (
        lambda: OrnsteinUhlenbeck(np.array([1.0, 2.0]), 0.0, np.eye(2) + 0.1),
        ("rate", "scalar", "(2,)", "(2, 2)"),
    ),
    "rate infinite": (lambda: OrnsteinUhlenbeck(np.inf), ("rate", "inf")),
    "x0 of another dimension": (problem_with(x0=np.ones(2)), ("x0", "3 finite")),
    "x0 not finite": (problem_with(x0=[1.0, np.nan, 1.0]), ("x0", "3 finite")),
    "steps 0": (lambda: Picard(2, 4, steps=0), ("steps", "got 0")),
    "steps negative": (lambda: Picard(2, 4, steps=-4), ("steps", "got -4")),
    "steps odd": (lambda: Picard(2, 4, steps=5), ("steps", "even", "got 5")),
    "steps a float": (lambda: Picard(2, 4, steps=8.0), ("steps", "got 8.0")),
    "steps a word": (lambda: Picard(2, 4, steps="many"), ("steps", "got 'many'")),
    "scheme unknown": (lambda: Picard(2, 4, scheme="heun"), ("scheme", "got 'heun'")),
    "gradient unknown": (lambda: Picard(2, 4, gradient="bel"), ("gradient", "got 'bel'")),
    "sigma singular at the point": (
        correct_with(x=[[1.0, 1.0, 1.0], [1.0, 0.0, 2.0]], diffusion=lambda t, x: x),
        ("diffusion(t, x)", "singular", "point 1"),
    ),
    "geometric Brownian motion at 0": (
        correct_with(x=[1.0, 0.0, 1.0], dynamics=GeometricBrownian(0.1, 0.2)),
        ("diffusion(t, x)", "singular", "point 0"),
    ),
    "full sigma singular at the point": (
        correct_with(diffusion=lambda t, x: jnp.outer(x, x)),
        ("diffusion(t, x)", "singular", "point 0"),
    ),
    "a variance below 0 at the point": (
        correct_with(x=[1.0, 1.0, -0.1], diffusion=lambda t, x: jnp.sqrt(x)),
        ("diffusion(t, x)", "not finite", "point 0", "variance below 0"),
    ),
    "drift not finite at the point": (
        correct_with(x=[1.0, 0.0, 1.0], drift=lambda t, x: 1 / x),
        ("drift(t, x)", "point 0"),
    ),
    "a variance that falls below 0": (
        correct_with(
            x=[0.04, 0.04, 0.04], drift=lambda t, x: -x, diffusion=lambda t, x: jnp.sqrt(x)
        ),
        ("NaN", "paths from point 0", "max(v, 0)"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, fragments = BAD[name]
    refused(call, *fragments)
