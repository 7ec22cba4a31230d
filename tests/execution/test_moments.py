"""Moments and extremes of replicates, against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scasml.execution.moments import Extremes, Groups, Moments

# The same examples in every run, and none kept on disk.
fixed = settings(derandomize=True, database=None, deadline=None, max_examples=60)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12).map(np.array)


def moments_of(rows, order=2, cuts=()):
    """Return the moments of the rows of one point; `cuts` are the rows at which parts begin."""
    total = Moments((1, *rows.shape[1:]), order)
    for part in np.split(rows, cuts):
        if len(part):
            total.add(Groups(np.zeros(len(part), np.int64)), part)
    return total


def bits(moments):
    """Return count, mean and standard error as bytes."""
    return moments.count.tobytes(), moments.mean.tobytes(), moments.stderr.tobytes()


def check(moments, rows):
    """Check count, mean and standard error, to the rounding of the largest number."""
    scale = np.max(np.abs(rows)) + 1e-300
    np.testing.assert_array_equal(moments.count, len(rows))
    np.testing.assert_allclose(moments.mean[0], np.mean(rows, 0), rtol=1e-12, atol=1e-14 * scale)
    if len(rows) > 1:
        want = np.std(rows, 0, ddof=1) / np.sqrt(len(rows))
        np.testing.assert_allclose(moments.stderr[0], want, rtol=1e-9, atol=1e-7 * scale)
    else:
        assert np.all(np.isnan(moments.stderr))


class TestMoments:
    @fixed
    @given(rows=ROWS)
    def test_one_row_at_a_time(self, rows):
        check(moments_of(rows, cuts=range(len(rows))), rows)

    @fixed
    @given(rows=ROWS, cuts=st.lists(st.integers(0, 12), max_size=4).map(sorted))
    def test_any_cut_gives_the_same_bits(self, rows, cuts):
        assert bits(moments_of(rows, cuts=cuts)) == bits(moments_of(rows))

    @pytest.mark.parametrize("points", [1, 3, 40])
    def test_points_do_not_affect_each_other(self, points):
        """A point may have several rows in one part; its bits are those of the point alone."""
        rng = np.random.default_rng(points)
        point = rng.integers(0, points, 200)
        rows = rng.normal(size=(200, 2))
        rows[point == 0, 1] = np.nan
        together = Moments((points, 2), 4)
        for part in np.split(np.arange(200), [17, 18, 90]):
            together.add(Groups(point[part]), rows[part])
        for p in range(points):
            alone = moments_of(rows[point == p], order=4)
            for name in ("mean", "stderr", "kurtosis"):
                got, want = getattr(together, name)[p], getattr(alone, name)[0]
                assert got.tobytes() == want.tobytes()
        assert np.all(np.isnan(together.mean[0, 1]))
        assert np.all(np.isfinite(together.mean[:, 0]))

    def test_kurtosis(self):
        rows = np.random.default_rng(3).standard_t(5, size=(500, 3)) * 1e-3 + 7
        got = moments_of(rows, order=4)
        np.testing.assert_allclose(got.kurtosis[0], stats.kurtosis(rows, fisher=False), rtol=1e-9)
        np.testing.assert_allclose(
            got.variance_of_variance[0], (got.kurtosis[0] - 1) / 500, rtol=1e-12
        )

    def test_a_small_spread_about_a_large_mean(self):
        """A sum of squares would keep no digit of a spread of 1 about 1e9."""
        rows = 1e9 + np.random.default_rng(1).normal(size=(1000, 1))
        np.testing.assert_allclose(
            moments_of(rows).stderr[0], np.std(rows, 0, ddof=1) / np.sqrt(1000), rtol=1e-7
        )

    def test_an_error_bar_needs_two_replicates(self):
        assert np.all(np.isnan(Moments((1, 3)).stderr))
        assert np.all(np.isnan(moments_of(np.arange(3.0)[None]).stderr))
        assert np.all(moments_of(np.tile(np.arange(3.0), (2, 1))).stderr == 0)


def test_the_largest_and_the_smallest_values_are_kept():
    rng = np.random.default_rng(0)
    point, values = rng.integers(0, 5, 3000), rng.normal(size=3000)
    kept = Extremes(5)
    for part in np.array_split(np.arange(3000), 11):
        kept.add(Groups(point[part]), values[part])
    for p in range(5):
        own = np.sort(values[point == p])
        np.testing.assert_array_equal(kept.low[p], own[: kept.kept])
        np.testing.assert_array_equal(kept.high[p], own[-kept.kept :])
