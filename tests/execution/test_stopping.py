"""How many replicates a rule asks for: growth, goals, limits."""

import numpy as np
import pytest
from scipy import stats

from scasml.execution.stopping import FIRST, LEAST_GROWTH, MOST_GROWTH, MOST_REPLICATES, Budget


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
        np.testing.assert_allclose(
            Budget(rtol=0.005).needed(value, count, stderr, 0 * bias), 4 * want, rtol=1e-9
        )

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
