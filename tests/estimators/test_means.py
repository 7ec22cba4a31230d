"""Means over samples in tiles, with slopes and with gradient weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import Picard
from scasml._planning.starts import offered_starts
from scasml.estimators._means import MeanPlan, Sample, mean, mean_of_others, tile_size


def test_the_mean_of_the_others():
    values, valid = jnp.array([1.0, 2.0, 6.0, 9.0]), jnp.array([True, True, True, False])
    np.testing.assert_allclose(mean_of_others(values, valid)[:3], [4.0, 3.5, 1.5])
    np.testing.assert_allclose(mean_of_others(values[:1], valid[:1]), [0.0])


@pytest.mark.parametrize(
    ("count", "most"),
    [(100, 128), (100, 12), (1000, 128), (211, 128), (4099, 128), (512, 128), (1, 1)],
)
def test_the_size_of_a_tile(count, most):
    tile = tile_size(count, most)
    assert 1 <= tile <= max(count if count <= most else most, 1)
    assert -(-count // tile) * tile - count < tile


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("width", [1, 64])
@pytest.mark.parametrize("weighted", [False, True])
def test_tiles_of_nested_means(width, weighted):
    """Five outer samples each take a mean of seven inner samples.

    With a width of 64 both means take tiles of two samples, the last of which is not full. The
    sums are those of Python loops.
    """
    x = jnp.array([0.3, -0.2])

    def inner(x):
        term = lambda j, x: Sample(jnp.sin(x[0] * j + x[1]), jnp.ones(()), None, None)
        return mean(term, x, MeanPlan(7, width=width)).u

    def sample(i, x):
        weight = jnp.cos(i + jnp.arange(2.0)) if weighted else None
        return Sample(inner(x) * x[1] * i, 1.0 + i, weight, None)

    plan = MeanPlan(5, width=width, z=True, weighted=weighted, uncentred=True)
    got = jax.jit(lambda x: mean(sample, x, plan))(x)

    def value(x, i):
        within = sum(jnp.sin(x[0] * j + x[1]) for j in range(7)) / 7
        return (1.0 + i) * within * x[1] * i

    values = [value(x, i) for i in range(5)]
    np.testing.assert_allclose(got.u, np.mean(values), rtol=1e-12)
    np.testing.assert_allclose(got.size, np.mean(np.abs(values)), rtol=1e-12)
    if weighted:
        weights = np.cos(np.arange(5)[:, None] + np.arange(2.0))
        np.testing.assert_allclose(got.z, np.array(values) @ weights / 5, rtol=1e-12)
    else:
        slope = jax.grad(lambda x: sum(value(x, i) for i in range(5)) / 5)(x)
        np.testing.assert_allclose(got.slope, slope, rtol=1e-12)


@pytest.mark.slow
def test_small_tiles_end_in_no_segmentation_fault():
    """Tiles of one sample did, for three levels of 16 samples that start from smoothed g."""
    problem = scasml.problems.hjb(6)
    start = offered_starts(problem, None, None)[0]
    assert start.name == "smoothed g"
    method, x = Picard(3, 16, pairs=True), np.full(6, 0.2)
    got = scasml.correct(
        problem, start.model, 0.0, x, method=method, replicates=4, with_gradient=False
    )
    assert np.isfinite(got.value)
