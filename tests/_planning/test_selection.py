"""The steps of the automatic choice, each with invented pilots or invented candidates."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fake_executors import ScriptedExecutor
from helpers import task
from scasml import Linearised, problems
from scasml._planning.auto import _refine_steps
from scasml._planning.candidates import BIASED_SCORE, pilot_work, try_candidate
from scasml._planning.policy import DEFAULT_POLICY
from scasml._planning.selection import _best, _second_looks
from scasml._planning.task import Assignment, Plan, Start
from scasml.estimators import Evaluations, Tuning
from scasml.execution.stopping import StoppingRule

EQUATION = problems.burgers(3)
T, X = np.array([0.1, 0.3, 0.5]), np.zeros((3, 3))


def scripted(script=lambda steps, count, t: {}, **options):
    """Return a task of three points with invented pilots; the standard error aimed for is 1."""
    executor = ScriptedExecutor(script)
    return task(EQUATION, T, X, StoppingRule(atol=2.0), executor=executor, **options)


def test_a_second_look_where_much_work_depends_on_it():
    """The first of three points has little work left.

    At the second, both candidates may be the best. At the third, only one of them may be.
    """
    some, estimator = scripted(), Linearised()
    starts = [Start(name, EQUATION, None) for name in "ab"]
    much = 1e6 * pilot_work(some, starts[0], estimator)
    one, other = (try_candidate(some, start, estimator, np.arange(3)) for start in starts)
    one = replace(one, score=np.array([1.0, much, much]))
    other = replace(other, score=np.array([1.0, much, 100 * much]))
    some.executor.asked.clear()
    one, other, *looks = _second_looks(some, [one, other], estimator, np.arange(3))
    assert [(look.start.name, look.rows.tolist()) for look in looks] == [("a", [1, 2]), ("b", [1])]
    assert [asked[1] for asked in some.executor.asked] == [DEFAULT_POLICY.second_look] * 2
    assert one.score.tolist() == [1.0, np.inf, np.inf]
    assert other.score.tolist() == [1.0, np.inf, 100 * much]


class TestMoreSteps:
    """A pilot runs again with more steps where too few steps cause its large level bias.

    That is the second of three points. The first has a small level bias, and the third has no step
    bias.
    """

    @staticmethod
    def script(steps, count, t):
        step_bias = {0.1: 10.0, 0.3: 16 / steps, 0.5: 0.0}[t]
        is_biased = {0.1: False, 0.3: steps < 8, 0.5: True}[t]
        return {"bias": step_bias, "remainder": 10.0 if is_biased else 0.0}

    def refined(self, deadline=np.inf):
        some = scripted(self.script, deadline=deadline)
        first = try_candidate(some, Start("a", EQUATION, None), Linearised(), np.arange(3))
        assert (first.score >= BIASED_SCORE).tolist() == [False, True, True]
        np.testing.assert_allclose(first.step_bias, [10.0, 8.0, 0.0])
        return _refine_steps(first, some, Linearised())

    def test_until_the_step_bias_is_negligible(self):
        got = self.refined()
        assert [each.steps for each in got] == [None, 8, 32, 128]
        assert all(each.rows.tolist() == [1] for each in got[1:])

    def test_not_after_the_deadline(self):
        assert len(self.refined(deadline=0.0)) == 1


class TestBest:
    """The best of two candidates, whose settled steps change their work.

    At the first of three points the best candidate stays the cheapest. At the second it comes to
    need more work than the next one. At the third both do.
    """

    SETTLED = {"a": np.array([1.0, 4.0, 4.0]), "b": np.array([2.0, 2.0, 8.0])}  # noqa: RUF012

    def candidate(self, some, name, score):
        def plan(rows, reason):
            if not len(rows):
                return Plan()
            assignment = Assignment(
                some.points.at(rows),
                Start(name, EQUATION, None),
                Linearised(),
                Tuning("pathwise", 2),
                np.zeros(len(rows)),
                np.zeros((len(rows), 3)),
                work=self.SETTLED[name][rows],
            )
            return Plan((assignment,), Evaluations(terminal=1))

        return SimpleNamespace(name=name, score=np.array(score), plan=plan)

    def chosen(self, deadline=np.inf):
        some = scripted(deadline=deadline)
        scores = {"a": [1.0, 1.0, 1.0], "b": [2.0, 2.0, 2.0]}
        candidates = [self.candidate(some, name, score) for name, score in scores.items()]
        plan = _best(some, candidates, np.arange(3))
        found = plan.assignments
        # The cost includes the pilots of a candidate that was settled but not taken.
        assert plan.pilots.terminal == 1 + (deadline > 0)
        assert sorted(np.concatenate([each.points.index for each in found])) == [0, 1, 2]
        for each in found:
            work = self.SETTLED[each.start.name][each.points.index]
            np.testing.assert_array_equal(each.work, work)
        return {each.start.name: each.points.index.tolist() for each in found}

    def test_by_the_work_with_settled_steps(self):
        assert self.chosen() == {"a": [0, 2], "b": [1]}

    def test_not_after_the_deadline(self):
        assert self.chosen(deadline=0.0) == {"a": [0, 1, 2]}


@pytest.mark.parametrize("row", range(3))
def test_the_pilots_are_those_of_the_script(row):
    """The invented replicates measure what the script says, with any coupling."""
    wanted = {"bias": 0.7, "noise": 0.2, "coupling": [0.1, 0.5, 1.0][row], "size": 12.0}
    some = scripted(lambda steps, count, t: wanted if t == T[row] else {})
    candidate = try_candidate(some, Start("a", EQUATION, None), Linearised(), np.arange(3))
    trial, place = candidate.trial_at(row)
    measured = trial.measurement.at(place)
    np.testing.assert_allclose(measured.step_bias, 0.7)
    np.testing.assert_allclose(measured.step_noise, 0.2)
    np.testing.assert_allclose(measured.coupling, wanted["coupling"])
    np.testing.assert_allclose(measured.total_size, 12.0)
