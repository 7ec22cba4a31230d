"""How much of a correction is kept: simulated batches with known defects, and `safe=True`."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scasml
from helpers import heat
from scasml import Picard
from scasml._answer.shrinkage import _false_alarm_rate, kept_share

# Sizes of the defects over the noise, or over the geometric mean of the noise.
RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
BATCHES = {2: 500, 10: 300, 100: 100}
KINDS = ("equal", "spread", "proportional")


@functools.cache
def errors(points, kind, freedom):
    """Return, by ratio, three mean squared errors, and three Monte Carlo errors of differences.

    The errors are those of the kept corrections, of the surrogate and of the raw estimate. Defects
    are Gaussian. The noise is that of a mean of freedom + 1 Gaussian replicates, which also
    estimate its size. The kinds are:

    - "equal": the noise of all points has the same size;
    - "spread": the size of the noise is log-uniform over two decades, that of the defects is not;
    - "proportional": the sizes of noise and defects are proportional.
    """
    batches, zero = BATCHES[points], np.zeros(points)
    rng = np.random.default_rng([points, KINDS.index(kind), freedom])
    noise = np.ones((batches, points))
    if kind != "equal":
        noise = 10 ** rng.uniform(-1, 1, (batches, points))
    unit = rng.normal(size=noise.shape) * (noise if kind == "proportional" else 1)
    error = noise * rng.normal(size=noise.shape)
    stderr = noise * np.sqrt(rng.chisquare(freedom, noise.shape) / freedom)
    found = {}
    for ratio in RATIOS:
        defect = ratio * unit
        measured = defect + error
        share = np.stack(
            [
                kept_share(m, zero + freedom + 1, s, zero)
                for m, s in zip(measured, stderr, strict=True)
            ]
        )
        losses = [np.mean(a**2, 1) for a in (share * measured - defect, defect, error)]
        allowed = [3 * np.std(losses[0] - other) / np.sqrt(batches) for other in losses[1:]]
        found[ratio] = (*(loss.mean() for loss in losses), *allowed)
    return found


each_batch = pytest.mark.parametrize(
    ("points", "kind", "freedom"),
    [(n, kind, f) for n in BATCHES for kind in KINDS for f in (7, 31)],
)


class TestSimulated:
    """Monte Carlo tests that allow three standard errors.

    The false-fail rate is 1e-3 per comparison if the true error equals its bound.
    """

    # Cost of a false alarm where the surrogate is good, over the raw error.
    PRICE = {2: 0.2, 10: 0.12, 100: 0.03}  # noqa: RUF012

    @each_batch
    def test_it_is_hardly_worse_than_the_surrogate(self, points, kind, freedom):
        for ratio, (kept, surrogate, raw, allowed, _) in errors(points, kind, freedom).items():
            assert kept <= surrogate + self.PRICE[points] * raw + allowed, ratio

    @pytest.mark.parametrize("freedom", [7, 31])
    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_better_than_either_in_a_large_batch(self, kind, freedom):
        """It is worse by 5 % at most.

        It is not worse at all where the error of the surrogate is that of the noise or larger.
        """
        for ratio, (kept, surrogate, raw, *allowed) in errors(100, kind, freedom).items():
            if ratio > 0:
                assert kept <= 1.05 * surrogate + allowed[0], ratio
                assert kept <= 1.05 * raw + allowed[1], ratio
            if ratio >= 1:
                assert kept <= min(surrogate + allowed[0], raw + allowed[1]), ratio

    @pytest.mark.parametrize("size", [1.6, 2.0, 5.0])
    def test_equal_noise_is_shrunk_by_the_rule_of_james_and_stein(self, size):
        """A large batch of equal corrections keeps 1 - noise^2/m^2, and a small one less.

        The values of tau that are compared limit the accuracy.
        """
        batch = lambda n: kept_share(np.full(n, size), np.full(n, 1e6), np.ones(n), np.zeros(n))
        np.testing.assert_allclose(batch(20_000), 1 - 1 / size**2, atol=0.01)
        assert 0.7 * batch(20_000)[0] < batch(30)[0] < batch(200)[0] < batch(20_000)[0]

    @pytest.mark.parametrize("freedom", [7, 31])
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("points", [2, 10])
    def test_a_small_batch(self, points, kind, freedom):
        """No rule is better than both for defects of every size.

        The measured error is at most 2.6 times the smaller of the two.
        """
        for ratio in (r for r in RATIOS if r >= 1):
            kept, surrogate, raw, *allowed = errors(points, kind, freedom)[ratio]
            assert kept <= 2.6 * min(surrogate, raw) + max(allowed), ratio


class TestOnePoint:
    """A test at 95 % decides between the correction and the surrogate."""

    @staticmethod
    def share(m, count, stderr, bias=0.0):
        return kept_share(*(np.array([float(a)]) for a in (m, count, stderr, bias)))[0]

    @pytest.mark.parametrize("count", [2, 8, 32, 1000])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_significance(self, count, sign):
        edge = sign * stats.t.ppf(0.975, count - 1) * 0.3
        assert self.share(0.999 * edge, count, 0.3) == 0
        assert self.share(1.001 * edge, count, 0.3) == 1

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_bias(self, sign):
        """A bias of many standard errors moves the edge by itself.

        Noise can then be wrong on one side only, so the quantile is one-sided.
        """
        edge = 30 + stats.t.ppf(0.95, 31) * 0.3
        assert self.share(sign * (edge - 0.003), 32, 0.3, 30) == 0
        assert self.share(sign * (edge + 0.003), 32, 0.3, 30) == 1

    def test_an_unknown_bias_counts_as_zero(self):
        assert self.share(1.0, 32, 0.3, np.nan) == self.share(1.0, 32, 0.3, 0.0) == 1
        assert self.share(0.1, 32, 0.3, np.nan) == self.share(0.1, 32, 0.3, 0.0) == 0


class TestShares:
    @staticmethod
    def batch(seed, points=12):
        """Return corrections of one to ten standard errors, with some bias."""
        rng = np.random.default_rng(seed)
        stderr = 10 ** rng.uniform(-2, 0, points)
        m = stderr * rng.normal(size=points) * 10 ** rng.uniform(0, 1, points)
        return (
            m,
            rng.integers(4, 60, points).astype(float),
            stderr,
            0.3 * stderr * rng.uniform(size=points),
        )

    def test_they_lie_between_zero_and_one(self):
        shares = np.concatenate([kept_share(*self.batch(seed)) for seed in range(20)])
        assert np.all((shares >= 0) & (shares <= 1))
        assert np.mean((shares > 0) & (shares < 1)) > 0.5

    @pytest.mark.parametrize("seed", range(20))
    def test_the_scale_does_not_matter(self, seed):
        m, count, stderr, bias = self.batch(seed)
        for scale in (1e-6, 1e3):
            scaled = kept_share(scale * m, count, scale * stderr, scale * bias)
            np.testing.assert_allclose(
                scaled, kept_share(m, count, stderr, bias), rtol=1e-9, atol=1e-12
            )

    @pytest.mark.parametrize("seed", range(20))
    def test_the_order_does_not_matter(self, seed):
        batch = self.batch(seed)
        order = np.random.default_rng(seed).permutation(12)
        moved = kept_share(*(a[order] for a in batch))
        np.testing.assert_allclose(moved, kept_share(*batch)[order], rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("seed", range(5))
    def test_the_sign_does_not_matter(self, seed):
        m, *rest = self.batch(seed)
        np.testing.assert_array_equal(kept_share(np.abs(m), *rest), kept_share(m, *rest))

    @pytest.mark.parametrize(
        "broken", [{"stderr": 0.0}, {"stderr": np.nan}, {"stderr": np.inf}, {"m": np.nan}], ids=str
    )
    def test_a_point_without_a_usable_error_bar(self, broken):
        """It keeps all of its correction, and the other points do not see it."""
        batch = dict(zip(("m", "count", "stderr", "bias"), self.batch(3), strict=True))
        want = kept_share(*(np.delete(a, 5) for a in batch.values()))
        for name, value in broken.items():
            batch[name][5] = value
        share = kept_share(*batch.values())
        assert share[5] == 1
        np.testing.assert_array_equal(np.delete(share, 5), want)

    def test_more_noise_keeps_less(self):
        m, count, stderr, bias = self.batch(4)
        louder = [
            kept_share(m, count, factor * stderr, bias).mean() for factor in (0.01, 0.3, 3, 100)
        ]
        assert louder == sorted(louder, reverse=True)
        assert louder[0] > 0.99
        assert louder[-1] == 0

    @pytest.mark.parametrize("seed", range(5))
    def test_no_value_moves_further_than_its_error_bar(self, seed):
        """One large correction among a thousand of noise loses only what noise could explain."""
        m, stderr = np.random.default_rng(seed).normal(size=1000), np.ones(1000)
        m[7] = 12.0
        share = kept_share(m, np.full(1000, 32.0), stderr, np.zeros(1000))
        limit = stats.t.ppf(1 - 1e-2 * _false_alarm_rate(1000) / 2000, 31)
        assert np.all(np.abs(m) * (1 - share) <= limit * (1 + 1e-9))
        assert 0 < share[7] < 1
        assert np.mean(share) < 0.05


class Off(eqx.Module):
    """The solution of `heat` plus a constant and a wave.

    Their sizes are data, so one program serves all of them.
    """

    constant: Any
    wave: Any

    def __call__(self, t: Any, x: Any) -> Any:
        return EXACT(t, x) + self.constant + self.wave * jnp.sin(3 * x[0])


PROBLEM, EXACT = heat()
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


def correct(constant=0.0, wave=1.0, x=X, **options):
    surrogate = Off(jnp.float32(constant), jnp.float32(wave))
    return scasml.correct(
        PROBLEM, surrogate, 0.1, x, **{"method": Picard(1, 1), "replicates": 8, **options}
    )


class TestCorrect:
    def test_the_value(self):
        got = correct()
        assert np.any((got.kept_share > 0) & (got.kept_share < 1))
        want = got.surrogate_value + got.kept_share * (got.raw_value - got.surrogate_value)
        np.testing.assert_allclose(got.value, want, rtol=1e-12)
        np.testing.assert_allclose(got.correction, got.value - got.surrogate_value, rtol=1e-12)
        want = kept_share(
            got.raw_value - got.surrogate_value, got.replicates.astype(float), got.stderr, got.bias
        )
        np.testing.assert_array_equal(got.kept_share, want)

    def test_all_other_numbers_are_those_of_the_raw_estimate(self):
        safe, raw = correct(), correct(safe=False)
        assert np.any(safe.value != raw.value)
        np.testing.assert_array_equal(raw.value, raw.raw_value)
        np.testing.assert_array_equal(raw.kept_share, 1)
        np.testing.assert_array_equal(safe.interval(0.9), raw.interval(0.9))
        for name in ("raw_value", "stderr", "bias", "gradient", "gradient_stderr", "replicates"):
            np.testing.assert_array_equal(getattr(safe, name), getattr(raw, name), err_msg=name)

    def test_two_replicates_at_two_points_keep_the_surrogate(self):
        """The status says so."""
        got = correct(replicates=2, x=X[:2])
        np.testing.assert_array_equal(got.kept_share, 0)
        np.testing.assert_array_equal(got.value, got.surrogate_value)
        assert set(got.status) == {"kept the surrogate"}
        assert not got.unmet.any()
        assert set(correct(replicates=2, x=X[:2], safe=False).status) == {"budget exhausted"}

    def test_one_point_keeps_the_surrogate_if_its_interval_contains_it(self):
        alone = [correct(x=x) for x in X]
        inside = [
            low <= got.surrogate_value <= high
            for got in alone
            for low, high in [got.interval(0.95)]
        ]
        assert 0 < sum(inside) < len(X)
        assert [got.kept_share == 0 for got in alone] == inside
        assert [got.status == "kept the surrogate" for got in alone] == inside

    @pytest.mark.parametrize("replicates", [2, 64])
    def test_without_a_surrogate_nothing_is_shrunk(self, replicates):
        got = scasml.correct(PROBLEM, None, 0.1, X, method=Picard(1, 1), replicates=replicates)
        np.testing.assert_array_equal(got.kept_share, 1)
        np.testing.assert_array_equal(got.value, got.raw_value)

    def test_an_exact_surrogate(self):
        """It is kept to the rounding of float32."""
        got = correct(wave=0.0, replicates=64)
        np.testing.assert_allclose(got.value, got.surrogate_value, rtol=1e-6, atol=1e-6)

    def test_a_surrogate_that_is_hugely_wrong(self):
        got = correct(constant=1000.0)
        assert np.all(got.kept_share > 0.99)
        assert np.all(got.kept_share < 1)
        exact = np.asarray(jax.vmap(EXACT, (None, 0))(jnp.float32(0.1), X))
        assert np.all(np.abs(got.value - exact) < 10)
