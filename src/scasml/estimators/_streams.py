"""Random streams of paths: a key for each path, and the numbers that it yields.

A key is a pair of uint32, the key of the Threefry generator. A path has streams of numbers: stream
0 for what it draws at the beginning, and stream 1 + i for iteration i of its loop.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array

from .._sampling.normals import normal_of


def path_keys(key: Array, first: Array, second: Array) -> Array:
    """Return the keys (paths, 2) of the paths with numbers `first` and `second`, both (paths,)."""
    counters = jnp.stack([first.astype(jnp.uint32), second.astype(jnp.uint32)])
    return threefry_2x32(key, counters).T


def words(key: Array, stream: Array | int, count: int) -> Array:
    """Return the first `count` random words of a stream, uint32."""
    numbers = jnp.arange(-(-count // 2), dtype=jnp.uint32)
    streams = jnp.broadcast_to(jnp.asarray(stream, jnp.uint32), numbers.shape)
    return threefry_2x32(key, jnp.stack([numbers, streams])).reshape(-1)[:count]


def normals(key: Array, stream: Array | int, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return the first normal numbers of a stream."""
    return normal_of(words(key, stream, math.prod(shape)).reshape(shape), dtype)


def uniform_of(word: Array, dtype: np.dtype) -> Array:
    """Return the uniform number in (0, 1] of a random word."""
    return (word.astype(dtype) + 1) * jnp.asarray(2.0**-32, dtype)
