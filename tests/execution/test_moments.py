"""Moments of replicates against NumPy, and the interval that follows from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers import SIGMAS
from scasml.execution.moments import Extremes, Groups, Moments, half_width, student_quantile

# The same examples in every run, and none kept on disk.
fixed = settings(derandomize=True, database=None, deadline=None, max_examples=60)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12).map(np.array)


def moments_of(rows, order=2, cuts=()):
    """The rows of one point one after the other, as replicates arrive; `cuts` says where a piece of work ends."""
    total = Moments((1, *rows.shape[1:]), order)
    for part in np.split(rows, cuts):
        if len(part):
            total.add(Groups(np.zeros(len(part), np.int64)), part)
    return total


def bits(moments):
    return moments.count.tobytes(), moments.mean.tobytes(), moments.stderr.tobytes()


def check(moments, rows):
    """Count, mean and standard error are NumPy's to rounding; the scale of both is the largest number."""
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
    def test_one_by_one(self, rows):
        check(moments_of(rows, cuts=range(len(rows))), rows)

    @fixed
    @given(rows=ROWS, cuts=st.lists(st.integers(0, 12), max_size=4).map(sorted))
    def test_any_cut_gives_the_same_bits(self, rows, cuts):
        assert bits(moments_of(rows, cuts=cuts)) == bits(moments_of(rows))

    @pytest.mark.parametrize("points", [1, 3, 40])
    def test_points_are_alone(self, points):
        """Whatever the company, and however often a point occurs in one piece of work, the same bits."""
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
        """Where a sum of squares would leave no figure: 1e9 and a spread of 1, to 1e-7."""
        rows = 1e9 + np.random.default_rng(1).normal(size=(1000, 1))
        np.testing.assert_allclose(
            moments_of(rows).stderr[0], np.std(rows, 0, ddof=1) / np.sqrt(1000), rtol=1e-7
        )

    def test_no_error_bar_from_fewer_than_two(self):
        assert np.all(np.isnan(Moments((1, 3)).stderr))
        assert np.all(np.isnan(moments_of(np.arange(3.0)[None]).stderr))
        assert np.all(moments_of(np.tile(np.arange(3.0), (2, 1))).stderr == 0)


class TestExtremes:
    def test_the_largest_and_smallest_are_kept(self):
        rng = np.random.default_rng(0)
        point, values = rng.integers(0, 5, 3000), rng.normal(size=3000)
        kept = Extremes(5, 8)
        for part in np.array_split(np.arange(3000), 11):
            kept.add(Groups(point[part]), values[part])
        for p in range(5):
            mine = np.sort(values[point == p])
            np.testing.assert_array_equal(kept.low[p], mine[:8])
            np.testing.assert_array_equal(kept.high[p], mine[-8:])


class TestInterval:
    @pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
    def test_quantile_is_students(self, level):
        counts = np.array([2, 3, 5, 30, 1000, 10**6])
        np.testing.assert_allclose(
            student_quantile(level, counts), stats.t.ppf((1 + level) / 2, counts - 1), rtol=1e-8
        )

    def test_none_from_one_replicate(self):
        np.testing.assert_array_equal(
            np.isnan(student_quantile(0.95, np.array([0, 1, 2]))), [True, True, False]
        )

    @pytest.mark.parametrize(("level", "count"), [(0.5, 2), (0.9, 4), (0.95, 8)])
    def test_coverage(self, level, count):
        """20000 means of Gaussian data: the interval covers the truth as often as it says.

        6 standard errors of a binomial share, at most 0.021: false-fail rate 2e-9 for each of 3 cases. A normal quantile in
        place of Student's would miss by 0.12, 0.10 and 0.04.
        """
        trials = 20_000
        rows = np.random.default_rng(count).normal(3.0, 2.0, size=(count, trials))
        total = moments_of(rows)
        inside = (
            np.abs(total.mean[0] - 3.0) <= student_quantile(level, total.count) * total.stderr[0]
        )
        allowed = SIGMAS * np.sqrt(level * (1 - level) / trials)
        assert abs(np.mean(inside) - level) < allowed
        normal = np.abs(total.mean[0] - 3.0) <= stats.norm.ppf((1 + level) / 2) * total.stderr[0]
        assert abs(np.mean(normal) - level) > allowed

    @pytest.mark.parametrize("bias", [0.0, 0.3, 1.0, 5.0, 1000.0])
    @pytest.mark.parametrize("count", [3, 20, 10**6])
    def test_with_the_bias_it_names_coverage_is_exact(self, bias, count):
        c, freedom = student_quantile(0.9, count, bias), count - 1
        covered = stats.t.cdf(c - bias, freedom) - stats.t.cdf(-c - bias, freedom)
        np.testing.assert_allclose(covered, 0.9, atol=1e-7)

    def test_a_bias_without_noise_is_the_interval(self):
        np.testing.assert_array_equal(
            half_width(0.95, [5, 5, 1], [0.0, 1.0, np.nan], [0.3, np.nan, 0.1])[0], 0.3
        )
        np.testing.assert_allclose(
            half_width(0.95, 5, 1.0, np.nan), stats.t.ppf(0.975, 4)
        )  # unknown: not in it
        np.testing.assert_allclose(half_width(0.95, 10**6, 1e-12, 0.3), 0.3)
