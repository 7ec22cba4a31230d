"""Rounds: each point gets the replicates it needs, and they depend on that point alone.

One problem, one surrogate and one method serve every test, so one program is compiled for all of
them. Seeds are fixed, and the tests compare bits, counts and words. So no test here has a
false-fail rate, except for the two tests of clocks.
"""

import dataclasses
import time

import jax
import numpy as np
import pytest

import scasml
from elastic_case import (
    BAD,
    EXACT,
    HOLED,
    NOWHERE,
    T,
    X,
    adaptive,
    check_same_bits,
    compiled,
    correct,
    half,
    part,
    refine,
)
from helpers import check_one_sentence
from scasml import Picard, ScasmlError


class TestTolerance:
    @pytest.mark.parametrize("rules", [{"rtol": 0.05}, {"atol": 0.03}, {"rtol": 0.1, "atol": 0.03}])
    def test_converged_points_are_within_the_tolerance(self, rules):
        got = correct(**rules)
        allowed = np.maximum(rules.get("atol", 0), rules.get("rtol", 0) * np.abs(got.raw_value))
        done = got.status == "converged"
        assert done.sum() >= 4
        assert np.all(half(got)[done] <= allowed[done] * (1 + 1e-9))
        assert np.all(half(got)[~done] > allowed[~done])
        assert np.all(got.replicates >= 16)
        np.testing.assert_array_equal(got.unmet, ~done)

    def test_easy_points_stop_first(self):
        assert adaptive().replicates[T > 0.75].max() < adaptive().replicates[T < 0.5].min()

    @pytest.mark.parametrize("chunk", [1, 7, None])
    def test_the_chunk_does_not_matter(self, chunk):
        check_same_bits(adaptive(), correct(atol=0.05, chunk=chunk))

    def test_the_order_of_the_points_does_not_matter(self):
        order = np.array([3, 5, 0, 4, 1, 2])
        check_same_bits(adaptive(), correct(T[order], X[order], atol=0.05), order)

    @pytest.mark.parametrize("point", range(6))
    def test_the_other_points_do_not_matter(self, point):
        check_same_bits(adaptive(), correct(T[point], X[point], atol=0.05), point)

    @pytest.mark.parametrize("point", range(6))
    def test_a_tolerance_and_its_number_of_replicates_agree(self, point):
        """A point that stopped at N replicates equals a point with N requested replicates."""
        count = int(adaptive().replicates[point])
        check_same_bits(adaptive(), correct(T[point], X[point], replicates=count), point)

    def test_replicates_limit_a_tolerance(self):
        got = correct(rtol=1e-3, replicates=40)
        assert set(got.status) == {"budget exhausted"}
        assert set(got.replicates) == {40}
        assert got.unmet.all()
        assert "rtol=0.001" in got.stopped
        assert "replicates=40" in got.stopped
        check_same_bits(got, correct(replicates=40))

    def test_a_limit_that_is_not_reached_changes_nothing(self):
        check_same_bits(adaptive(), correct(atol=0.05, replicates=10**6))

    def test_the_wider_of_two_tolerances_counts(self):
        relative, absolute, both = (
            correct(rtol=0.1),
            correct(atol=0.03),
            correct(rtol=0.1, atol=0.03),
        )
        size = 0.1 * np.abs(both.raw_value) / 0.03
        large, small = size > 1.5, size < 0.67
        assert large.any()
        assert small.any()
        check_same_bits(relative, dataclasses.replace(both, **part(both, large)), large)
        check_same_bits(absolute, dataclasses.replace(both, **part(both, small)), small)

    def test_a_bias_above_the_tolerance_ends_a_point(self):
        """More replicates would not help."""
        got = correct(T[:1], X[:1], atol=0.01)
        assert list(got.status) == ["bias above tolerance"]
        assert got.bias > 0.01
        least = got.rule.replicates_for_bias
        assert least <= got.replicates < got.rule.max_growth * least
        assert got.unmet.all()

    def test_an_unknown_bias(self):
        """One level does not show its bias. So the point does not count as converged."""
        options = {"atol": 0.05, "method": Picard(1, 8)}
        got = correct(T[-1:], X[-1:], **options)
        assert np.isnan(got.bias).all()
        assert half(got) < 0.05
        assert list(got.status) == ["bias unknown"]
        assert got.unmet.all()
        assert "bias" in got.diagnose().kinds
        with pytest.raises(scasml.ToleranceError):
            correct(T[-1:], X[-1:], throw=True, **options)

    def test_throw(self):
        with pytest.raises(scasml.ToleranceError) as caught:
            correct(atol=0.01, replicates=100, throw=True)
        assert isinstance(caught.value, ScasmlError)
        answer = caught.value.answer
        assert answer.missed.tolist() == [0, 1, 2, 3]
        assert "at point 0, 1, 2, 3 (bias above tolerance, budget exhausted)" in str(caught.value)
        check_one_sentence(str(caught.value))
        check_same_bits(answer, correct(atol=0.01, replicates=100))

    def test_throw_without_a_reason(self):
        check_same_bits(adaptive(), correct(atol=0.05, throw=True))

    @pytest.mark.parametrize("others", [0, 6])
    def test_a_point_at_the_horizon_needs_no_simulation(self, others):
        t, x = np.append(np.float32(0.8), T[:others]), np.concatenate([X[:1], X[:others]])
        got = correct(t, x, atol=0.05, throw=True)
        assert got.status[0] == "converged"
        assert got.replicates[0] == got.stderr[0] == 0
        assert got.bias[0] < 1e-6
        np.testing.assert_allclose(got.value[0], float(EXACT(0.8, X[0])), rtol=1e-5)
        if others:
            check_same_bits(adaptive(), dataclasses.replace(got, **part(got, slice(1, None))))


class TestSeconds:
    def test_a_clock(self):
        """The bounds are wide, because the machine may be busy."""
        compiled()
        began = time.monotonic()
        got = correct(seconds=0.5)
        assert 0.4 <= time.monotonic() - began <= 3
        assert got.replicates.min() >= 2
        assert set(got.status) == {"budget exhausted"}
        assert np.ptp(got.replicates) <= 1  # all points advance together

    @pytest.mark.parametrize("points", [1, 6])
    def test_no_time_at_all(self, points):
        got = correct(T[:points], X[:points], seconds=1e-6)
        assert set(got.status) == {"over time"}
        assert set(got.replicates) == {2}
        assert got.stopped.startswith("seconds=1e-06: compiling and two replicates took ")
        check_same_bits(compiled(), got, slice(points), ("raw_value", "stderr", "gradient"))

    def test_no_time_and_the_bias(self):
        check_same_bits(compiled(), correct(T[:1], X[:1], seconds=1e-6, chunk=1), slice(1))

    def test_no_time_and_a_large_chunk(self):
        assert correct(T[0], X[0], seconds=1e-6, chunk=8).status == "over time"

    def test_enough_time_changes_nothing(self):
        check_same_bits(adaptive(), correct(atol=0.05, seconds=60))


OTHER_CALLS = {
    "rounds": lambda: correct(rtol=0.05),
    "points": lambda: correct(T[:3], X[:3], atol=0.05),
    "a scalar": lambda: correct(T[0], X[0], atol=0.1),
    "seconds": lambda: correct(seconds=0.01),
    "refine": lambda: list(refine(replicates=12)),
    "a hole": lambda: correct(surrogate=HOLED, rtol=0.05),
    "safe": lambda: correct(safe=True, rtol=0.1),
}


def test_no_rule_compiles_anything_again():
    """JAX itself reports its compilations."""
    correct(replicates=2)  # compiles, if other tests have replaced the program
    events = []
    listen = lambda event, duration, **_: events.append(event)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for name, call in OTHER_CALLS.items():
            call()
            assert not [event for event in events if "backend_compile" in event], name
        jax.jit(lambda x: x * 3)(1.0)
        assert [event for event in events if "backend_compile" in event]  # it does listen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


class TestNotFinite:
    """The surrogate is NaN at one point. The other points are not affected."""

    OTHERS = np.arange(6) != BAD

    @pytest.mark.parametrize("rules", [{"replicates": 5}, {"atol": 0.05}])
    def test_raw(self, rules):
        got, want = correct(surrogate=HOLED, **rules), correct(**rules)
        np.testing.assert_array_equal(got.status == "not finite", ~self.OTHERS)
        assert np.isnan(got.value[BAD])
        assert got.unmet[BAD]
        check_same_bits(want, dataclasses.replace(got, **part(got, self.OTHERS)), self.OTHERS)
        np.testing.assert_array_equal(got.status[self.OTHERS], want.status[self.OTHERS])

    def test_safe(self):
        """Only the finite corrections determine the shrinkage."""
        got = correct(surrogate=HOLED, replicates=5, safe=True)
        want = correct(T[self.OTHERS], X[self.OTHERS], surrogate=HOLED, replicates=5, safe=True)
        for name in ("value", "kept_share", "raw_value", "stderr"):
            assert getattr(got, name)[self.OTHERS].tobytes() == getattr(want, name).tobytes(), name
        assert np.isnan(got.value[BAD])
        assert got.status[BAD] == "not finite"

    def test_the_point_gets_one_round_only(self):
        count = correct(surrogate=HOLED, atol=1e-3, replicates=100).replicates
        assert count[BAD] == 16
        assert np.all(count[self.OTHERS] >= 64)

    def test_throw(self):
        with pytest.raises(scasml.ToleranceError, match=r"at point 2 \(not finite\)"):
            correct(surrogate=HOLED, atol=0.05, throw=True)

    def test_everywhere(self):
        got = correct(surrogate=NOWHERE, atol=0.05)
        assert set(got.status) == {"not finite"}
        assert set(got.replicates) == {16}
