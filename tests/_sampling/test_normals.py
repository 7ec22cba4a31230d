"""Tests of standard normal numbers: their distribution, and the inverse error function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from helpers import SIGMAS
from scasml._sampling import normals
from scasml._sampling.normals import normal, normal_of

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers(dtype):
    """Distribution, moments, tails, and correlations between positions and between keys.

    The Kolmogorov-Smirnov test has the level 1e-6. Each of the 30 other comparisons allows 6
    standard errors, a false-fail rate of 2e-9.
    """
    rows, width = 40_000, 7  # with an odd width the last Threefry block is used in part
    keys = jax.random.split(jax.random.key(8), rows)
    x = np.asarray(jax.vmap(lambda key: normal(key, (width,), np.dtype(dtype)))(keys), np.float64)
    assert stats.kstest(x.ravel(), "norm").pvalue > 1e-6
    bound = lambda sd: SIGMAS * sd / np.sqrt(x.size)
    assert abs(x.mean()) < bound(1)
    assert abs((x**2).mean() - 1) < bound(np.sqrt(2))
    assert abs((x**3).mean()) < bound(np.sqrt(15))
    assert abs((x**4).mean() - 3) < bound(np.sqrt(96))
    tail = 2 * stats.norm.sf(4)
    assert abs((np.abs(x) > 4).mean() - tail) < bound(np.sqrt(tail))
    covariance_error = x.T @ x / rows - np.eye(width)
    assert np.all(np.abs(covariance_error) < SIGMAS * np.sqrt(1 + np.eye(width)) / np.sqrt(rows))
    assert abs((x[1:, 0] * x[:-1, 0]).mean()) < SIGMAS / np.sqrt(rows)
    assert len(np.unique(x)) > 0.98 * x.size


def test_normal_numbers_from_extreme_bits(monkeypatch):
    """Every bit pattern gives a finite number.

    The relative error of the inverse is at most 3e-6 up to 5.5, and at most 4e-4 beyond.
    """
    bits = np.array(
        [0, 1, 2, 2**10, 2**20, 2**27, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1], np.uint32
    )
    monkeypatch.setattr(normals, "threefry_2x32", lambda key, counter: jnp.asarray(bits))
    got = np.asarray(normal(jax.random.key(0), (len(bits),), np.dtype("float32")))
    tail = ((bits & 0x7FFFFFFF).astype(np.float64) + 0.5) * 2.0**-32
    expected = np.where(bits >> 31, -1, 1) * stats.norm.isf(tail)
    np.testing.assert_allclose(got, expected, rtol=4e-4, atol=3e-7)
    usual = np.abs(expected) < 5.5
    np.testing.assert_allclose(got[usual], expected[usual], rtol=3e-6, atol=3e-7)


def test_normal_numbers_of_bits():
    """`normal_of` agrees with the quantile function of SciPy in float32 and in float64."""
    bits = np.concatenate(
        [np.linspace(0, 2**32 - 1, 1001).astype(np.uint32), 2 ** np.arange(32, dtype=np.uint32)]
    )
    expected = stats.norm.ppf((bits + 0.5) / 2.0**32)
    np.testing.assert_allclose(
        normal_of(jnp.asarray(bits), np.dtype(np.float32)), expected, rtol=4e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        normal_of(jnp.asarray(bits), np.dtype(np.float64)), expected, rtol=1e-9, atol=1e-9
    )
