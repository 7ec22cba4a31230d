"""Step grids that contain a random time, and the Brownian increments on them."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scasml.estimators._step_grids import (
    INCREMENTS,
    Bridge,
    Grid,
    Noise,
    changes_of,
    step_of,
    which_increment,
)
from scasml.estimators._streams import path_keys

pytestmark = pytest.mark.usefixtures("x64")

LEVELS = range(11)
# Every grid of these levels, with and without pairs. Pairs need a coarser grid.
GRIDS = [(level, paired) for level in LEVELS for paired in (False, True) if level or not paired]
MOST = 2**10 + 2  # iterations of the longest path
SPAN = 0.75  # with it and with RHO, float64 holds all times exactly


def times(count: int, bits: int = 30) -> np.ndarray:
    """Return random rho in (0, 1] which are multiples of 2^-bits, and some special ones."""
    drawn = np.random.default_rng(0).integers(1, 2**bits, count) * 2.0**-bits
    return np.concatenate([drawn, [2.0**-bits, 0.125, 0.5, 0.75, 1 - 2.0**-bits, 1.0]])


RHO = times(200)


class Steps(NamedTuple):
    """The steps of a path: an axis of paths and one of iterations."""

    begins: np.ndarray
    lengths: np.ndarray
    arrival: np.ndarray


@functools.cache
def _steps_program() -> Any:
    def one(rho: Any, level: Any, paired: Any, coarse: Any) -> Any:
        grid = Grid.of(rho, jnp.asarray(SPAN, rho.dtype), level, paired)
        found = jax.vmap(step_of, (0, None, None, None))(jnp.arange(MOST), grid, paired, coarse)
        return *found, grid.arrival

    return jax.jit(jax.vmap(one, (0, None, None, None)))


def steps(level: int, paired: bool, coarse: bool = False, rho: np.ndarray = RHO) -> Steps:
    """Return the steps of one path for each rho."""
    found = _steps_program()(rho, jnp.int32(level), jnp.asarray(paired), jnp.asarray(coarse))
    begins, lengths, arrival = map(np.asarray, found)
    count = 2**level + (2 if paired else 1)
    assert not lengths[:, count:].any()
    return Steps(begins[:, :count], lengths[:, :count], arrival)


@pytest.mark.parametrize(("level", "paired"), GRIDS)
def test_steps_fill_the_time_and_arrive_at_r(level, paired):
    """All quantities are multiples of 2^-41, so float64 has them exactly."""
    begins, lengths, arrival = steps(level, paired)
    assert np.all(lengths >= 0)
    assert np.all(lengths <= SPAN / 2**level)
    ends = begins + lengths
    np.testing.assert_array_equal(begins[:, 0], 0)
    np.testing.assert_array_equal(begins[:, 1:], ends[:, :-1])
    np.testing.assert_array_equal(ends[:, -1], SPAN)
    np.testing.assert_array_equal(np.sum(lengths, 1), SPAN)
    np.testing.assert_array_equal(ends[np.arange(len(RHO)), arrival], RHO * SPAN)
    if paired:
        assert np.all(arrival % 2 == 1)


@pytest.mark.parametrize(("level", "paired"), GRIDS)
def test_float32_steps(level, paired):
    """Random times at the edges of float32 give the same grid, to rounding."""
    tiny = np.array([1e-30, 2.0**-32, 1 - 2.0**-24, 1.0], np.float32)
    rho = np.concatenate([np.random.default_rng(1).uniform(1e-3, 1, 100).astype(np.float32), tiny])
    _, lengths, arrival = steps(level, paired, rho=rho)
    assert lengths.dtype == np.float32
    assert np.all(lengths >= 0)
    total = np.cumsum(lengths.astype(np.float64), 1)
    np.testing.assert_allclose(total[:, -1], SPAN, rtol=1e-6)
    np.testing.assert_allclose(total[np.arange(len(rho)), arrival], rho * SPAN, rtol=1e-6)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_the_coarse_steps_are_those_of_the_level_below(level):
    """The beginnings and the lengths agree exactly, after steps of length 0 are removed."""
    coarse, below = steps(level, True, coarse=True), steps(level - 1, False)
    for k in range(len(RHO)):
        used, wanted = coarse.lengths[k] > 0, below.lengths[k] > 0
        assert not used[::2].any()
        np.testing.assert_array_equal(coarse.begins[k, used], below.begins[k, wanted])
        np.testing.assert_array_equal(coarse.lengths[k, used], below.lengths[k, wanted])
        assert used[coarse.arrival[k]]


@functools.cache
def _increments_program(most: int) -> Any:
    """Return the program of the increments (paths, members, most, d), and the known changes.

    The members have the same Brownian motion: a fine path, its reflection, and a coarse path.
    """

    def one(rho: Any, normals: Any, key: Any, mirror: Any, coarse: Any, job: Any) -> Any:
        level, paired, to_horizon = job
        grid = Grid.of(rho, jnp.asarray(SPAN), level, paired)
        changes = changes_of(normals, rho, jnp.asarray(SPAN), to_horizon)
        noise = Noise(key, jnp.ones(()), mirror, coarse)

        def iteration(bridge: Bridge, i: Any) -> Any:
            which = which_increment(i, level, paired)
            dw, bridge = jax.lax.switch(which, INCREMENTS, i, grid, noise, bridge)
            rest = jnp.where(i == grid.arrival, changes[1], bridge.rest)
            return bridge._replace(rest=rest), dw

        first = Bridge(changes[0], jnp.zeros_like(changes[0]))
        dw = jax.lax.scan(iteration, first, jnp.arange(most))[1]
        last = grid.steps + jnp.where(paired, 2, 1)
        return jnp.where((jnp.arange(most) < last)[:, None], dw, 0), changes

    members = jax.vmap(one, (None, None, None, 0, 0, None))
    paths = jax.vmap(members, (0, 0, 0, None, None, None))

    def run(rho: Any, key: Any, level: Any, paired: Any, to_horizon: Any) -> Any:
        normals = jax.random.normal(jax.random.fold_in(key, 1), (len(rho), 2, 2))
        numbers = jnp.arange(len(rho))
        keys = path_keys(jax.random.key_data(key), numbers, 7 + 0 * numbers)
        mirror = jnp.where(paired, jnp.asarray([1.0, -1.0, 1.0]), 1.0)
        coarse = paired & jnp.asarray([False, False, True])
        return paths(rho, normals, keys, mirror, coarse, (level, paired, to_horizon))

    return jax.jit(run)


def increments(
    level: int, paired: bool, rho: np.ndarray, most: int, seed: int = 0, to_horizon: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return the increments, and the changes from s to r and from r to T."""
    job = jnp.int32(level), jnp.asarray(paired), jnp.asarray(to_horizon)
    dw, changes = _increments_program(most)(rho, jax.random.key(seed), *job)
    return np.asarray(dw), np.asarray(changes)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_no_time_remains_after_the_last_pair(level):
    """The two steps before r, and those before T, add up to the remaining time without rounding.

    A remainder by rounding would let W miss its known change.
    """
    rho = (0.5 * np.square(np.random.default_rng(2).uniform(size=1000))).astype(np.float32)
    rho = np.concatenate([2 * rho, rho * np.float32(2.0**-level)])
    true, unit = jnp.asarray(True), jnp.float32(SPAN)
    grid = jax.vmap(lambda rho: Grid.of(rho, unit, jnp.int32(level), true))(jnp.asarray(rho))
    for begin in (grid.before - 1, grid.steps - grid.shift):
        both = grid.length(begin) + grid.length(begin + 1)
        assert both.dtype == jnp.float32
        np.testing.assert_array_equal(grid.remaining(begin), both)


@pytest.mark.parametrize(("level", "paired"), GRIDS)
def test_increments_add_up_to_the_known_changes(level, paired):
    rho = RHO[-20:]
    dw, changes = increments(level, paired, rho, MOST)
    path, paths = np.cumsum(dw, 2), np.arange(len(rho))
    arrival = steps(level, paired, rho=rho).arrival
    assert not np.ptp(changes, 1).any()  # the members have the same changes
    at_time = path[paths, :, arrival]
    np.testing.assert_allclose(at_time, changes[:, :, 0], atol=1e-12)
    np.testing.assert_allclose(path[:, :, -1], changes.sum(2), atol=1e-12)


def test_the_changes_are_those_of_the_normal_numbers():
    """The sum of both changes is sqrt(T - s) times the first normal numbers.

    Without a path to T, the change until r is sqrt(r - s) times these numbers.
    """
    rho = RHO[-20:]
    normals = jax.random.normal(jax.random.fold_in(jax.random.key(0), 1), (len(rho), 2, 2))
    whole = np.asarray(normals)[:, 0]
    both, only = (increments(0, False, rho, 18, to_horizon=to)[1][:, 0] for to in (True, False))
    np.testing.assert_allclose(both.sum(1), np.sqrt(SPAN) * whole, atol=1e-12)
    np.testing.assert_allclose(only[:, 0], np.sqrt(SPAN * rho)[:, None] * whole, atol=1e-12)


@pytest.mark.parametrize("level", [1, 2, 5, 10])
def test_members_agree_at_the_nodes_of_the_coarse_grid(level):
    """Between these nodes the reflected path differs from the fine path.

    Its bridge is reflected: the mean of both paths is linear between two nodes.
    """
    rho = RHO[-20:]
    dw, _ = increments(level, True, rho, MOST)
    fine, mirrored, coarse = np.cumsum(dw, 2).transpose(1, 0, 2, 3)
    np.testing.assert_allclose(fine[:, 1::2], mirrored[:, 1::2], atol=1e-12)
    np.testing.assert_allclose(fine[:, 1::2], coarse[:, 1::2], atol=1e-12)
    lengths = steps(level, True, rho=rho).lengths
    first, second = lengths[:, ::2], lengths[:, 1::2]
    bends = (first > 0) & (second > 0)
    fine_dw, mirrored_dw, coarse_dw = dw[:, :, : lengths.shape[1]].transpose(1, 0, 2, 3)
    half = ((fine_dw + mirrored_dw) / 2)[:, ::2]
    share = (first / np.where(first + second > 0, first + second, 1))[..., None]
    np.testing.assert_allclose(half, share * coarse_dw[:, 1::2], atol=1e-12)
    assert np.all(np.abs(fine_dw - mirrored_dw)[:, ::2][bends] > 1e-9)


@pytest.mark.parametrize(
    ("level", "paired", "to_horizon"),
    [(0, False, True), (2, False, True), (3, True, True), (4, False, True), (3, True, False)],
)
def test_the_law_of_increments(level, paired, to_horizon):
    """Increments over a step are normal with mean 0 and its length as variance, and independent.

    For each member and iteration the test compares a mean, a mean square and the product of two
    successive increments with their laws. Each comparison fails falsely with probability at most
    5e-9, and there are fewer than 180, so the false-fail rate is below 1e-6. A path that ends
    at r has these laws until r.
    """
    rho = np.random.default_rng(3).uniform(0.02, 1, 40_000)
    dw, _ = increments(level, paired, rho, 18, seed=5, to_horizon=to_horizon)
    arrival = steps(level, paired, rho=rho).arrival
    bound = stats.norm.isf(2.5e-9)
    for member in range(3 if paired else 1):
        _, lengths, _ = steps(level, paired, coarse=member == 2, rho=rho)
        due = lengths > 0
        if not to_horizon:
            due &= np.arange(lengths.shape[1]) <= arrival[:, None]
        scale = np.where(due, np.sqrt(np.where(due, lengths, 1)), np.inf)[..., None]
        normals = dw[:, member, : lengths.shape[1]] / scale
        count = 2 * due.sum(0)
        used = np.flatnonzero(count)
        assert len(used) >= 2
        sums, squares = normals.sum((0, 2)), np.square(normals).sum((0, 2))
        assert np.all(np.abs(sums) <= bound * np.sqrt(count))
        tails = stats.chi2.cdf(squares, count), stats.chi2.sf(squares, count)
        assert np.all(np.minimum(*tails)[used] > 2.5e-9)
        products = normals[:, used[1:]] * normals[:, used[:-1]]
        both = 2 * (due[:, used[1:]] & due[:, used[:-1]]).sum(0)
        # Products of normal numbers have a variance of 1 and thicker tails than a normal number.
        assert np.all(np.abs(products.sum((0, 2))) <= 1.1 * bound * np.sqrt(both) + 40)
