"""Candidates: how pilots score them, and which of two contradictory candidates is refused."""

import numpy as np
import pytest

from fake_executors import ScriptedExecutor
from helpers import task
from scasml import Linearised, problems
from scasml._planning.candidates import Candidate, refuse_contradictions, try_candidate
from scasml._planning.policy import DEFAULT_POLICY, Policy
from scasml._planning.task import Start
from scasml.execution.stopping import StoppingRule


class TestContradiction:
    """If two starts contradict each other, the one further from its estimate is refused."""

    @staticmethod
    def candidate(start, value, distance, noise=0.01, level_bias=0.0, step_bias=0.0):
        array = lambda a: np.array([a], float)
        return Candidate(
            start=start,
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
        assert self.scores(near.refused(np.array([True])), far) == [np.inf, 1.0]

    def test_more_steps_of_one_start_do_not_contradict_it(self):
        one, again = self.candidate("near", 1.0, 0.02), self.candidate("near", 1.5, 0.52)
        assert self.scores(one, again) == [1.0, 1.0]


@pytest.mark.parametrize(("bias", "factor"), [(0.3, 1), (3.0, 16)])
def test_the_score_is_that_of_the_steps_that_a_run_would_need(bias, factor):
    """The standard error aimed for is 1, so a step bias of 3 takes more steps."""
    equation, rows = problems.burgers(3), np.arange(2)
    some = task(
        equation,
        np.array([0.1, 0.3]),
        np.zeros((2, 3)),
        StoppingRule(atol=2.0),
        executor=ScriptedExecutor(lambda steps, count, t: {"bias": bias, "noise": 0.1}),
        policy=Policy(step_growth=16),
    )
    start = Start("zero", equation, None)
    free = try_candidate(some, start, Linearised(), rows)
    fixed = try_candidate(some, start, Linearised(), rows, steps=2)
    assert np.isfinite(fixed.score).all()
    np.testing.assert_allclose(free.score, factor * fixed.score)
