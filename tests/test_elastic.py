"""Stopping rules, refine and Ctrl-C: each point gets what it needs, and what it gets depends on that point alone.

One problem, one surrogate and one method serve every test, so one program is compiled for them all. Seeds are fixed, and
what is compared is bits, counts and words: but for the two clocks, no test here has a false-fail rate.
"""

import contextlib
import csv
import dataclasses
import functools
import importlib
import os
import re
import signal
import threading
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scasml
from helpers import heat, manufactured, rough
from scasml import Picard, ScasmlError
from scasml.budget import ENOUGH_FOR_BIAS, FIRST, LEAST_GROWTH, MOST_GROWTH, MOST_REPLICATES, Budget

CORRECT = importlib.import_module("scasml.correct")  # the module, which the function of that name hides
PROBLEM, EXACT = manufactured(uses_z=False)
METHOD = Picard(2, 2)
# The horizon is 0.8: the last two are easy. The first has a bias of 0.02.
T = np.array([0.1, 0.4, 0.6, 0.7, 0.78, 0.79], np.float32)
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
NUMBERS = ("raw_value", "stderr", "bias", "gradient", "gradient_stderr", "replicates")
BAD = 2


class Patchy(eqx.Module):
    """`rough`, but NaN at times from `low` to `high`, which are data: one program with and without a hole."""

    low: Any
    high: Any

    def __call__(self, t: Any, x: Any) -> Any:
        return jnp.where((t >= self.low) & (t <= self.high), jnp.nan, rough(t, x))


def patchy(low, high):
    return Patchy(jnp.float32(low), jnp.float32(high))


WHOLE, HOLED, NOWHERE = patchy(2.0, 1.0), patchy(T[BAD], T[BAD]), patchy(0.0, 1.0)


def correct(t=T, x=X, surrogate=WHOLE, **options):
    """Raw, unless asked: how far a correction is shrunk depends on its company, see test_safety.py."""
    return scasml.correct(PROBLEM, surrogate, t, x, **{"method": METHOD, "safe": False, **options})


def refine(**options):
    return scasml.refine(PROBLEM, WHOLE, T, X, **{"method": METHOD, "safe": False, **options})


@functools.cache
def adaptive():
    return correct(atol=0.05)


@functools.cache
def compiled():
    """So that a clock does not see a compiler."""
    return correct(replicates=2)


def half(answer):
    low, high = answer.interval(0.95)
    return (high - low) / 2


def check_same_bits(one, other, rows=slice(None), names=NUMBERS):
    """`other` holds, bit for bit, what `one` holds at `rows`."""
    for name in names:
        want, got = np.asarray(getattr(one, name))[rows], np.asarray(getattr(other, name))
        assert want.shape == got.shape
        assert want.tobytes() == got.tobytes(), name


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
        relative, absolute, both = correct(rtol=0.1), correct(atol=0.03), correct(rtol=0.1, atol=0.03)
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
        assert got.replicates[0] == got.stderr[0] == got.bias[0] == 0
        np.testing.assert_allclose(got.value[0], float(EXACT(0.8, X[0])), rtol=1e-5)
        if others:
            check_same_bits(adaptive(), dataclasses.replace(got, **part(got, slice(1, None))))


def part(answer, rows):
    return {name: getattr(answer, name)[rows] for name in NUMBERS}


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
        run = lambda chunk: scasml.correct(problem, None, 0.0, X, method=Picard(1, 1), replicates=4, chunk=chunk)
        with jax.numpy_rank_promotion("allow"), jax.threefry_partitionable(False):
            assert run(None).value.tobytes() == run(256).value.tobytes()


class TestBudget:
    """`Budget` on made-up error bars."""

    BUDGETS = (
        Budget(),
        Budget(seconds=3.0),
        Budget(replicates=40),
        Budget(rtol=0.01),
        Budget(atol=0.02),
        Budget(rtol=0.01, atol=0.02, replicates=300),
        Budget(rtol=0.01, replicates=5),
        Budget(anytime=True),
        Budget(anytime=True, replicates=300),
        Budget(anytime=True, rtol=0.01),
    )

    @staticmethod
    def states():
        """value, count, stderr and bias; some values NaN, some points with no replicates yet."""
        rng = np.random.default_rng(5)
        count = rng.integers(0, 400, 1000).astype(float)
        value = np.where(rng.uniform(size=1000) < 0.1, np.nan, rng.normal(size=1000))
        stderr = np.where(count > 1, 10 ** rng.uniform(-5, 0, 1000), np.nan)
        bias = rng.choice([0, np.nan, 0.005, 0.05], 1000)
        return value, count, stderr, bias

    @pytest.mark.parametrize("budget", BUDGETS, ids=str)
    def test_targets(self, budget):
        state = value, count, _, bias = self.states()
        targets = budget.targets(*state)
        started = count >= (FIRST if budget.has_tolerance else 2)
        assert np.all(targets >= count)
        assert np.all(targets <= np.maximum(budget.most, count))
        broken = (count > 0) & np.isnan(value)
        np.testing.assert_array_equal(targets[broken], count[broken])
        growth = MOST_GROWTH if budget.has_tolerance and not budget.anytime else 2
        if budget.anytime or budget.replicates is None:
            assert np.all(targets[started] <= growth * count[started])
        going = started & ~broken & (count < budget.most)
        if budget.has_tolerance:
            done = budget.met(*state) | budget.unreachable(value, count, bias)
            assert (going & done).any() or budget.most < FIRST
            np.testing.assert_array_equal(targets[done], count[done])
            going &= ~done
        least = np.minimum(np.ceil(LEAST_GROWTH * count), budget.most)
        assert going.any() or budget.most < FIRST
        assert np.all(targets[going] >= least[going])

    @pytest.mark.parametrize(
        ("budget", "first"),
        [
            (Budget(), 2),
            (Budget(seconds=3.0), 2),
            (Budget(replicates=40), 40),
            (Budget(rtol=0.1), 16),
            (Budget(atol=0.1, replicates=5), 5),
            (Budget(anytime=True), 2),
            (Budget(anytime=True, replicates=40), 2),
            (Budget(anytime=True, replicates=1), 1),
        ],
        ids=str,
    )
    def test_first(self, budget, first):
        nothing = np.zeros(1)
        assert budget.targets(nothing, nothing, np.full(1, np.nan), nothing).tolist() == [first]

    def test_met(self):
        """By SciPy's Student quantile, bias added when it dwarfs the noise; never from fewer than 16."""
        count, stderr = np.array([16.0, 16.0, 15.0]), np.array([0.9, 1.1, 0.0])
        budget = Budget(atol=float(stats.t.ppf(0.975, 15)))
        assert budget.met(np.ones(3), count, stderr, np.zeros(3)).tolist() == [True, False, False]
        assert not budget.met(np.ones(1), count[:1], stderr[:1], np.full(1, 1.0)).any()

    def test_needed(self):
        """1/sqrt(N), for what the bias leaves of the tolerance."""
        value, count, stderr = np.full(3, 2.0), np.full(3, 50.0), np.full(3, 0.1)
        bias = np.array([0.0, 0.01, 0.02])
        needed = Budget(rtol=0.01).needed(value, count, stderr, bias)
        want = 50 * (stats.t.ppf(0.975, 49) * 0.1 / 0.02) ** 2
        np.testing.assert_allclose(needed[0], want, rtol=1e-9)
        # With a bias, half of the interval is between the one-sided quantile and the two-sided one, plus the bias.
        assert 50 * (stats.t.ppf(0.95, 49) * 0.1 / 0.01) ** 2 < needed[1] < 4 * want
        assert needed[2] == np.inf
        np.testing.assert_allclose(Budget(rtol=0.005).needed(value, count, stderr, 0 * bias), 4 * want, rtol=1e-9)

    def test_needed_is_enough(self):
        """Error bars that obey the law are within the tolerance once the targets are reached, in a few rounds."""
        budget, value = Budget(atol=0.01), np.ones(200)
        deviation = 10 ** np.random.default_rng(6).uniform(-3, 0, 200)
        count, rounds, nothing = np.zeros(200), 0, np.zeros(200)
        while True:
            with np.errstate(divide="ignore", invalid="ignore"):
                stderr = np.where(count > 1, deviation / np.sqrt(count), np.nan)
            targets = budget.targets(value, count, stderr, nothing)
            if np.all(targets == count):
                break
            count, rounds = targets.astype(float), rounds + 1
        assert budget.met(value, count, stderr, nothing).all()
        needed = (1.96 * deviation / 0.01) ** 2
        assert rounds <= 9
        assert np.all(count <= np.maximum(16, 1.5 * needed))

    def test_it_ends(self):
        """Values that never come to rest end at the most a point may have."""
        count, bar = np.zeros(1), np.ones(1)
        for _ in range(60):
            count = Budget(atol=1e-9).targets(bar, count, bar, 0 * bar).astype(float)
        assert count == MOST_REPLICATES


class TestRefine:
    def test_each_answer_is_a_prefix(self):
        seen = list(refine(replicates=12))
        assert [set(got.replicates) for got in seen] == [{2}, {4}, {8}, {12}]
        for got in seen:
            check_same_bits(correct(replicates=int(got.replicates[0])), got)
        assert [len(got.history) for got in seen] == [1, 2, 3, 4]

    def test_tolerance(self):
        seen = list(refine(atol=0.05))
        counts = np.array([got.replicates for got in seen])
        assert counts[0].tolist() == [16] * 6
        assert np.all(counts[1:] >= counts[:-1])
        assert np.all(counts[1:] <= 2 * counts[:-1])
        assert (counts[-1] > 2 * counts[0]).any()
        assert set(seen[-1].status) == {"converged"}

    def test_without_a_rule_it_goes_on(self):
        for _, got in zip(range(6), refine(), strict=False):
            last = set(got.replicates)
        assert last == {64}
        check_same_bits(correct(replicates=64), got)

    def test_seconds(self):
        compiled()
        seen = list(refine(seconds=0.2))
        assert len(seen) > 1
        assert "seconds=0.2" in seen[-1].stopped

    @pytest.mark.parametrize("options", [{"rtol": -1.0}, {"replicates": 0}, {"safe": "no"}, {"seconds": 0}])
    def test_arguments_are_checked_at_the_call(self, options):
        with pytest.raises(ScasmlError, match=next(iter(options))):
            refine(**options)


def ctrl_c(after, times=1):
    """A `progress` function that presses it once there are more than `after` rows."""
    presses = iter(range(times))

    def report(now):
        if now.rows > after:
            for _ in presses:
                os.kill(os.getpid(), signal.SIGINT)

    return report


@contextlib.contextmanager
def heard():
    """What comes through is a failure, and not the end of pytest."""
    try:
        yield
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C came through")


@pytest.fixture
def _every_report(monkeypatch):
    monkeypatch.setattr(CORRECT, "REPORT_SECONDS", 0.0)


@pytest.mark.usefixtures("_every_report")
class TestCtrlC:
    def test_the_answer_so_far(self, pythons_handler):
        with heard():
            got = correct(replicates=10**6, progress=ctrl_c(after=200))
        assert set(got.status) == {"interrupted"}
        assert got.stopped == "interrupted"
        assert 30 <= got.replicates.min() <= got.replicates.max() < 10**4
        assert signal.getsignal(signal.SIGINT) is pythons_handler
        names = ("raw_value", "stderr", "replicates")
        check_same_bits(got, correct(T[1], X[1], replicates=int(got.replicates[1])), 1, names)

    def test_the_bias_so_far(self, pythons_handler):
        with heard():
            got = correct(replicates=10**6, progress=ctrl_c(after=200))
        assert np.all(got.levels[0].bias["noise"] > 0)

    def test_under_a_tolerance(self, pythons_handler):
        """A point that was done before is."""
        with heard():
            got = correct(T[1:], X[1:], atol=0.02, progress=ctrl_c(after=300))
        assert set(got.status) == {"interrupted", "converged"}
        np.testing.assert_array_equal(got.unmet, got.status == "interrupted")

    def test_before_there_are_error_bars(self, pythons_handler):
        with pytest.raises(KeyboardInterrupt):
            correct(replicates=10**6, progress=ctrl_c(after=0))
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_twice(self, pythons_handler):
        """The second one is not waited for."""
        with pytest.raises(KeyboardInterrupt):
            correct(replicates=10**6, progress=ctrl_c(after=200, times=2))
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_refine(self, pythons_handler):
        """It ends after one more answer, here the third."""
        with heard():
            seen = list(refine(replicates=64, chunk=4, progress=ctrl_c(after=30)))
        assert [set(got.status) for got in seen] == [{"budget exhausted"}, {"budget exhausted"}, {"interrupted"}]
        assert np.all(seen[2].replicates < 8)
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_refine_at_the_end_of_a_round(self, pythons_handler, monkeypatch):
        monkeypatch.setattr(CORRECT, "REPORT_SECONDS", 1e9)  # what remains is the first report and those of ends
        with heard():
            seen = list(refine(replicates=64, progress=ctrl_c(after=11)))
        assert len(seen) <= 2

    def test_refine_while_an_answer_is_made(self, pythons_handler, monkeypatch):
        """It is not lost between two rounds either."""
        made = iter([lambda: None, lambda: os.kill(os.getpid(), signal.SIGINT)])
        of = CORRECT.Tails.of

        def press(*args):
            next(made)()
            return of(*args)

        monkeypatch.setattr(CORRECT.Tails, "of", press)
        with heard():
            seen = list(refine(replicates=64))
        assert len(seen) == 2
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_another_thread(self, pythons_handler):
        """There no handler can be installed, and none is."""
        handlers, answers = [], []
        look = lambda now: handlers.append(signal.getsignal(signal.SIGINT))
        thread = threading.Thread(target=lambda: answers.append(correct(replicates=8, progress=look)))
        thread.start()
        thread.join()
        check_same_bits(answers[0], correct(replicates=8, progress=look))
        assert handlers[0] is pythons_handler
        assert handlers[-1] is not pythons_handler  # this thread's call has its own

    def test_a_handler_of_the_users_own(self, pythons_handler):
        presses = []
        mine = lambda number, frame: presses.append(number)
        signal.signal(signal.SIGINT, mine)
        with heard():
            got = correct(replicates=8, progress=ctrl_c(after=0))
        assert presses == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is mine
        check_same_bits(correct(replicates=8), got)


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


@pytest.mark.usefixtures("_every_report")
class TestProgress:
    RULES = (
        {"replicates": 20},
        {"rtol": 0.1},
        {"atol": 0.05},
    )

    @pytest.mark.parametrize("rules", RULES, ids=str)
    def test_it_rises_to_all(self, rules):
        seen = []
        got = correct(np.append(T, np.float32(0.8)), np.concatenate([X, X[:1]]), **rules, progress=seen.append)
        rows, done = [now.rows for now in seen], [now.points_done for now in seen]
        assert {now.points for now in seen} == {7}
        assert done[0] == 1  # the one at the horizon
        assert done[-1] == 7
        assert rows == sorted(rows)
        assert rows[0] >= 1
        assert rows[-1] == got.replicates.sum() == got.cost.replicates
        assert seen[-1].seconds_left == 0

    def test_seconds_left(self):
        """Once all points have error bars, and the kernel has been timed."""
        seen = []
        correct(T[3:], X[3:], rtol=0.05, progress=seen.append)
        known = [now for now in seen if now.rows >= 3 * 16 and now.points_done < 3]
        assert len(known) > 2
        assert all(np.isfinite(now.seconds_left) and now.seconds_left > 0 for now in known)
        assert all(now.worst > 0.05 for now in known)

    @pytest.mark.parametrize(
        "rules", [{"seconds": 0.05}, {"rtol": 0.03, "replicates": 100}, {"atol": 0.05}, {}], ids=str
    )
    def test_seconds_left_are_a_number(self, rules):
        """Infinite while nothing has been timed, and none at the end."""
        seen = []
        correct(**rules, progress=seen.append)
        assert all(now.seconds_left >= 0 for now in seen)
        assert seen[-1].seconds_left == 0

    def test_seconds_left_of_a_deadline(self):
        compiled()
        seen = []
        correct(seconds=0.3, progress=seen.append)
        assert all(now.seconds_left <= 0.3 for now in seen[1:])
        assert seen[1].seconds_left > seen[-2].seconds_left


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
        for entry in ("Kernel", "surrogate_at", "terminal_at"):
            monkeypatch.setattr(CORRECT, entry, poison)
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
        got = value if isinstance(value, float | int) and not isinstance(value, bool) else repr(value)
        self.check_refused(monkeypatch, lambda: function(**{name: value}), name, got)

    @pytest.mark.parametrize("value", [None, 0, 1, "yes", [True]], ids=repr)
    @pytest.mark.parametrize("name", ["safe", "throw"])
    def test_switches(self, monkeypatch, name, value):
        self.check_refused(monkeypatch, lambda: correct(**{"rtol": 0.1, name: value}), name, repr(value))

    @pytest.mark.parametrize("rules", [{}, {"replicates": 3}, {"seconds": 1.0}])
    def test_throw_without_a_tolerance(self, monkeypatch, rules):
        self.check_refused(monkeypatch, lambda: correct(throw=True, **rules), "throw", "True and none")

    def test_good_input_is_not_refused(self, monkeypatch):
        """The poison is live."""
        with pytest.raises(pytest.fail.Exception, match="reached the simulation"):
            self.check_refused(monkeypatch, lambda: correct(rtol=np.float32(0.1), atol=1, seconds=np.int64(2)), "", "")


class TestInterval:
    def test_bias_widens_it(self):
        got = adaptive()
        assert np.all(got.bias > 0)
        (low, high), (inner_low, inner_high) = got.interval(0.95), got.interval(0.95, include_bias=False)
        assert np.all((low < inner_low) & (inner_high < high))
        np.testing.assert_allclose((low + high) / 2, got.raw_value, rtol=1e-12)
        assert np.all(inner_low - low <= got.bias * (1 + 1e-9))
        np.testing.assert_allclose(
            (inner_high - inner_low) / 2, stats.t.ppf(0.975, got.replicates - 1) * got.stderr, rtol=1e-9
        )

    @pytest.mark.parametrize("bias", [0.0, np.nan])
    def test_no_bias_and_an_unknown_one(self, bias):
        got = dataclasses.replace(adaptive(), bias=np.full(6, bias))
        np.testing.assert_array_equal(got.interval(0.95), adaptive().interval(0.95, include_bias=False))


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
