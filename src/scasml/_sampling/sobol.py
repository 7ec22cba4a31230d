"""A scrambled Sobol net, and the rotations that turn its points into paths.

A point of a net is one unsigned 32-bit word per axis: the binary digits of a number in [0, 1),
highest digit first. `scramble` takes the direction numbers of a net and a key. `net_point` returns
a point of the scrambled net.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

# The largest number of axes of a net.
NET_AXES = 4096
# The number of bits of the index of a point: a net has 2^NET_BITS points, which then repeat.
NET_BITS = 16
# The number of Threefry blocks that are computed in one call. XLA splits larger calls into tasks
# for the cores, and the synchronisation of the tasks takes longer than the computation.
BLOCKS_PER_CALL = 1024


@functools.cache
def direction_numbers(axes: int) -> NDArray[np.uint32]:
    """Return the direction numbers of the first `axes` axes, of shape (NET_BITS, axes).

    They have one row for each bit of the index of a point.
    """
    from scipy.stats import qmc

    net, position, numbers = (
        qmc.Sobol(axes, scramble=False, bits=32),
        0,
        np.zeros((NET_BITS, axes), np.uint32),
    )
    for k in range(NET_BITS):
        # SciPy orders its points by the Gray code, in which 2^k has the bits k and k - 1.
        net.fast_forward(2**k - position)
        point, position = net.random(1)[0], 2**k + 1
        numbers[k] = np.round(point * 2.0**32).astype(np.uint32) ^ (
            numbers[k - 1] if k else np.uint32(0)
        )
    return numbers


def scramble(directions: NDArray[np.uint32], key: PRNGKeyArray) -> tuple[Array, Array]:
    """Scramble the direction numbers of a net, of shape (bits, axes).

    A random linear map of the digits (Matousek) and a random shift scramble the net. Each single
    point is then uniformly distributed.

    On each axis the map of the digits is a random lower triangular matrix with a unit diagonal.
    Row k of the direction numbers has only zeros after digit k. So only the first `bits` columns of
    the matrix are drawn. Returns the mapped direction numbers (bits, axes) and a shift (axes,).
    """
    bits, axes = directions.shape
    shift, *columns = _random_words(key, 1 + bits, axes)
    # Without the barrier XLA would fold the digits of all numbers into much larger constants.
    numbers, mapped = (
        jax.lax.optimization_barrier(jnp.asarray(directions)),
        jnp.zeros((bits, axes), jnp.uint32),
    )
    for k, column in enumerate(columns):
        diagonal = np.uint32(1 << (31 - k))
        mapped ^= ((numbers >> (31 - k)) & 1) * ((column & (diagonal - 1)) | diagonal)[None]
    return mapped, shift


def _random_words(key: PRNGKeyArray, rows: int, axes: int) -> Array:
    """Return random 32-bit words of shape (rows, axes). A row does not depend on `rows`."""
    blocks, data = -(-rows // 2) * axes, jax.random.key_data(key)
    numbers = [
        np.arange(start, min(start + BLOCKS_PER_CALL, blocks), dtype=np.uint32)
        for start in range(0, blocks, BLOCKS_PER_CALL)
    ]
    pairs = [threefry_2x32(data, jnp.stack([n, n | np.uint32(1 << 31)])) for n in numbers]
    return jnp.concatenate(pairs, 1).reshape(2, -1, axes).swapaxes(0, 1).reshape(-1, axes)[:rows]


def net_point(directions: Array, shift: Array, j: Array) -> Array:
    """Return point j of a scrambled net, of shape (axes,): one 32-bit word per axis.

    `directions` and `shift` are the results of `scramble`. Point j is the exclusive or of the shift
    and of the rows of `directions` whose bit is set in j.
    """
    for k in range(len(directions)):
        shift = jnp.where((j >> k) & 1, shift ^ directions[k], shift)
    return shift


@functools.cache
def principal_components(steps: int) -> NDArray[np.float64]:
    """Return the orthogonal matrix (steps, steps) from principal components to increments.

    The components are those of a random walk of equal steps, in decreasing order of variance.
    """
    walk = np.tril(np.ones((steps, steps)))
    _, _, components = np.linalg.svd(walk)
    return components.T


def reflect(noise: Array, heading: Array) -> Array:
    """Reflect normal numbers so that the first coordinate axis is mapped to the line of `heading`.

    The map is a Householder reflection. `noise` has shape (steps, d) and `heading` has shape (d,).
    If the heading is zero, the first axis is mapped to itself.
    """
    heading = jax.lax.stop_gradient(heading)
    size = jnp.sqrt(heading @ heading)
    first = jnp.where(heading[0] < 0, -1.0, 1.0).astype(heading.dtype)
    normal_vector = (heading / jnp.maximum(size, jnp.finfo(heading.dtype).tiny)).at[0].add(first)
    return noise - 2 * jnp.outer(noise @ normal_vector, normal_vector) / (
        normal_vector @ normal_vector
    )
