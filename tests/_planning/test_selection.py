"""Second looks at candidates, with invented pilots or invented candidates."""

from dataclasses import replace

import numpy as np

from fake_executors import ScriptedExecutor
from helpers import task
from scasml import Linearised, problems
from scasml._planning.candidates import BIASED_SCORE, pilot_work, try_candidate
from scasml._planning.policy import DEFAULT_POLICY
from scasml._planning.selection import look_again, with_tangents
from scasml._planning.task import Start
from scasml.execution.stopping import StoppingRule

EQUATION = problems.burgers(3)
T, X = np.array([0.1, 0.3, 0.5]), np.zeros((3, 3))


def scripted(script=lambda steps, count, t: {}, **options):
    """Return a task of three points with invented pilots; the standard error aimed for is 1."""
    executor = ScriptedExecutor(script)
    return task(EQUATION, T, X, StoppingRule(atol=2.0), executor=executor, **options)


class TestSecondLook:
    """A larger pilot runs where much work depends on it, or where a bound is large."""

    @staticmethod
    def found(scores, deadline=np.inf, **entries):
        """Return the candidates after a second look, and the replicates of its pilots."""
        some, estimator = scripted(deadline=deadline), Linearised()
        much = 1e6 * pilot_work(some, Start("a", EQUATION, None), estimator)
        old = [
            try_candidate(some, Start(name, EQUATION, None), estimator, np.arange(3))
            for name in scores
        ]
        old = [
            replace(each, score=much * np.array(score), **entries)
            for each, score in zip(old, scores.values(), strict=True)
        ]
        some.executor.asked.clear()
        found = look_again(some, old, estimator)
        return found, [count for _, count in some.executor.asked]

    def test_where_much_work_depends_on_it(self):
        """The first of three points has little work left.

        At the second, both candidates may be the best. At the third, only one of them may be.
        """
        found, counts = self.found({"a": [1e-6, 1.0, 1.0], "b": [1e-6, 1.0, 100.0]})
        new = [each for each in found if np.isfinite(each.score).any() and not each.refusal[1]]
        assert [(each.start.name, each.rows.tolist()) for each in new] == [
            ("a", [1, 2]),
            ("b", [1]),
        ]
        # The first pilot measures the base, and a smaller one measures levels.
        assert max(counts) == DEFAULT_POLICY.second_look
        old = [each for each in found if each.refusal[1] == "measured again"]
        assert [np.isinf(each.score).tolist() for each in old] == [
            [False, True, True],
            [False, True, False],
        ]

    def test_a_single_candidate_is_measured_once(self):
        _, counts = self.found({"a": [1.0, 1.0, 1.0]})
        assert counts == []

    def test_a_large_bound_of_the_best_is_measured_again(self):
        """The standard error aimed for is 1, and the bound 0.9."""
        found, counts = self.found({"a": [1.0, 1.0, 1.0]}, level_bias=np.array([0.9, 0.1, 0.1]))
        # The first pilot measures the base, and a smaller one measures levels.
        assert max(counts) == DEFAULT_POLICY.second_look
        assert [each.rows.tolist() for each in found] == [[0, 1, 2], [0]]

    def test_where_every_bound_is_too_large_all_get_the_largest_pilot(self):
        """A small pilot may have the larger bound by chance. These two have the same bound."""
        some = scripted(lambda steps, count, t: {"level": 1e8})
        starts = [Start(name, EQUATION, None) for name in "ab"]
        old = [try_candidate(some, start, Linearised(), np.arange(3)) for start in starts]
        assert all(np.all(each.score >= BIASED_SCORE) for each in old)
        some.executor.asked.clear()
        look_again(some, old, Linearised())
        counts = [count for _, count in some.executor.asked]
        # A pilot of the base runs twice, because levels that vary so much raise the base level.
        assert counts.count(DEFAULT_POLICY.last_look) == 2 * len(starts)

    def test_not_after_the_deadline(self):
        _, counts = self.found({"a": [1.0] * 3, "b": [1.0] * 3}, deadline=0.0)
        assert counts == []


class TestTangents:
    """A tangent is tried where the bound of the best candidate is large."""

    @staticmethod
    def names(level_bias, **options):
        some = scripted(**options)
        first = try_candidate(some, Start("zero", EQUATION, None), Linearised(), np.arange(3))
        found, _ = with_tangents(some, [replace(first, level_bias=level_bias)], Linearised())
        return [(each.start.name, each.rows.tolist()) for each in found]

    def test_where_the_bound_is_large(self):
        """The standard error aimed for is 1, and invented pilots of a tangent have no bound."""
        assert self.names(np.array([0.1, 5.0, 0.1])) == [("zero", [0, 1, 2]), ("tangent", [1])]

    def test_not_after_the_deadline(self):
        assert self.names(np.full(3, 5.0), deadline=0.0) == [("zero", [0, 1, 2])]
