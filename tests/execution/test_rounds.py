"""Stopping rules: each point gets what it needs, and what it gets depends on that point alone.

One problem, one surrogate and one method serve every test, so one program is compiled for them all. Seeds are fixed, and
what is compared is bits, counts and words: but for the two clocks, no test here has a false-fail rate.
"""

import csv
import dataclasses
import re
import time

import jax
import numpy as np
import pytest
from scipy import stats

import scasml
from elastic_case import (
    BAD,
    CORRECT,
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
from helpers import heat
from scasml import Picard, ScasmlError
from scasml._planning import auto as choice
from scasml._planning import task as setting
from scasml.execution.stopping import ENOUGH_FOR_BIAS, MOST_GROWTH


class TestTolerance:
    @pytest.mark.parametrize("rules", [{"rtol": 0.05}, {"atol": 0.03}, {"rtol": 0.1, "atol": 0.03}])
    def test_converged_is_within(self, rules):
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
    def test_chunk(self, chunk):
        check_same_bits(adaptive(), correct(atol=0.05, chunk=chunk))

    def test_order(self):
        order = np.array([3, 5, 0, 4, 1, 2])
        check_same_bits(adaptive(), correct(T[order], X[order], atol=0.05), order)

    @pytest.mark.parametrize("point", range(6))
    def test_company(self, point):
        check_same_bits(adaptive(), correct(T[point], X[point], atol=0.05), point)

    @pytest.mark.parametrize("point", range(6))
    def test_prefix(self, point):
        """What stopped at N is what N asked for gives."""
        count = int(adaptive().replicates[point])
        check_same_bits(adaptive(), correct(T[point], X[point], replicates=count), point)

    def test_replicates_cap_a_tolerance(self):
        got = correct(rtol=1e-3, replicates=40)
        assert set(got.status) == {"budget exhausted"}
        assert set(got.replicates) == {40}
        assert got.unmet.all()
        assert "rtol=0.001" in got.stopped
        assert "replicates=40" in got.stopped
        check_same_bits(got, correct(replicates=40))

    def test_a_cap_that_is_not_reached_does_nothing(self):
        check_same_bits(adaptive(), correct(atol=0.05, replicates=10**6))

    def test_the_wider_of_two_tolerances_rules(self):
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

    def test_bias_above_the_tolerance(self):
        """No number of replicates mends it, so none are spent on it."""
        got = correct(T[:1], X[:1], atol=0.01)
        assert list(got.status) == ["bias above tolerance"]
        assert got.bias > 0.01
        assert ENOUGH_FOR_BIAS <= got.replicates < MOST_GROWTH * ENOUGH_FOR_BIAS
        assert got.unmet.all()

    def test_a_bias_that_cannot_be_told(self):
        """One level tells nothing of the next: the statistical error meets the tolerance, and nobody says that it is met."""
        got = correct(T[-1:], X[-1:], atol=0.05, method=Picard(1, 8))
        assert np.isnan(got.bias).all()
        assert half(got) < 0.05
        assert list(got.status) == ["bias unknown"]
        assert got.unmet.all()
        assert "bias" in got.diagnose().kinds
        with pytest.raises(scasml.ToleranceError):
            correct(T[-1:], X[-1:], atol=0.05, method=Picard(1, 8), throw=True)

    def test_throw(self):
        with pytest.raises(scasml.ToleranceError) as caught:
            correct(atol=0.01, replicates=100, throw=True)
        assert isinstance(caught.value, ScasmlError)
        answer = caught.value.answer
        assert answer.missed.tolist() == [0, 1, 2, 3]
        assert "at point 0, 1, 2, 3 (bias above tolerance, budget exhausted)" in str(caught.value)
        check_one_sentence(str(caught.value))
        check_same_bits(answer, correct(atol=0.01, replicates=100))

    def test_nothing_to_throw(self):
        check_same_bits(adaptive(), correct(atol=0.05, throw=True))

    @pytest.mark.parametrize("others", [0, 6])
    def test_horizon(self, others):
        """At t = T there is nothing to simulate."""
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
        """Bounds for a machine that is busy with other things too."""
        compiled()
        began = time.monotonic()
        got = correct(seconds=0.5)
        assert 0.4 <= time.monotonic() - began <= 3
        assert got.replicates.min() >= 2
        assert set(got.status) == {"budget exhausted"}
        assert np.ptp(got.replicates) <= 1  # no point is ahead of another

    @pytest.mark.parametrize("points", [1, 6])
    def test_no_time_at_all(self, points):
        got = correct(T[:points], X[:points], seconds=1e-6)
        assert set(got.status) == {"over time"}
        assert set(got.replicates) == {2}
        assert got.stopped.startswith("seconds=1e-06: compiling and two replicates took ")
        check_same_bits(compiled(), got, slice(points), ("raw_value", "stderr", "gradient"))

    def test_no_time_at_all_and_the_bias(self):
        check_same_bits(compiled(), correct(T[:1], X[:1], seconds=1e-6, chunk=1), slice(1))

    def test_no_time_and_a_large_chunk(self):
        assert correct(T[0], X[0], seconds=1e-6, chunk=8).status == "over time"

    def test_time_enough(self):
        check_same_bits(adaptive(), correct(atol=0.05, seconds=60))


class TestTraces:
    OTHERS = {  # noqa: RUF012
        "rounds": lambda: correct(rtol=0.05),
        "points": lambda: correct(T[:3], X[:3], atol=0.05),
        "a scalar": lambda: correct(T[0], X[0], atol=0.1),
        "seconds": lambda: correct(seconds=0.01),
        "refine": lambda: list(refine(replicates=12)),
        "a hole": lambda: correct(surrogate=HOLED, rtol=0.05),
        "safe": lambda: correct(safe=True, rtol=0.1),
    }

    def test_nothing_is_compiled_again(self):
        """By JAX's own count of its compilations."""
        compiled()
        events = []
        listen = lambda event, duration, **_: events.append(event)
        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            for name, other in self.OTHERS.items():
                other()
                assert not [event for event in events if "backend_compile" in event], name
            jax.jit(lambda x: x * 3)(1.0)
            assert [event for event in events if "backend_compile" in event]  # the listener hears
        finally:
            jax.monitoring.unregister_event_duration_listener(listen)

    def test_settings_of_the_callers_thread(self):
        """Of a setting that changes the random numbers: all rows see it, whichever thread they run in."""
        problem, _ = heat()
        run = lambda chunk: scasml.correct(
            problem, None, 0.0, X, method=Picard(1, 1), replicates=4, chunk=chunk
        )
        with jax.numpy_rank_promotion("allow"), jax.threefry_partitionable(False):
            assert run(None).value.tobytes() == run(256).value.tobytes()


class TestNotFinite:
    """A NaN of the surrogate at one point is that point's alone."""

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
        """How far corrections are shrunk is told from the good ones alone."""
        got = correct(surrogate=HOLED, replicates=5, safe=True)
        want = correct(T[self.OTHERS], X[self.OTHERS], surrogate=HOLED, replicates=5, safe=True)
        for name in ("value", "kept_share", "raw_value", "stderr"):
            assert getattr(got, name)[self.OTHERS].tobytes() == getattr(want, name).tobytes(), name
        assert np.isnan(got.value[BAD])
        assert got.status[BAD] == "not finite"

    def test_no_more_than_the_first_round(self):
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


def check_one_sentence(message):
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) <= 300
    assert not re.search(r"[.!?]\s+[A-Z]", message), f"more than one sentence: {message}"


def poison(*args, **options):
    pytest.fail("bad input reached the simulation")


class TestBadInput:
    VALUES = (
        0,
        0.0,
        -1e-3,
        float("nan"),
        float("inf"),
        -float("inf"),
        "0.1",
        True,
        np.True_,
        [0.1],
        np.array([0.1]),
        1j,
    )

    @staticmethod
    def check_refused(monkeypatch, call, name, got):
        for room, entry in (
            (setting, "Kernel"),
            (choice, "surrogate_at"),
            (CORRECT, "surrogate_at"),
            (CORRECT, "terminal_at"),
        ):
            monkeypatch.setattr(room, entry, poison)
        with pytest.raises(ScasmlError) as caught:
            call()
        message = str(caught.value)
        assert isinstance(caught.value, ValueError | TypeError)
        check_one_sentence(message)
        assert message.startswith(f"{name} must ")
        assert f"got {got}" in message
        assert ": " in message.split("got ")[1]  # a remedy

    @pytest.mark.parametrize("value", VALUES, ids=repr)
    @pytest.mark.parametrize("name", ["rtol", "atol", "seconds"])
    @pytest.mark.parametrize("function", [correct, refine])
    def test_numbers(self, monkeypatch, function, name, value):
        got = (
            value if isinstance(value, float | int) and not isinstance(value, bool) else repr(value)
        )
        self.check_refused(monkeypatch, lambda: function(**{name: value}), name, got)

    @pytest.mark.parametrize("value", [None, 0, 1, "yes", [True]], ids=repr)
    @pytest.mark.parametrize("name", ["safe", "throw"])
    def test_switches(self, monkeypatch, name, value):
        self.check_refused(
            monkeypatch, lambda: correct(**{"rtol": 0.1, name: value}), name, repr(value)
        )

    @pytest.mark.parametrize("rules", [{}, {"replicates": 3}, {"seconds": 1.0}])
    def test_throw_without_a_tolerance(self, monkeypatch, rules):
        self.check_refused(
            monkeypatch, lambda: correct(throw=True, **rules), "throw", "True and none"
        )

    def test_good_input_is_not_refused(self, monkeypatch):
        """The poison is live."""
        with pytest.raises(pytest.fail.Exception, match="reached the simulation"):
            self.check_refused(
                monkeypatch,
                lambda: correct(rtol=np.float32(0.1), atol=1, seconds=np.int64(2)),
                "",
                "",
            )


class TestInterval:
    def test_bias_widens_it(self):
        got = adaptive()
        assert np.all(got.bias > 0)
        (low, high), (inner_low, inner_high) = (
            got.interval(0.95),
            got.interval(0.95, include_bias=False),
        )
        assert np.all((low < inner_low) & (inner_high < high))
        np.testing.assert_allclose((low + high) / 2, got.raw_value, rtol=1e-12)
        assert np.all(inner_low - low <= got.bias * (1 + 1e-9))
        np.testing.assert_allclose(
            (inner_high - inner_low) / 2,
            stats.t.ppf(0.975, got.replicates - 1) * got.stderr,
            rtol=1e-9,
        )

    @pytest.mark.parametrize("bias", [0.0, np.nan])
    def test_no_bias_and_an_unknown_one(self, bias):
        got = dataclasses.replace(adaptive(), bias=np.full(6, bias))
        np.testing.assert_array_equal(
            got.interval(0.95), adaptive().interval(0.95, include_bias=False)
        )


def test_columns_and_files(tmp_path):
    got = correct(replicates=3, safe=True)
    columns = got.columns()
    np.testing.assert_array_equal(columns["raw_value"], got.raw_value)
    np.testing.assert_array_equal(columns["kept_share"], got.kept_share)
    got.save(tmp_path / "answer.csv")
    with open(tmp_path / "answer.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_array_equal([float(row["raw_value"]) for row in rows], got.raw_value)
    np.testing.assert_array_equal([float(row["kept_share"]) for row in rows], got.kept_share)
