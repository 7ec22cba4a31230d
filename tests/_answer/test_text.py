"""How an answer prints: one line for one point, a table for several."""

import dataclasses

import numpy as np
import pytest

from correct_case import T, X, answer, correct
from scasml import Status


def test_one_point():
    """u = value +- half width (95 %), surrogate, replicates, seconds.

    Numbers have two digits of the error bar.
    """
    one = correct(T[0], X[0])
    half = (one.interval(0.95)[1] - one.interval(0.95)[0]) / 2
    text = str(one)
    assert repr(one) == text
    assert "\n" not in text
    shown = {
        word: float(text.split(word)[1].split()[0].rstrip(","))
        for word in ("u =", "+-", "surrogate")
    }
    digits = 0.06 * half
    assert shown["u ="] == pytest.approx(one.value, abs=digits)
    assert shown["+-"] == pytest.approx(half, abs=digits)
    assert shown["surrogate"] == pytest.approx(one.surrogate_value, abs=digits)
    assert "5 replicates" in text
    assert "95 %" in text


def test_several_points():
    """A summary, a line of headings, and a row for each of the first points."""
    got = answer()
    head, names, *rows = str(got).split("\n")
    assert "9 points" in head
    assert "5 replicates" in head
    assert {"u", "surrogate", "status", "95"} <= set(names.split())
    lower, upper = got.interval(0.95)
    for i, row in enumerate(rows[:6]):
        index, _, value, half, _, surrogate, *status = row.split()
        assert int(index) == i
        digits = 0.03 * (upper[i] - lower[i])
        assert float(value) == pytest.approx(got.value[i], abs=digits)
        assert float(half) == pytest.approx((upper[i] - lower[i]) / 2, abs=digits)
        assert float(surrogate) == pytest.approx(got.surrogate_value[i], abs=digits)
        assert " ".join(status) == got.status[i] == "budget exhausted"
    assert "9 budget exhausted" in rows[6]


def test_an_answer_that_is_not_finite():
    """Its error bar has no meaning, but not because of too few replicates."""
    one = dataclasses.replace(
        correct(T[0], X[0]),
        value=np.float64(np.nan),
        stderr=np.float64(np.nan),
        status_code=Status.NOT_FINITE.code,
    )
    assert "not finite" in str(one)
    assert "one replicate" not in str(one)
