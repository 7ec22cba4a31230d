"""Stopping rules: how many replicates a rule asks for, on invented error bars."""

import numpy as np
import pytest
from scipy import stats

from scasml.execution.stopping import (
    Estimate,
    StoppingRule,
)

RULES = (
    StoppingRule(),
    StoppingRule(seconds=3.0),
    StoppingRule(replicates=40),
    StoppingRule(rtol=0.01),
    StoppingRule(atol=0.02),
    StoppingRule(rtol=0.01, atol=0.02, replicates=300),
    StoppingRule(rtol=0.01, replicates=5),
    StoppingRule(anytime=True),
    StoppingRule(anytime=True, replicates=300),
    StoppingRule(anytime=True, rtol=0.01),
)


def invented():
    """Return the state of 1000 points; some values are NaN, some points have no replicates."""
    rng = np.random.default_rng(5)
    count = rng.integers(0, 400, 1000).astype(float)
    value = np.where(rng.uniform(size=1000) < 0.1, np.nan, rng.normal(size=1000))
    stderr = np.where(count > 1, 10 ** rng.uniform(-5, 0, 1000), np.nan)
    bias = rng.choice([0, np.nan, 0.005, 0.05], 1000)
    return Estimate(value, count, stderr, bias)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_next_counts(rule):
    estimate = invented()
    value, count = estimate.value, estimate.replicates
    targets = rule.next_counts(estimate)
    started = count >= (rule.min_replicates if rule.has_tolerance else 2)
    assert np.all(targets >= count)
    assert np.all(targets <= np.maximum(rule.most, count))
    broken = (count > 0) & np.isnan(value)
    np.testing.assert_array_equal(targets[broken], count[broken])
    growth = rule.max_growth if rule.has_tolerance and not rule.anytime else 2
    if rule.anytime or rule.replicates is None:
        assert np.all(targets[started] <= growth * count[started])
    going = started & ~broken & (count < rule.most)
    if rule.has_tolerance:
        done = rule.met(estimate) | rule.bias_limited(estimate)
        assert (going & done).any() or rule.most < rule.min_replicates
        np.testing.assert_array_equal(targets[done], count[done])
        going &= ~done
    least = np.minimum(np.ceil(rule.min_growth * count), rule.most)
    assert going.any() or rule.most < rule.min_replicates
    assert np.all(targets[going] >= least[going])


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        (StoppingRule(), 2),
        (StoppingRule(seconds=3.0), 2),
        (StoppingRule(replicates=40), 40),
        (StoppingRule(rtol=0.1), 16),
        (StoppingRule(atol=0.1, replicates=5), 5),
        (StoppingRule(anytime=True), 2),
        (StoppingRule(anytime=True, replicates=40), 2),
        (StoppingRule(anytime=True, replicates=1), 1),
    ],
    ids=str,
)
def test_the_first_round(rule, first):
    zero = np.zeros(1)
    assert rule.next_counts(Estimate(zero, zero, np.full(1, np.nan), zero)).tolist() == [first]


def test_met():
    """The half width is that of SciPy's Student quantile; 16 replicates are needed at least.

    A bias adds to the half width.
    """
    count, stderr = np.array([16.0, 16.0, 15.0]), np.array([0.9, 1.1, 0.0])
    rule = StoppingRule(atol=float(stats.t.ppf(0.975, 15)))
    met = lambda points, bias: rule.met(
        Estimate(np.ones(points), count[:points], stderr[:points], np.full(points, bias))
    )
    assert met(3, 0.0).tolist() == [True, False, False]
    assert not met(1, 1.0).any()


def test_needed():
    """The half width falls as 1/sqrt(N), and the bias takes its part of the tolerance."""
    value, count, stderr = np.full(3, 2.0), np.full(3, 50.0), np.full(3, 0.1)
    bias = np.array([0.0, 0.01, 0.02])
    needed = StoppingRule(rtol=0.01).needed(Estimate(value, count, stderr, bias))
    want = 50 * (stats.t.ppf(0.975, 49) * 0.1 / 0.02) ** 2
    np.testing.assert_allclose(needed[0], want, rtol=1e-9)
    # With a bias, the half width minus the bias lies between a one-sided and a two-sided quantile.
    assert 50 * (stats.t.ppf(0.95, 49) * 0.1 / 0.01) ** 2 < needed[1] < 4 * want
    assert needed[2] == np.inf
    unbiased = Estimate(value, count, stderr, 0 * bias)
    np.testing.assert_allclose(StoppingRule(rtol=0.005).needed(unbiased), 4 * want, rtol=1e-9)


def test_the_needed_replicates_are_enough():
    """Error bars that fall as 1/sqrt(N) meet the tolerance after at most nine rounds."""
    rule, value = StoppingRule(atol=0.01), np.ones(200)
    deviation = 10 ** np.random.default_rng(6).uniform(-3, 0, 200)
    count, rounds, zero = np.zeros(200), 0, np.zeros(200)
    while True:
        with np.errstate(divide="ignore", invalid="ignore"):
            stderr = np.where(count > 1, deviation / np.sqrt(count), np.nan)
        estimate = Estimate(value, count, stderr, zero)
        targets = rule.next_counts(estimate)
        if np.all(targets == count):
            break
        count, rounds = targets.astype(float), rounds + 1
    assert rule.met(estimate).all()
    needed = (1.96 * deviation / 0.01) ** 2
    assert rounds <= 9
    assert np.all(count <= np.maximum(16, 1.5 * needed))


def test_a_run_ends():
    """Values that never converge end at the largest number of replicates."""
    count, one = np.zeros(1), np.ones(1)
    for _ in range(60):
        estimate = Estimate(one, count, one, 0 * one)
        count = StoppingRule(atol=1e-9).next_counts(estimate).astype(float)
    assert count == StoppingRule().max_replicates
