"""Candidates: how pilots score them, and which of two contradictory candidates is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fake_executors import ScriptedExecutor
from helpers import STEPPED, task
from scasml import Linearised, problems
from scasml._answer.records import Choices
from scasml._planning.candidates import (
    BIASED_SCORE,
    MEASURED_AGAIN,
    Candidate,
    all_figures,
    comparable,
    refusals_of_all,
    refuse_contradictions,
    try_candidate,
)
from scasml._planning.fallbacks import measured_picard
from scasml._planning.policy import DEFAULT_POLICY, Policy
from scasml._planning.task import Start
from scasml.execution.stopping import StoppingRule

STARTS = {name: Start(name, problems.burgers(3), None) for name in ("near", "far")}


class TestContradiction:
    """If two starts contradict each other, the one further from its estimate is refused."""

    @staticmethod
    def candidate(start, value, distance, noise=0.01, level_bias=0.0, step_bias=0.0):
        array = lambda a: np.array([a], float)
        return Candidate(
            start=STARTS[start],
            estimator=Linearised(),
            steps=None,
            trials=(),
            score=array(1.0),
            stderr=array(1.0),
            value=array(value),
            distance=array(distance),
            value_stderr=array(noise),
            level_bias=array(level_bias),
            step_bias=array(step_bias),
            refusal=np.array([""], object),
        )

    @staticmethod
    def scores(*candidates):
        found = refuse_contradictions(candidates, DEFAULT_POLICY)
        return [float(each.score[0]) for each in found]

    @pytest.mark.parametrize(
        ("value", "stated", "expected"),
        [
            (1.5, {}, [1.0, np.inf]),
            (1.05, {}, [1.0, 1.0]),
            (1.5, {"level_bias": 0.45}, [1.0, 1.0]),
            (1.5, {"step_bias": 0.45}, [1.0, 1.0]),
            (1.5, {"noise": 0.1}, [1.0, 1.0]),
            (np.nan, {}, [1.0, 1.0]),
        ],
    )
    @pytest.mark.parametrize("near_first", [True, False])
    def test_which_one_is_refused(self, near_first, value, stated, expected):
        near = self.candidate("near", 1.0, 0.02)
        far = self.candidate("far", value, 1.0, **stated)
        got = self.scores(near, far) if near_first else self.scores(far, near)[::-1]
        assert got == expected

    def test_a_refused_candidate_contradicts_nobody(self):
        near, far = self.candidate("near", 1.0, 0.02), self.candidate("far", 1.5, 1.0)
        assert self.scores(near.refused(np.array([True]), "a test"), far) == [np.inf, 1.0]

    def test_more_steps_of_one_start_do_not_contradict_it(self):
        one, again = self.candidate("near", 1.0, 0.02), self.candidate("near", 1.5, 0.52)
        assert self.scores(one, again) == [1.0, 1.0]


def scripted(equation, script, **options):
    """Return a task of two points with invented pilots; the standard error aimed for is 1."""
    t, x, rule = np.array([0.1, 0.3]), np.zeros((2, 3)), StoppingRule(atol=2.0)
    return task(equation, t, x, rule, executor=ScriptedExecutor(script), **options)


@pytest.mark.parametrize(("bias", "factor"), [(0.3, 1), (3.0, 16)])
def test_the_score_is_that_of_the_steps_that_a_run_would_need(bias, factor):
    """The standard error aimed for is 1, so a step bias of 3 takes more steps."""
    script = lambda steps, count, t: {"bias": bias, "noise": 0.1}
    some = scripted(STEPPED, script, policy=Policy(step_growth=16))
    start, rows = Start("zero", STEPPED, None), np.arange(2)
    method = measured_picard(2)
    free = try_candidate(some, start, method, rows)
    fixed = try_candidate(some, start, method, rows, steps=16)
    assert np.isfinite(fixed.score).all()
    np.testing.assert_allclose(free.score, factor * fixed.score)


class TestComparable:
    """The first candidate aims for an error of 1 and the second for 3, at the first of two points.

    There the second needs 9 times its work for the error of the first. A bias of 6 is 2 times the
    error that it aims for, and 6 times that of the first. The second point was tried by it only.
    """

    @staticmethod
    def scores(score, **rule):
        equation = problems.burgers(3)
        some = replace(scripted(equation, lambda *_: {}), rule=StoppingRule(**rule))
        start = Start("zero", equation, None)
        first = try_candidate(some, start, Linearised(), np.arange(1))
        second = try_candidate(some, start, Linearised(), np.arange(2))
        first = replace(first, stderr=np.array([1.0, 0.0]))
        second = replace(second, stderr=np.full(2, 3.0), score=np.full(2, score))
        return comparable(some, second, [first]).score.tolist()

    def test_work_without_a_tolerance(self):
        assert self.scores(10.0, replicates=4) == [90.0, 10.0]

    def test_work_with_a_tolerance(self):
        assert self.scores(10.0, atol=1.0) == [10.0, 10.0]

    @pytest.mark.parametrize("rule", [{"replicates": 4}, {"atol": 1.0}])
    def test_biases_are_compared_by_their_size(self, rule):
        got = self.scores(2 * BIASED_SCORE, **rule)
        np.testing.assert_allclose(got, [6 * BIASED_SCORE, 2 * BIASED_SCORE])


def test_a_linearised_candidate_has_the_score_of_its_work():
    """Levels correct its steps, so no step bias multiplies the work."""
    equation = problems.burgers(3)
    some = scripted(equation, lambda steps, count, t: {"noise": 100.0, "level": 1.0})
    found = try_candidate(some, Start("zero", equation, None), Linearised(), np.arange(2))
    ((_, trial),) = found.trials
    assert np.all(found.score >= trial.settled.work)
    assert np.all(found.step_bias == 0)


class TestFigures:
    """The figures of candidates at two points, of which the second was not tried by one of them."""

    @staticmethod
    def found():
        equation = problems.burgers(3)
        some = scripted(equation, lambda steps, count, t: {"noise": 10.0})
        each = [
            try_candidate(some, Start(name, equation, None), Linearised(), np.arange(count))
            for name, count in (("a", 2), ("b", 1))
        ]
        each[0] = replace(each[0], score=np.array([9.0, 9.0]))
        each[1] = replace(each[1], score=np.array([1.0, np.inf]))
        return some, each

    def test_the_best_candidate_is_taken_at_each_point(self):
        one, other = all_figures(*self.found())
        assert one.verdict.tolist() == ["more work", "taken"]
        assert other.verdict.tolist() == ["taken"]
        assert (one.points.tolist(), other.points.tolist()) == ([0, 1], [0])

    def test_a_refusal_says_why(self):
        some, (one, other) = self.found()
        refused = other.refused(np.array([True, False]), "first").refused(
            np.array([True, True]), "second"
        )
        _, figures = all_figures(some, [one, refused])
        assert figures.verdict.tolist() == ["first"]

    def test_that_a_candidate_was_measured_again_is_no_reason(self):
        _, (one, other) = self.found()
        both = np.array([True, True])
        again = one.refused(both, MEASURED_AGAIN)
        got = refusals_of_all([again, other.refused(np.array([True, False]), "a test")])
        assert got.tolist() == ["a test", ""]

    def test_they_print_as_a_table(self):
        text = str(Choices((), all_figures(*self.found())))
        head, *lines = text.splitlines()
        assert head.split()[:3] == ["candidate", "points", "defect"]
        assert [line.split()[0] for line in lines] == ["a", "a", "b"]
        assert [line.split()[-1] for line in lines] == ["work", "taken", "taken"]
