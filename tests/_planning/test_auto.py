"""method="auto": what it starts from, how many paths it takes, that it says so, and that it is the same in every run and company."""

import functools
from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import SIGMAS, heat, manufactured, rough, setting
from scasml import Linearised, Picard, Problem, problems
from scasml._planning import auto as choice
from scasml._planning.pilots import times_more_steps
from scasml._planning.task import PILOT_REPLICATES
from scasml._support.operation_counts import count_operations
from scasml.execution.stopping import Budget

PROBLEM, EXACT = manufactured()
X = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
T = np.array([0.1, 0.3, 0.5], np.float32)


def good(t, x):
    return EXACT(t, x) + 0.02 * jnp.cos(x[0] - x[1] + t)


def useless(t, x):
    return 40 * jnp.sin(3 * jnp.sum(x) + 5 * t)


@functools.cache
def answer(surrogate=good, **options):
    return scasml.correct(
        PROBLEM, surrogate, T, X, rtol=0.02, with_gradient=False, safe=False, **options
    )


def right(got, t=T, x=X):
    exact = [EXACT(jnp.asarray(a), jnp.asarray(b)) for a, b in zip(t, x, strict=True)]
    return np.abs(got.value - exact) < SIGMAS * got.stderr + got.bias


def test_a_good_surrogate_is_started_from():
    got = answer()
    assert {each.control for each in got.choices} == {"the surrogate"}
    assert all(isinstance(each.method, Linearised) for each in got.choices)
    # Its pilot is the cheaper one here, so it is the first that is tried.
    assert all(choice.CHEAP in each.reason for each in got.choices)
    assert sorted(np.concatenate([each.points for each in got.choices])) == [0, 1, 2]
    assert right(got).all()
    assert got.method == "auto"


def test_a_rough_surrogate_is_not():
    """Right to a thousandth of the solution, and a path sees a residual of a tenth of it: from nothing there is less to do."""
    problem = problems.convection_diffusion(5)
    waves = lambda t, x: jnp.sum(x) + t + 0.005 * jnp.sin(10 * jnp.sum(x))
    x = np.array([[0.7, 1.2, 0.4, 1.0, 0.9], [1.0, 1.0, 0.5, 0.5, 1.5]])
    got = scasml.correct(problem, waves, 0.2, x, rtol=1e-3, with_gradient=False)
    assert {each.control for each in got.choices} == {"nothing"}
    assert np.all(np.abs(got.surrogate_value - got.value) < 0.01 * got.value)
    assert np.all(np.abs(got.value - (x.sum(1) + 0.2)) < SIGMAS * got.stderr)


def test_a_good_surrogate_of_a_linear_problem():
    """Nothing is tried first, and would take more work here than a pilot of the surrogate."""
    problem = problems.convection_diffusion(5)
    close = lambda t, x: jnp.sum(x) + t + 1e-4 * jnp.sin(jnp.sum(x))
    x = np.array([0.7, 1.2, 0.4, 1.0, 0.9])
    got = scasml.correct(problem, close, 0.2, x, rtol=1e-5, with_gradient=False)
    assert got.choices[0].control == "the surrogate"
    assert abs(got.value - 4.4) < SIGMAS * got.stderr


def test_what_was_chosen_can_be_asked_for():
    got = answer()
    chosen = got.choices[0]
    i = int(chosen.points[0])
    again = scasml.correct(
        PROBLEM,
        good,
        T[i],
        X[i],
        method=chosen.method,
        replicates=int(got.replicates[i]),
        with_gradient=False,
        safe=False,
    )
    assert again.raw_value == got.raw_value[i]


@pytest.mark.slow
def test_its_own_first_estimate():
    """About nothing the remainder is all of F: the tangent of the pilot is started from, and is right.

    A cubic with g = 3: -du/dt = -0.1 u^3 has u = g/sqrt(1 + 0.2 g^2 (T - t)). The code of g has a kink, so there is no g where paths end.
    """
    problem = Problem(
        dim=2,
        horizon=0.5,
        nonlinearity=lambda t, x, u, z: -0.1 * u**3,
        terminal=lambda x: 3 + 0 * jnp.abs(x[0]),
    )
    got = scasml.correct(problem, None, 0.0, np.zeros(2), rtol=1e-4, with_gradient=False)
    assert got.choices[0].control == "its own first estimate"
    exact = 3 / np.sqrt(1 + 0.2 * 9 * 0.5)
    # Nothing varies here, so the bias, whose size is known to a factor of two, is all of the error.
    assert abs(got.value - exact) <= SIGMAS * got.stderr + 2 * got.bias
    assert got.bias < 2e-4


@pytest.mark.slow
def test_a_useless_surrogate_is_not():
    """Off by forty times the solution: the answer is as sure as without one, and right."""
    got, none = answer(useless), answer(None)
    assert "the surrogate" not in {each.control for each in got.choices}
    assert all(
        "less work" in each.reason or "g where paths end" in each.reason for each in got.choices
    )
    assert right(got).all()
    assert (got.status == "converged").all()
    assert (none.status == "converged").all()
    assert np.all(got.replicates <= 2 * none.replicates)
    np.testing.assert_allclose(got.value - got.surrogate_value, got.correction, atol=1e-6)


@pytest.mark.parametrize("surrogate", [good, pytest.param(useless, marks=pytest.mark.slow)])
def test_the_same_in_any_company(surrogate):
    many = answer(surrogate)
    one = scasml.correct(PROBLEM, surrogate, T[2], X[2], rtol=0.02, with_gradient=False, safe=False)
    for name in ("raw_value", "stderr", "bias", "replicates", "steps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name)[2])


@pytest.mark.slow
def test_slopes_that_jump_are_left_to_picard():
    """F has a kink at u = 0, which the surrogate crosses; without a gradient nothing is differentiated."""
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


def test_a_surrogate_that_is_not_finite_at_a_point(monkeypatch):
    """Nothing else is tried there, and the other points do not notice."""
    holed = lambda t, x: jnp.where(t < 0.2, jnp.nan, good(t, x))
    tried, init = [], choice._Tried.__init__

    def note(self, setting, control, method, points):
        tried.append((control.name, setting.t[points].tolist()))
        init(self, setting, control, method, points)

    monkeypatch.setattr(choice._Tried, "__init__", note)
    got = answer(holed)
    assert got.status.tolist() == ["not finite", "converged", "converged"]
    assert not any(T[0] in at for _, at in tried)
    assert [each.reason for each in got.choices if 0 in each.points] == [
        "the surrogate is not finite there"
    ]
    alone = scasml.correct(PROBLEM, holed, T[1:], X[1:], rtol=0.02, with_gradient=False, safe=False)
    assert got.raw_value[1:].tolist() == alone.raw_value.tolist()


def test_a_linear_problem():
    problem, exact = heat()
    got = scasml.correct(problem, rough, 0.1, X[0], rtol=0.02, safe=False)
    assert got.steps == 0
    assert abs(got.value - exact(jnp.asarray(0.1), jnp.asarray(X[0]))) < SIGMAS * got.stderr + 2e-6


class TestOperations:
    def test_products(self):
        a, b = jnp.zeros((3, 4)), jnp.zeros((4, 5))
        assert count_operations(lambda a, b: a @ b, a, b) == 3 * 4 * 5 / 2

    def test_loops_count_as_often_as_they_run(self):
        import jax

        one = count_operations(lambda x: x + 1.0, jnp.zeros(7))
        many = count_operations(
            lambda x: jax.lax.fori_loop(0, 10, lambda i, x: x + 1.0, x), jnp.zeros(7)
        )
        assert one == 7
        assert many >= 70
        assert count_operations(lambda x: jax.jit(lambda x: x + 1.0)(x), jnp.zeros(7)) == 7

    def test_a_residual_is_more_than_a_value(self):
        problem = problems.hjb(20)
        surrogate = scasml.Defect(problem, lambda t, x: jnp.log(1 + x @ x) + t)
        t, x = jnp.zeros(()), jnp.zeros(20)
        import jax

        assert count_operations(surrogate.source, t, x, jax.random.key(0)) > 2 * count_operations(
            surrogate.terminal, x
        )


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["variance", "shift"])
@pytest.mark.usefixtures("programs_anew")
def test_planted_faults(fault, monkeypatch):
    """A choice by the largest work starts from something else; a control that is forgotten in the sum gives another answer."""
    if fault == "variance":
        start = lambda: (
            scasml.correct(
                PROBLEM, useless, T[:1], X[:1], rtol=0.02, with_gradient=False, safe=False
            ).choices
        )
        sound, tried = start(), choice._Tried.__init__

        def upside_down(self, *arguments):
            tried(self, *arguments)
            self.score = np.where(np.isfinite(self.score), 1 / self.score, np.inf)

        monkeypatch.setattr(choice._Tried, "__init__", upside_down)
        monkeypatch.setattr(choice, "WORTH", 0.0)  # everything is tried,
        monkeypatch.setattr(choice, "AT_ONCE", 0.0)  # and nothing taken at once,
        monkeypatch.setattr(choice, "MUCH", 0.0)  # nor unseen
        assert start()[0].control != sound[0].control
    else:
        from scasml.execution import local

        monkeypatch.setattr(local, "_shifted", lambda estimate, shift: estimate)
        other = lambda t, x: useless(t, x)  # another function: traced again
        got = scasml.correct(PROBLEM, other, T, X, rtol=0.02, with_gradient=False, safe=False)
        assert not right(got).all()


class TestKinks:
    """Borrowing costs more than lending: F has a kink, and about nothing or a plane the remainder is no small part of it.

    In one dimension the price is Black and Scholes's at the borrowing rate.
    """

    PROBLEM = problems.different_rates(1)
    EXACT = 7.155896

    @pytest.mark.slow
    def test_levels_are_added_until_the_bias_is_below_the_error_bar(self):
        """From nothing, with gradients: whichever estimator it comes to, the price is right."""
        got = scasml.correct(self.PROBLEM, None, 0.0, self.PROBLEM.x0, rtol=2e-3)
        assert got.choices[0].method.counts is not None
        assert got.status == "converged"
        assert abs(got.value - self.EXACT) < SIGMAS * got.stderr + 2 * got.bias

    @pytest.mark.slow
    def test_in_a_hundred_dimensions(self):
        """From nothing: starts of first order leave a bias about as large as the error bar, three levels of Picard do not; whichever it comes to, the
        price is right. The reference has a standard error of 0.0005. 337 CPU seconds gave 21.1656 +- 0.0041 before levels were added."""
        problem = problems.different_rates(100)
        got = scasml.correct(problem, None, 0.0, problem.x0, rtol=5e-4, with_gradient=False)
        assert abs(got.value - 21.1714) < SIGMAS * np.hypot(got.stderr, 0.0005) + 2 * got.bias
        assert got.status == "converged"


class Cheap(eqx.Module):
    """As exact as `good`."""

    def __call__(self, t, x):
        return good(t, x)


class Dear(eqx.Module):
    """As exact as `good`, and a hundred times as much to evaluate."""

    def __call__(self, t, x):
        waves = jnp.sin(jnp.arange(1.0, 2000.0) * jnp.sum(x)[None])
        return good(t, x) + 1e-9 * jnp.sum(waves)


def test_the_problem_itself_before_a_surrogate_that_is_dear(monkeypatch):
    """At a loose tolerance it takes less work than a few pilots of the surrogate, which is not even looked at; nor where g will do."""
    tried, init = [], choice._Tried.__init__

    def note(self, setting, control, method, points):
        tried.append((control.name, len(points)))
        init(self, setting, control, method, points)

    monkeypatch.setattr(choice._Tried, "__init__", note)
    monkeypatch.setattr(choice, "_is_useless", lambda setting, *_: np.zeros(len(setting.t), bool))
    got = scasml.correct(PROBLEM, Dear(), T, X, rtol=0.2, with_gradient=False, safe=False)
    assert {each.control for each in got.choices} <= {"nothing", "g where paths end"}
    assert tried[0] == ("nothing", 3)
    assert "the surrogate" not in dict(tried)
    assert any(choice.CHEAP in each.reason for each in got.choices)
    assert right(got).all()


class TestOrder:
    """Starts are tried in the order of what their pilots take, and no dear one where a cheap one will do."""

    @staticmethod
    def tried(monkeypatch, surrogate, **options):
        names, init = [], choice._Tried.__init__

        def note(self, setting, control, method, points):
            if len(points):
                names.append(control.name)
            init(self, setting, control, method, points)

        with monkeypatch.context() as patch:
            patch.setattr(choice._Tried, "__init__", note)
            got = scasml.correct(PROBLEM, surrogate, T[:1], X[:1], safe=False, **options)
        return list(dict.fromkeys(names)), got

    def test_by_their_pilots(self, monkeypatch):
        """About g much of the solution is missing: it is not taken unseen, and the dear surrogate is the next."""
        names, _ = self.tried(monkeypatch, Dear(), rtol=2e-3, with_gradient=False)
        assert names[:3] == ["nothing", "g where paths end", "the surrogate"]

    def test_the_cost_is_that_of_all_of_them(self, monkeypatch):
        """Not only of the one that is taken: 32 paths from nothing end in g, fine and coarse, in each of four replicates. From g none do."""
        names, got = self.tried(monkeypatch, Dear(), rtol=0.02, with_gradient=False)
        served = sum(cost.terminal for level in got.levels for cost in level.evaluations)
        assert names == ["nothing", "g where paths end"]
        assert got.choices[0].control == "g where paths end"
        assert got.cost.evaluations.terminal - served >= 2 * PILOT_REPLICATES * 32

    def test_a_cheap_surrogate_before_g(self, monkeypatch):
        names, got = self.tried(monkeypatch, Cheap(), rtol=2e-3, with_gradient=False)
        assert names.index("the surrogate") < [*names, "g where paths end"].index(
            "g where paths end"
        )
        assert got.choices[0].control == "the surrogate"

    def test_with_gradients_the_surrogate_is_the_first(self, monkeypatch):
        names, _ = self.tried(monkeypatch, Dear(), rtol=0.2)
        assert names[0] == "the surrogate"


class TestContradiction:
    """Of two starts that contradict each other the nearer one is believed; of two that do not, both."""

    @staticmethod
    def start(control, value, distance, noise=0.01, bias=0.0, steps_bias=0.0):
        array = lambda a: np.array([a], float)
        return SimpleNamespace(
            control=control,
            score=array(1.0),
            value=array(value),
            distance=array(distance),
            noise=array(noise),
            bias=array(bias),
            steps_bias=array(steps_bias),
        )

    @pytest.mark.parametrize(
        ("value", "stated", "expected"),
        [
            (1.5, {}, [1.0, np.inf]),
            (1.05, {}, [1.0, 1.0]),
            (1.5, {"bias": 0.45}, [1.0, 1.0]),
            (1.5, {"steps_bias": 0.45}, [1.0, 1.0]),
            (1.5, {"noise": 0.1}, [1.0, 1.0]),
            (np.nan, {}, [1.0, 1.0]),
        ],
    )
    def test_who_is_believed(self, value, stated, expected):
        near, far = self.start("near", 1.0, 0.02), self.start("far", value, 1.0, **stated)
        choice._distrust([near, far])
        assert [near.score[0], far.score[0]] == expected
        near, far = self.start("near", 1.0, 0.02), self.start("far", value, 1.0, **stated)
        choice._distrust([far, near])
        assert [near.score[0], far.score[0]] == expected

    def test_not_by_one_that_cannot_be_trusted_itself(self):
        near, far = self.start("near", 1.0, 0.02), self.start("far", 1.5, 1.0)
        near.score[:] = np.inf
        choice._distrust([near, far])
        assert far.score[0] == 1.0

    def test_not_of_one_start_twice(self):
        """More steps of it are no second opinion."""
        one, again = self.start("near", 1.0, 0.02), self.start("near", 1.5, 0.52)
        choice._distrust([one, again])
        assert again.score[0] == 1.0


def test_more_steps_for_a_bias_above_half_an_error_bar():
    """By powers of four: of first order as 1/steps, of second as 1/steps^2; none for a NaN, and not without end."""
    bias, stderr = np.array([0.4, 0.6, 3.0, 20.0, np.nan, np.inf, 0.0]), np.ones(7)
    assert times_more_steps(bias, stderr, 1).tolist() == [1, 4, 16, 64, 1, 1024, 1]
    assert times_more_steps(bias, stderr, 2).tolist() == [1, 4, 4, 16, 1, 1024, 1]


def test_a_start_is_judged_by_the_steps_it_would_come_to(monkeypatch):
    """Its score is that of as many times more work."""
    planned = setting(PROBLEM, T, X, Budget(rtol=0.5))
    control, scores = choice.controls(PROBLEM, None, None)[-1], []
    for times in (1, 16):
        monkeypatch.setattr(
            choice, "times_more_steps", lambda *_, times=times: np.full(len(T), times)
        )
        scores.append(choice._Tried(planned, control, Linearised(), np.arange(3)).score)
    finite = scores[0] < choice.HOPELESS
    assert finite.any()
    np.testing.assert_allclose(scores[1][finite], 16 * scores[0][finite])


def test_a_second_look_where_much_depends_on_it(monkeypatch):
    """Of three points: the first has little to do; at the second both starts may be the best; at the third only one."""

    class Tried:
        def __init__(self, setting, control, method, points):
            self.control, self.method, self.points, self.pilots = (
                control,
                method,
                points,
                setting.pilots,
            )
            self.score = np.array([1.0, 1e6, 1e6])

    monkeypatch.setattr(choice, "_Tried", Tried)
    monkeypatch.setattr(choice, "_pilot_work", lambda *_: 1.0)
    planned = setting(None, T, X, None)
    one, other = (Tried(planned, name, None, np.arange(3)) for name in "ab")
    other.score[2] = 1e8
    looks = choice._second_looks(planned, [one, other], None, np.arange(3))
    assert [(each.control, each.points.tolist(), each.pilots) for each in looks] == [
        ("a", [1, 2], choice.SECOND),
        ("b", [1], choice.SECOND),
    ]
    assert one.score.tolist() == [1.0, np.inf, np.inf]
    assert other.score.tolist() == [1.0, np.inf, 1e8]


class TestMoreSteps:
    """A pilot is run again with more steps where want of them is what the levels tell a large bias by: of three points the second."""

    class Tried:
        def __init__(self, setting, control, method, points):
            self.control, self.method, self.points = control, method, points
            steps = 2 if method.steps == "auto" else method.steps
            self.stderr = np.full(3, 1.0)
            self.score = np.array([1.0, choice.HOPELESS if steps < 8 else 1.0, choice.HOPELESS])
            self.steps_bias = np.array([10.0, 16 / steps, 0.0])

    def finer(self, monkeypatch, deadline=np.inf):
        monkeypatch.setattr(choice, "_Tried", self.Tried)
        setting = SimpleNamespace(deadline=deadline)
        first = self.Tried(setting, "control", Linearised(), np.arange(3))
        return choice._finer(first, setting, Linearised())

    def test_until_their_bias_does_not_show(self, monkeypatch):
        got = self.finer(monkeypatch)
        assert [each.method.steps for each in got] == ["auto", 8, 32, 128]
        assert got[1].points.tolist() == [1]

    def test_not_after_the_deadline(self, monkeypatch):
        assert len(self.finer(monkeypatch, deadline=0.0)) == 1


class TestBest:
    """Of three points: at the first the best stays the cheapest, at the second it comes to more steps than the next is worth, at the third both do."""

    @staticmethod
    def start(name, score, settled):
        def shares(points, reason):
            some = choice.Share(
                name,
                Linearised(),
                points,
                np.zeros(len(points)),
                np.zeros((len(points), 1)),
                work=settled[points],
            )
            return [some] if len(points) else []

        return SimpleNamespace(name=name, score=np.array(score), shares=shares)

    def chosen(self, deadline=np.inf):
        settled = {"a": np.array([1.0, 4.0, 4.0]), "b": np.array([2.0, 2.0, 8.0])}
        tried = [
            self.start("a", [1.0, 1.0, 1.0], settled["a"]),
            self.start("b", [2.0, 2.0, 2.0], settled["b"]),
        ]
        found = choice._best(SimpleNamespace(t=T[:3], deadline=deadline), tried, np.arange(3))
        assert sorted(np.concatenate([share.points for share in found])) == [0, 1, 2]
        for share in found:
            np.testing.assert_array_equal(share.work, settled[share.control][share.points])
        return {share.control: share.points.tolist() for share in found}

    def test_by_the_steps_that_it_comes_to(self):
        assert self.chosen() == {"a": [0, 2], "b": [1]}

    def test_not_after_the_deadline(self):
        assert self.chosen(deadline=0.0) == {"a": [0, 1, 2]}
