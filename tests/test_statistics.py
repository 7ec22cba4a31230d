"""Moments of replicates against NumPy, and the interval that follows from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers import SIGMAS
from scasml.statistics import Moments, student_quantile

# The same examples in every run, and none kept on disk.
fixed = settings(derandomize=True, database=None, deadline=None, max_examples=60)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12).map(np.array)


def moments_of(rows):
    """The rows one after the other, as replicates arrive."""
    total = Moments.empty(rows.shape[1:])
    for row in rows:
        total = total.merge(Moments.of(row))
    return total


def bits(moments):
    return moments.count.tobytes(), moments.mean.tobytes(), moments.squares.tobytes()


def check(moments, rows):
    """Count, mean and standard error are NumPy's to rounding; the scale of both is the largest number."""
    scale = np.max(np.abs(rows)) + 1e-300
    np.testing.assert_array_equal(moments.count, len(rows))
    np.testing.assert_allclose(moments.mean, np.mean(rows, 0), rtol=1e-12, atol=1e-14 * scale)
    if len(rows) > 1:
        want = np.std(rows, 0, ddof=1) / np.sqrt(len(rows))
        np.testing.assert_allclose(moments.stderr, want, rtol=1e-9, atol=1e-13 * scale)
    else:
        assert np.all(np.isnan(moments.stderr))


class TestMoments:
    @fixed
    @given(rows=ROWS)
    def test_one_by_one(self, rows):
        check(moments_of(rows), rows)

    @fixed
    @given(parts=st.lists(ROWS, min_size=1, max_size=4), data=st.data())
    def test_any_split_in_any_order(self, parts, data):
        order = data.draw(st.permutations(range(len(parts))))
        total = Moments.empty((2,))
        for i in order:
            total = total.merge(moments_of(parts[i]))
        check(total, np.concatenate(parts))

    @fixed
    @given(rows=ROWS, other=ROWS)
    def test_either_way_round(self, rows, other):
        """a + b and b + a agree to rounding."""
        a, b = moments_of(rows), moments_of(other)
        one, two = a.merge(b), b.merge(a)
        scale = max(np.max(np.abs(rows)), np.max(np.abs(other)), 1e-300)
        np.testing.assert_allclose(one.mean, two.mean, rtol=1e-12, atol=1e-14 * scale)
        np.testing.assert_allclose(one.squares, two.squares, rtol=1e-9, atol=1e-13 * scale**2)

    @fixed
    @given(rows=ROWS)
    def test_empties_change_nothing(self, rows):
        """Bit for bit, on either side."""
        total, empty = moments_of(rows + 0.0), Moments.empty((2,))
        assert bits(empty.merge(total)) == bits(total)
        for got, want in zip(bits(total.merge(empty)), bits(total), strict=True):
            np.testing.assert_array_equal(np.frombuffer(got), np.frombuffer(want))
        assert bits(empty.merge(empty)) == bits(empty)

    @pytest.mark.parametrize("value", [1e200, -1e300, np.inf])
    def test_empties_change_nothing_however_large(self, value):
        """The square of an empty side's distance may overflow; it counts for nothing."""
        one, empty = Moments.of(np.array([value])), Moments.empty((1,))
        with np.errstate(over="ignore", invalid="ignore"):
            assert bits(empty.merge(one)) == bits(one)
            assert bits(one.merge(empty)) == bits(one)

    def test_elements_are_alone(self):
        """Counts may differ from point to point, and a NaN stays where it is."""
        rows = np.random.default_rng(0).normal(size=(5, 4))
        rows[2, 3] = np.nan
        total = Moments.empty((4,))
        for i, row in enumerate(rows):
            where = slice(0, 4 if i != 1 else 2)
            total.update(where, row[where])
        np.testing.assert_array_equal(total.count, [5, 5, 4, 4])
        check(total.part(slice(0, 2)), rows[:, :2])
        check(total.part(slice(2, 3)), np.delete(rows, 1, 0)[:, 2:3])
        assert np.isnan(total.mean[3])

    def test_a_small_spread_about_a_large_mean(self):
        """Where a sum of squares would leave no figure: 1e9 and a spread of 1, to 1e-7."""
        rows = 1e9 + np.random.default_rng(1).normal(size=(1000, 1))
        np.testing.assert_allclose(moments_of(rows).stderr, np.std(rows, 0, ddof=1) / np.sqrt(1000), rtol=1e-7)

    def test_no_error_bar_from_fewer_than_two(self):
        assert np.all(np.isnan(Moments.empty((3,)).stderr))
        assert np.all(np.isnan(Moments.of(np.arange(3.0)).stderr))
        assert np.all(Moments.of(np.arange(3.0)).merge(Moments.of(np.arange(3.0))).stderr == 0)


class TestInterval:
    @pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
    def test_quantile_is_students(self, level):
        counts = np.array([2, 3, 5, 30, 1000, 10**6])
        np.testing.assert_allclose(student_quantile(level, counts), stats.t.ppf((1 + level) / 2, counts - 1), rtol=1e-8)

    def test_none_from_one_replicate(self):
        np.testing.assert_array_equal(np.isnan(student_quantile(0.95, np.array([0, 1, 2]))), [True, True, False])

    @pytest.mark.parametrize(("level", "count"), [(0.5, 2), (0.9, 4), (0.95, 8)])
    def test_coverage(self, level, count):
        """20000 means of Gaussian data: the interval covers the truth as often as it says.

        6 standard errors of a binomial share, at most 0.021: false-fail rate 2e-9 for each of 3 cases. A normal quantile in
        place of Student's would miss by 0.12, 0.10 and 0.04.
        """
        trials = 20_000
        rows = np.random.default_rng(count).normal(3.0, 2.0, size=(count, trials))
        total = moments_of(rows)
        inside = np.abs(total.mean - 3.0) <= student_quantile(level, total.count) * total.stderr
        allowed = SIGMAS * np.sqrt(level * (1 - level) / trials)
        assert abs(np.mean(inside) - level) < allowed
        normal = np.abs(total.mean - 3.0) <= stats.norm.ppf((1 + level) / 2) * total.stderr
        assert abs(np.mean(normal) - level) > allowed
