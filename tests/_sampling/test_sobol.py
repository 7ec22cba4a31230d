"""Tests of the Sobol net: its direction numbers, and the scrambling."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import qmc

from scasml._sampling.sobol import direction_numbers, net_point, scramble


def test_direction_numbers_are_those_of_sobol():
    """The first 64 points on 200 axes are those of SciPy, as a set."""
    numbers = direction_numbers(200)
    points = [
        np.bitwise_xor.reduce(numbers[[k for k in range(6) if i >> k & 1]], 0) for i in range(64)
    ]
    expected = qmc.Sobol(200, scramble=False, bits=32).random(64) * 2.0**32
    in_order = lambda a: np.asarray(sorted(map(tuple, np.asarray(a, np.float64))))
    np.testing.assert_array_equal(in_order(points), in_order(expected))


def test_scrambled_net_is_a_net():
    """Scrambling keeps the number of points in each of 64 boxes, on each pair of ten axes."""
    numbers = direction_numbers(10)
    net = jax.jit(
        jax.vmap(
            lambda key: jax.vmap(lambda i: net_point(*scramble(numbers[:6], key), i))(
                jnp.arange(64)
            )
        )
    )
    for points in np.asarray(net(jax.random.split(jax.random.key(0), 5))):
        np.testing.assert_array_equal(
            np.sort(points >> 26, 0), np.tile(np.arange(64)[:, None], (1, 10))
        )
        plain = (qmc.Sobol(10, scramble=False, bits=32).random(64) * 2.0**32).astype(np.uint32)
        for (i, j), bits in itertools.product(itertools.combinations(range(10), 2), range(1, 6)):
            counts = [
                np.sort(np.bincount(box_of(a[:, i], a[:, j], bits), minlength=64))
                for a in (points, plain)
            ]
            np.testing.assert_array_equal(*counts)


def box_of(a, b, bits):
    """Return the box of each point (a, b), for 2^bits boxes along a and 64 boxes in all."""
    return (a >> (32 - bits)).astype(int) * 2 ** (6 - bits) + (b >> (26 + bits)).astype(int)
