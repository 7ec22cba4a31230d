"""`method="auto"`: what it starts from, why, and that its answers are right and reproducible."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from fake_executors import RecordingExecutor, ScriptedExecutor
from helpers import SIGMAS, Tuned, heat, manufactured, rough, task
from scasml import Linearised, Picard, Problem, problems
from scasml._planning import candidates
from scasml._planning.auto import choose
from scasml._planning.fallbacks import NOT_FINITE
from scasml._planning.measurement import FIRST_PILOT
from scasml._planning.policy import Policy
from scasml._planning.starts import offered_starts
from scasml.estimators import Evaluations
from scasml.execution import LocalExecutor, Program
from scasml.execution.stopping import StoppingRule
from scasml.surrogates import wrap

PROBLEM, EXACT = manufactured()
X = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
T = np.array([0.1, 0.3, 0.5], np.float32)


def good(t, x):
    """Return the solution with an error of 0.02."""
    return EXACT(t, x) + 0.02 * jnp.cos(x[0] - x[1] + t)


def useless(t, x):
    """Return a surrogate whose error is forty times the solution."""
    return 40 * jnp.sin(3 * jnp.sum(x) + 5 * t)


@functools.cache
def answer(surrogate=good):
    """Return the answer at the three points to 2 %."""
    return scasml.correct(PROBLEM, surrogate, T, X, rtol=0.02, with_gradient=False, safe=False)


def right(got, t=T, x=X):
    """Return where the value is within SIGMAS standard errors plus the bias."""
    exact = [EXACT(jnp.asarray(a), jnp.asarray(b)) for a, b in zip(t, x, strict=True)]
    return np.abs(got.value - exact) < SIGMAS * got.stderr + got.bias


class TestStart:
    def test_a_good_surrogate_is_the_start(self):
        got = answer()
        assert {each.start for each in got.choices} == {"the surrogate"}
        assert all(isinstance(each.method, Linearised) for each in got.choices)
        assert all(each.reason == "started from the surrogate" for each in got.choices)
        assert sorted(np.concatenate([each.points for each in got.choices])) == [0, 1, 2]
        assert right(got).all()
        assert got.method == "auto"

    def test_a_surrogate_with_a_large_residual_is_not(self):
        """Its error is a thousandth of the solution, and its residual along a path a tenth.

        From zero there is less work.
        """
        problem = problems.convection_diffusion(5)
        waves = lambda t, x: jnp.sum(x) + t + 0.005 * jnp.sin(10 * jnp.sum(x))
        x = np.array([[0.7, 1.2, 0.4, 1.0, 0.9], [1.0, 1.0, 0.5, 0.5, 1.5]])
        got = scasml.correct(problem, waves, 0.2, x, rtol=1e-5, with_gradient=False)
        assert {each.start for each in got.choices} == {"zero"}
        assert np.all(np.abs(got.surrogate_value - got.value) < 0.01 * got.value)
        assert np.all(np.abs(got.value - (x.sum(1) + 0.2)) < SIGMAS * got.stderr)

    def test_a_good_surrogate_of_a_linear_problem(self):
        problem = problems.convection_diffusion(5)
        close = lambda t, x: jnp.sum(x) + t + 1e-4 * jnp.sin(jnp.sum(x))
        x = np.array([0.7, 1.2, 0.4, 1.0, 0.9])
        got = scasml.correct(problem, close, 0.2, x, rtol=1e-5, with_gradient=False)
        assert got.choices[0].start == "the surrogate"
        assert abs(got.value - 4.4) < SIGMAS * got.stderr

    @pytest.mark.slow
    def test_a_tangent(self):
        """About zero the remainder is all of F, so the tangent of the pilot's estimate is better.

        A cubic F with g = 3 has the solution g/sqrt(1 + 0.2 g^2 (T - t)). The code of g contains
        a kink, so smoothed g is not offered.
        """
        problem = Problem(
            dim=2,
            horizon=0.5,
            nonlinearity=lambda t, x, u, z: -0.1 * u**3,
            terminal=lambda x: 3 + 0 * jnp.abs(x[0]),
        )
        got = scasml.correct(problem, None, 0.0, np.zeros(2), rtol=1e-4, with_gradient=False)
        assert got.choices[0].start == "tangent"
        exact = 3 / np.sqrt(1 + 0.2 * 9 * 0.5)
        # No path differs from another, so the error is all bias, which is known to a factor of 2.
        assert abs(got.value - exact) <= SIGMAS * got.stderr + 2 * got.bias
        assert got.bias < 2e-4

    @pytest.mark.slow
    def test_a_useless_surrogate_is_not(self):
        """The answer is as precise as without a surrogate, and right."""
        got, none = answer(useless), answer(None)
        assert "the surrogate" not in {each.start for each in got.choices}
        assert all(
            "less work" in each.reason or "smoothed g" in each.reason for each in got.choices
        )
        assert right(got).all()
        assert (got.status == "converged").all()
        assert (none.status == "converged").all()
        assert np.all(got.replicates <= 2 * none.replicates)
        np.testing.assert_allclose(got.value - got.surrogate_value, got.correction, atol=1e-6)

    def test_a_surrogate_that_is_not_finite_at_a_point(self):
        """No other start is tried at that point, and the other points are not affected."""
        holed = lambda t, x: jnp.where(t < 0.2, jnp.nan, good(t, x))
        options = {"rtol": 0.02, "with_gradient": False, "safe": False}
        executor = RecordingExecutor()
        got = scasml.correct(PROBLEM, holed, T, X, executor=executor, **options)
        assert got.status.tolist() == ["not finite", "converged", "converged"]
        there = [(start, set(rows.t)) for start, _, rows in executor.pilots() if T[0] in rows.t]
        assert there
        assert all(each == ("the surrogate", {T[0]}) for each in there)
        assert [each.reason for each in got.choices if 0 in each.points] == [NOT_FINITE]
        alone = scasml.correct(PROBLEM, holed, T[1:], X[1:], **options)
        assert got.raw_value[1:].tolist() == alone.raw_value.tolist()

    def test_a_linear_problem(self):
        problem, exact = heat()
        got = scasml.correct(problem, rough, 0.1, X[0], rtol=0.02, safe=False)
        assert got.steps == 0
        truth = exact(jnp.asarray(0.1), jnp.asarray(X[0]))
        assert abs(got.value - truth) < SIGMAS * got.stderr + 2e-6


class TestReproduction:
    def test_a_choice_gives_the_same_replicates_again(self):
        got = answer()
        chosen = got.choices[0]
        i = int(chosen.points[0])
        again = scasml.correct(
            PROBLEM,
            good,
            T[i],
            X[i],
            method=Tuned(chosen.method, chosen.tuning.at(np.array([0]))),
            replicates=int(got.replicates[i]),
            with_gradient=False,
            safe=False,
        )
        assert again.raw_value == got.raw_value[i]

    @pytest.mark.parametrize("surrogate", [good, pytest.param(useless, marks=pytest.mark.slow)])
    def test_a_point_does_not_depend_on_the_others(self, surrogate):
        many = answer(surrogate)
        one = scasml.correct(
            PROBLEM, surrogate, T[2], X[2], rtol=0.02, with_gradient=False, safe=False
        )
        for name in ("raw_value", "stderr", "bias", "replicates", "steps"):
            np.testing.assert_array_equal(getattr(one, name), getattr(many, name)[2])


@pytest.mark.slow
def test_slopes_that_jump_take_picard():
    """F has a kink at u = 0, which the surrogate crosses.

    Without a gradient no slope is differentiated, so `Linearised` is taken.
    """
    problem = Problem(
        dim=1,
        horizon=0.5,
        nonlinearity=lambda t, x, u, z: -jnp.abs(u),
        terminal=lambda x: jnp.sin(jnp.sum(x)),
    )
    surrogate = lambda t, x: jnp.sin(jnp.sum(x))
    run = lambda x, **options: scasml.correct(
        problem, surrogate, 0.0, np.array([x]), replicates=2, **options
    )
    crossing, away = run(0.0), run(np.pi / 2)
    assert isinstance(crossing.choices[0].method, Picard)
    assert "jump" in crossing.choices[0].reason
    assert isinstance(run(0.0, with_gradient=False).choices[0].method, Linearised)
    assert away.gradient_method == "pathwise"


class UnshiftedExecutor(LocalExecutor):
    """A faulty executor: it does not add the start, and does not subtract the surrogate."""

    def run(self, program, rows):
        wrong = Program(
            program.equation,
            program.estimator,
            program.tuning,
            surrogate=program.surrogate,
            start=program.surrogate,
            gradient=program.gradient,
        )
        return super().run(wrong, rows)


@pytest.mark.slow
class TestPlantedFaults:
    OPTIONS = {"rtol": 0.02, "with_gradient": False, "safe": False}  # noqa: RUF012

    def test_a_choice_by_the_largest_work(self, monkeypatch):
        """It starts from something else."""
        start = lambda method: (
            scasml.correct(PROBLEM, useless, T[:1], X[:1], method=method, **self.OPTIONS)
            .choices[0]
            .start
        )
        sound, score = start("auto"), candidates.trial_score

        def upside_down(trial):
            found = score(trial)
            return np.where(np.isfinite(found), 1 / found, np.inf)

        monkeypatch.setattr(candidates, "trial_score", upside_down)
        # All starts are tried.
        assert start(Policy(worth=0.0, suspect_work=0.0)) != sound

    def test_a_start_that_is_not_added(self):
        """The answer is wrong."""
        executor = UnshiftedExecutor()
        got = scasml.correct(PROBLEM, useless, T, X, executor=executor, **self.OPTIONS)
        assert "the surrogate" not in {each.start for each in got.choices}
        assert not right(got).all()


class TestKinks:
    """If borrowing costs more than lending, F has a kink.

    About zero or a plane the remainder is then no small part of F. In one dimension the price is
    that of Black and Scholes at the borrowing rate.
    """

    PROBLEM = problems.different_rates(1)
    EXACT = 7.155896

    @pytest.mark.slow
    def test_the_bias_stays_below_the_error_bar(self):
        """From zero, with gradients, the price is right, whichever estimator is chosen."""
        got = scasml.correct(self.PROBLEM, None, 0.0, self.PROBLEM.x0, rtol=2e-3)
        assert got.choices[0].tuning.samples is not None
        assert got.status == "converged"
        assert abs(got.value - self.EXACT) < SIGMAS * got.stderr + 2 * got.bias

    @pytest.mark.slow
    def test_in_a_hundred_dimensions(self):
        """From zero, the price is right, whichever estimator is chosen.

        Starts of first order leave a bias about as large as the error bar; three Picard levels do
        not. The reference has a standard error of 0.0005.
        """
        problem = problems.different_rates(100)
        got = scasml.correct(problem, None, 0.0, problem.x0, rtol=5e-4, with_gradient=False)
        assert abs(got.value - 21.1714) < SIGMAS * np.hypot(got.stderr, 0.0005) + 2 * got.bias
        assert got.status == "converged"


class Cheap(eqx.Module):
    """`good`, at its own cost."""

    def __call__(self, t, x):
        return good(t, x)


def tried(surrogate, t=T[:1], x=X[:1], **options):
    """Return the executor, the starts with a pilot in the order of their pilots, and the answer."""
    executor = RecordingExecutor()
    got = scasml.correct(PROBLEM, surrogate, t, x, safe=False, executor=executor, **options)
    return executor, list(dict.fromkeys(start for start, _, _ in executor.pilots())), got


class TestOrder:
    """The surrogate is tried first, and the other starts in the order of the work of their pilots.

    Another start is tried where the surrogate is far from the solution, or leaves much work.
    """

    @pytest.mark.parametrize("gradient", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_a_good_surrogate_is_the_only_one(self, gradient):
        _, names, got = tried(Cheap(), T, X, rtol=0.02, with_gradient=gradient)
        assert names == ["the surrogate"]
        assert [each.name for each in got.choices.candidates] == ["the surrogate"]
        assert right(got).all()

    @pytest.mark.slow
    def test_a_surrogate_that_leaves_much_work_is_compared(self):
        """It counts as much work from 1 operation on."""
        _, names, _ = tried(
            Cheap(), rtol=1e-3, with_gradient=False, method=Policy(worth=0.1, suspect_work=1.0)
        )
        assert names[:3] == ["the surrogate", "zero", "smoothed g"]

    @pytest.mark.parametrize(
        "options",
        [
            {"rtol": 0.02, "with_gradient": False},
            pytest.param({"rtol": 0.02}, marks=pytest.mark.slow),
            pytest.param({"replicates": 16, "with_gradient": False}, marks=pytest.mark.slow),
        ],
    )
    def test_a_useless_surrogate_is_compared(self, options):
        """With gradients and without a tolerance too."""
        _, names, got = tried(useless, **options)
        assert names[0] == "the surrogate"
        assert "zero" in names
        assert got.choices[0].start != "the surrogate"
        table = str(got.choices)
        assert "taken" in table
        assert "the surrogate" in table

    def test_every_start_is_tried_if_none_is_good_enough(self):
        """All pilots are invented, and have a large variance."""
        executor = ScriptedExecutor(lambda steps, count, t: {"noise": 1e3})
        options = {"gradient": False, "executor": executor}
        some = task(PROBLEM, T, X, StoppingRule(atol=1e-2), wrap(good, PROBLEM), **options)
        starts = offered_starts(PROBLEM, some.surrogate, None)
        plan = choose(some, starts)
        assert sorted(np.concatenate([each.points.index for each in plan.assignments])) == [0, 1, 2]
        assert {"zero", "smoothed g", "the surrogate"} <= set(executor.starts)

    def test_the_cost_includes_all_pilots(self):
        """Each pilot counts once, also that of a start that is not taken."""
        executor, names, got = tried(useless, rtol=0.02, with_gradient=False)
        assert len(names) > 1
        expected = sum((cost for level in got.levels for cost in level.evaluations), Evaluations())
        for program, rows in executor.runs:
            is_pilot = rows.replicate >= FIRST_PILOT
            for level in np.unique(rows.level[is_pilot]):
                samples = rows.samples[is_pilot & (rows.level == level)].astype(float).sum(0)
                tuning = program.tuning.with_samples(samples, level)
                expected = sum(program.estimator.evaluations(program.equation, tuning), expected)
        np.testing.assert_allclose(got.cost.evaluations, expected, rtol=1e-6)
