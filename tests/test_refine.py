"""Tests of answers that arrive while the simulation runs: `refine`, Ctrl-C, progress."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest

from elastic_case import T, X, check_same_bits, compiled, correct, refine
from scasml import Picard, ScasmlError
from scasml.estimators import Variant
from scasml.execution import LocalExecutor
from scasml.execution.rounds import REPORT_SECONDS


class TestRefine:
    def test_each_answer_uses_the_first_replicates(self):
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

    def test_without_a_rule_it_does_not_end(self):
        for _, got in zip(range(6), refine(), strict=False):
            last = set(got.replicates)
        assert last == {64}
        check_same_bits(correct(replicates=64), got)

    def test_seconds(self):
        compiled()
        seen = list(refine(seconds=0.2))
        assert len(seen) > 1
        assert "seconds=0.2" in seen[-1].stopped

    @pytest.mark.parametrize(
        "options", [{"rtol": -1.0}, {"replicates": 0}, {"safe": "no"}, {"seconds": 0}]
    )
    def test_arguments_are_checked_at_the_call(self, options):
        with pytest.raises(ScasmlError, match=next(iter(options))):
            refine(**options)


def press():
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


class PressCtrlC(LocalExecutor):
    """An executor that presses Ctrl-C `times` times, once it has run more than `after` replicates.

    With `at_end` it presses at the end of the round.
    """

    def __init__(self, after, times=1, at_end=False, chunk=None):
        super().__init__(chunk)
        self.after, self.times, self.at_end, self.replicates = after, times, at_end, 0

    def run(self, program, rows):
        for part in super().run(program, rows):
            self.replicates += int(np.sum(rows.variant[part.rows] == Variant.MAIN))
            if not self.at_end:
                self.press()
            yield part
        self.press()

    def press(self):
        while self.replicates > self.after and self.times:
            self.times -= 1
            press()


@contextlib.contextmanager
def no_interrupt():
    """Fail if KeyboardInterrupt is raised, which would otherwise end pytest."""
    try:
        yield
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C raised KeyboardInterrupt")


class TestCtrlC:
    def test_the_answer_so_far_is_returned(self, pythons_handler):
        with no_interrupt():
            got = correct(replicates=10**6, executor=PressCtrlC(after=200))
        assert set(got.status) == {"interrupted"}
        assert got.stopped == "interrupted"
        assert 30 <= got.replicates.min() <= got.replicates.max() < 10**4
        assert signal.getsignal(signal.SIGINT) is pythons_handler
        names = ("raw_value", "stderr", "replicates")
        check_same_bits(got, correct(T[1], X[1], replicates=int(got.replicates[1])), 1, names)

    def test_the_answer_so_far_has_a_noise_bias(self, pythons_handler):
        with no_interrupt():
            got = correct(replicates=10**6, executor=PressCtrlC(after=200))
        assert np.all(got.levels[0].bias["noise"] > 0)

    def test_under_a_tolerance(self, pythons_handler):
        """A point that had converged before stays converged."""
        with no_interrupt():
            got = correct(T[1:], X[1:], atol=0.02, executor=PressCtrlC(after=300))
        assert set(got.status) == {"interrupted", "converged"}
        np.testing.assert_array_equal(got.unmet, got.status == "interrupted")

    def test_before_there_are_error_bars(self, pythons_handler):
        with pytest.raises(KeyboardInterrupt):
            correct(replicates=10**6, executor=PressCtrlC(after=0, chunk=1))
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_twice(self, pythons_handler):
        """The second Ctrl-C ends the call at once."""
        with pytest.raises(KeyboardInterrupt):
            correct(replicates=10**6, executor=PressCtrlC(after=200, times=2))
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_refine(self, pythons_handler):
        """The iteration ends after one more answer, here the third."""
        with no_interrupt():
            seen = list(refine(replicates=64, executor=PressCtrlC(after=30, chunk=4)))
        assert [set(got.status) for got in seen] == [
            {"budget exhausted"},
            {"budget exhausted"},
            {"interrupted"},
        ]
        assert np.all(seen[2].replicates < 8)
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_refine_at_the_end_of_a_round(self, pythons_handler):
        with no_interrupt():
            seen = list(refine(replicates=64, executor=PressCtrlC(after=11, at_end=True)))
        assert [set(got.status) for got in seen] == [{"interrupted"}]

    def test_refine_while_an_answer_is_assembled(self, pythons_handler):
        """An interruption between two rounds is noticed too, by the second answer here."""
        reports, presses = [], iter([press])

        class PressInAssembly(Picard):
            """An estimator that presses Ctrl-C once it is asked for the cost of two rounds."""

            def evaluations(self, equation, tuning):
                if reports and reports[-1].rows == 4 * len(T):
                    next(presses, lambda: None)()
                return super().evaluations(equation, tuning)

        with no_interrupt():
            method = PressInAssembly(1, 2)
            seen = list(refine(replicates=64, method=method, progress=reports.append))
        # The second answer was complete when Ctrl-C was pressed.
        assert [set(got.status) for got in seen] == [{"budget exhausted"}] * 2
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_another_thread(self, pythons_handler):
        """Python allows signal handlers in the main thread only, so none is installed."""
        handlers, answers = [], []
        look = lambda now: handlers.append(signal.getsignal(signal.SIGINT))
        thread = threading.Thread(
            target=lambda: answers.append(correct(replicates=8, progress=look))
        )
        thread.start()
        thread.join()
        check_same_bits(answers[0], correct(replicates=8, progress=look))
        assert handlers[0] is pythons_handler
        assert handlers[-1] is not pythons_handler  # the call in the main thread installs one

    def test_a_handler_of_the_user(self, pythons_handler):
        presses = []
        handler = lambda number, frame: presses.append(number)
        signal.signal(signal.SIGINT, handler)
        with no_interrupt():
            got = correct(replicates=8, executor=PressCtrlC(after=0))
        assert presses == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
        check_same_bits(correct(replicates=8), got)


class ReportEveryPart(LocalExecutor):
    """An executor that is so slow that every part of the rows is reported."""

    def run(self, program, rows):
        for part in super().run(program, rows):
            time.sleep(REPORT_SECONDS)
            yield part


class TestProgress:
    RULES = (
        {"replicates": 20},
        {"rtol": 0.1},
        {"atol": 0.05},
    )

    @pytest.mark.parametrize("rules", RULES, ids=str)
    def test_it_rises_to_all(self, rules):
        seen = []
        t, x = np.append(T, np.float32(0.8)), np.concatenate([X, X[:1]])
        got = correct(t, x, **rules, progress=seen.append, executor=ReportEveryPart(32))
        rows, done = [now.rows for now in seen], [now.points_done for now in seen]
        assert {now.points for now in seen} == {7}
        assert done[0] == 1  # the point at the horizon
        assert done[-1] == 7
        assert rows == sorted(rows)
        assert rows[0] >= 1
        assert rows[-1] == got.replicates.sum() == got.cost.replicates
        assert seen[-1].seconds_left == 0

    def test_seconds_left(self):
        """They are known once all points have error bars and the program has been timed."""
        seen = []
        correct(T[3:], X[3:], rtol=0.05, progress=seen.append, executor=ReportEveryPart(32))
        known = [now for now in seen if now.rows >= 3 * 16 and now.points_done < 3]
        assert len(known) > 2
        assert all(np.isfinite(now.seconds_left) and now.seconds_left > 0 for now in known)
        assert all(now.worst > 0.05 for now in known)

    @pytest.mark.parametrize(
        "rules", [{"seconds": 0.05}, {"rtol": 0.03, "replicates": 100}, {"atol": 0.05}, {}], ids=str
    )
    def test_seconds_left_are_a_number(self, rules):
        """They are infinite before the first rows are timed, and 0 at the end."""
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
