"""Confidence intervals: Student quantiles, coverage, and a bound on the bias."""

import numpy as np
import pytest
from scipy import stats

from helpers import SIGMAS
from scasml.execution.intervals import half_width, student_quantile
from scasml.execution.moments import Groups, Moments


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_the_quantile_is_that_of_student(level):
    counts = np.array([2, 3, 5, 30, 1000, 10**6])
    np.testing.assert_allclose(
        student_quantile(level, counts), stats.t.ppf((1 + level) / 2, counts - 1), rtol=1e-8
    )


def test_one_replicate_has_no_interval():
    np.testing.assert_array_equal(
        np.isnan(student_quantile(0.95, np.array([0, 1, 2]))), [True, True, False]
    )


@pytest.mark.parametrize(("level", "count"), [(0.5, 2), (0.9, 4), (0.95, 8)])
def test_coverage(level, count):
    """The intervals of 20000 means of Gaussian data cover the truth as often as they say.

    The test allows 6 standard errors of a binomial fraction, at most 0.021. The false-fail rate
    is 2e-9 for each of 3 cases. A normal quantile would miss by 0.12, 0.10 and 0.04.
    """
    trials = 20_000
    rows = np.random.default_rng(count).normal(3.0, 2.0, size=(count, trials))
    total = Moments((1, trials))
    total.add(Groups(np.zeros(count, np.int64)), rows)
    error = np.abs(total.mean[0] - 3.0)
    inside = error <= student_quantile(level, total.count) * total.stderr[0]
    allowed = SIGMAS * np.sqrt(level * (1 - level) / trials)
    assert abs(np.mean(inside) - level) < allowed
    normal = error <= stats.norm.ppf((1 + level) / 2) * total.stderr[0]
    assert abs(np.mean(normal) - level) > allowed


@pytest.mark.parametrize("bias", [0.0, 0.3, 1.0, 5.0, 1000.0])
@pytest.mark.parametrize("count", [3, 20, 10**6])
def test_coverage_is_exact_for_the_stated_bias(bias, count):
    c, freedom = student_quantile(0.9, count, bias), count - 1
    covered = stats.t.cdf(c - bias, freedom) - stats.t.cdf(-c - bias, freedom)
    np.testing.assert_allclose(covered, 0.9, atol=1e-7)


def test_a_bias_without_noise_is_the_half_width():
    np.testing.assert_array_equal(
        half_width(0.95, [5, 5, 1], [0.0, 1.0, np.nan], [0.3, np.nan, 0.1])[0], 0.3
    )
    np.testing.assert_allclose(half_width(0.95, 10**6, 1e-12, 0.3), 0.3)


def test_an_unknown_bias_is_not_included():
    np.testing.assert_allclose(half_width(0.95, 5, 1.0, np.nan), stats.t.ppf(0.975, 4))
