"""An answer that comes bit by bit: refine, Ctrl-C, progress."""

import contextlib
import os
import signal
import threading

import numpy as np
import pytest

from elastic_case import CORRECT, T, X, check_same_bits, compiled, correct, refine
from scasml import ScasmlError


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

    @pytest.mark.parametrize(
        "options", [{"rtol": -1.0}, {"replicates": 0}, {"safe": "no"}, {"seconds": 0}]
    )
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
        assert [set(got.status) for got in seen] == [
            {"budget exhausted"},
            {"budget exhausted"},
            {"interrupted"},
        ]
        assert np.all(seen[2].replicates < 8)
        assert signal.getsignal(signal.SIGINT) is pythons_handler

    def test_refine_at_the_end_of_a_round(self, pythons_handler, monkeypatch):
        monkeypatch.setattr(
            CORRECT, "REPORT_SECONDS", 1e9
        )  # what remains is the first report and those of ends
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
        thread = threading.Thread(
            target=lambda: answers.append(correct(replicates=8, progress=look))
        )
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
        got = correct(
            np.append(T, np.float32(0.8)), np.concatenate([X, X[:1]]), **rules, progress=seen.append
        )
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
