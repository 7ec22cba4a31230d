"""Sampling: the uniform number of a time and the normal numbers of a path, for each of the samples of one mean.

    mc          all of them independent
    antithetic  samples in pairs, each the other's mirror image, and the times of the pairs stratified
    rqmc        a scrambled net: Sobol's points under a random linear map and a random shift of their digits (Matousek), the first axis
                for the time, the next for the path, which a Householder reflection turns so that it moves along a heading

Every sample has the right law by itself, so a mean is unbiased under each of them. Samples of one design are not independent of one
another; those of two are.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._support.errors import ArgumentError
from .normals import normal, normal_of

Sampling = Literal["mc", "antithetic", "rqmc"]
SAMPLINGS = ("mc", "antithetic", "rqmc")
# The keys of the path and of the time of a sample, by its number.
Streams = Callable[[Array], tuple[PRNGKeyArray, PRNGKeyArray]]
# Axes of a net, what is beyond them being drawn as by mc; and digits that number its points, which would come again beyond them.
AXES, BITS = 4096, 16
# Blocks of random bits made in one go: of more XLA makes a task for every core, and to wait for one another takes those longer than the bits do.
PIECE = 1024


class Draw(NamedTuple):
    uniform: Array  # in (0, 1]
    noise: Array  # (steps, d)


def design(
    sampling: Sampling,
    streams: Streams,
    samples: int | Array,
    shape: tuple[int, int],
    like: Array,
    heading: Array | None,
) -> Callable[[Array], Draw]:
    """The k-th of `samples`, each of which draws `shape` (steps, d) normal numbers of the type of `like`."""
    if sampling == "mc":
        return lambda k: _independent(streams, shape, like.dtype, k)
    if sampling == "antithetic":
        return lambda k: _mirrored(streams, samples // 2, shape, like.dtype, k)
    return _net(streams, samples, shape, like.dtype, heading)


def in_halves(
    sampling: Sampling,
    streams: Streams,
    samples: int,
    shape: tuple[int, int],
    like: Array,
    heading: Array | None,
) -> Callable[[Array], Draw]:
    """The same in two independent designs, of the even and of the odd samples."""
    if sampling == "mc":
        return design(sampling, streams, samples, shape, like, heading)
    first, second = (
        design(
            sampling, lambda k, half=half: streams(2 * k + half), samples // 2, shape, like, heading
        )
        for half in (0, 1)
    )
    return lambda k: jax.tree.map(
        lambda a, b: jnp.where(k % 2 == 0, a, b), first(k // 2), second(k // 2)
    )


def _independent(streams: Streams, shape: tuple[int, int], dtype: np.dtype, k: Array) -> Draw:
    key_path, key_time = streams(k)
    return Draw(1 - jax.random.uniform(key_time, (), dtype), normal(key_path, shape, dtype))


def _mirrored(
    streams: Streams, pairs: int | Array, shape: tuple[int, int], dtype: np.dtype, k: Array
) -> Draw:
    drawn = _independent(streams, shape, dtype, k - k % 2)
    stratum = ((k // 2).astype(dtype) + drawn.uniform) / jnp.asarray(pairs, dtype)
    return Draw(stratum, jnp.where(k % 2 == 1, -drawn.noise, drawn.noise))


def _net(
    streams: Streams,
    samples: int | Array,
    shape: tuple[int, int],
    dtype: np.dtype,
    heading: Array | None,
) -> Callable[[Array], Draw]:
    numbers = math.prod(shape)
    axes = min(1 + numbers, AXES)
    bits = max(samples.bit_length() - 1, 1) if isinstance(samples, int) else BITS
    key_rest, key_net = streams(jnp.asarray(0))
    directions, shift = _scrambled(_directions(axes)[:bits], key_net)

    def draw(k: Array) -> Draw:
        point = _point(directions, shift, k)
        noise = normal_of(point[1:], dtype)
        if numbers >= axes:
            rest = normal(jax.random.fold_in(key_rest, k), (numbers + 1 - axes,), dtype)
            noise = jnp.concatenate([noise, rest])
        noise = jnp.asarray(_principal(shape[0]), dtype) @ noise.reshape(shape)
        uniform = (point[0].astype(dtype) + 1) * jnp.asarray(2.0**-32, dtype)
        return Draw(uniform, noise if heading is None else _reflect(noise, heading))

    return draw


def check_samples(argument: str, sampling: str, samples: int, levels: int = 1) -> None:
    """Refuse a number of samples that cannot be divided into two designs, or whose power is more than a net has points."""
    if sampling == "antithetic" and samples % 4:
        raise ArgumentError(
            f"{argument} must be a multiple of 4 for antithetic sampling, got {samples}: take {4 * -(-samples // 4)}."
        )
    if sampling == "rqmc" and (samples < 4 or samples & (samples - 1)):
        nearest = max(4, 2 ** (samples - 1).bit_length())
        raise ArgumentError(
            f"{argument} must be 4, 8, 16, ... for rqmc, got {samples}: take {nearest}."
        )
    if sampling == "rqmc" and levels * math.log2(samples) > BITS:
        got = samples if levels == 1 else f"{samples}**{levels}"
        raise ArgumentError(
            f"{argument} must make at most 2^{BITS} for rqmc, got {got}: take more replicates instead."
        )


@functools.cache
def _directions(axes: int) -> NDArray[np.uint32]:
    """Sobol's direction numbers, (BITS, axes)."""
    from scipy.stats import qmc

    net, at, numbers = (
        qmc.Sobol(axes, scramble=False, bits=32),
        0,
        np.zeros((BITS, axes), np.uint32),
    )
    for k in range(BITS):
        # The order is that of the Gray code, in which 2^k has the digits k and k - 1.
        net.fast_forward(2**k - at)
        point, at = net.random(1)[0], 2**k + 1
        numbers[k] = np.round(point * 2.0**32).astype(np.uint32) ^ (
            numbers[k - 1] if k else np.uint32(0)
        )
    return numbers


def _scrambled(directions: NDArray[np.uint32], key: PRNGKeyArray) -> tuple[Array, Array]:
    """The direction numbers under a random lower triangular map of digits with a unit diagonal, and a shift, for each axis.

    A direction number has no digit below the last of those that number the points, so of the map only as many columns are drawn.
    """
    bits, axes = directions.shape
    shift, *columns = _words(key, 1 + bits, axes)
    # Behind a barrier: all their digits, as constants, would be as many times larger.
    numbers, mapped = (
        jax.lax.optimization_barrier(jnp.asarray(directions)),
        jnp.zeros((bits, axes), jnp.uint32),
    )
    for k, column in enumerate(columns):
        own = np.uint32(1 << (31 - k))
        mapped ^= ((numbers >> (31 - k)) & 1) * ((column & (own - 1)) | own)[None]
    return mapped, shift


def _words(key: PRNGKeyArray, rows: int, axes: int) -> Array:
    """Rows of words of 32 random bits, each row the same whatever their number."""
    blocks, data = -(-rows // 2) * axes, jax.random.key_data(key)
    numbers = [
        np.arange(start, min(start + PIECE, blocks), dtype=np.uint32)
        for start in range(0, blocks, PIECE)
    ]
    pairs = [threefry_2x32(data, jnp.stack([n, n | np.uint32(1 << 31)])) for n in numbers]
    return jnp.concatenate(pairs, 1).reshape(2, -1, axes).swapaxes(0, 1).reshape(-1, axes)[:rows]


def _point(directions: Array, shift: Array, j: Array) -> Array:
    """The j-th point of a scrambled net, as 32 digits on each axis."""
    for k in range(len(directions)):
        shift = jnp.where((j >> k) & 1, shift ^ directions[k], shift)
    return shift


@functools.cache
def _principal(steps: int) -> NDArray[np.float64]:
    """The increments of a walk of equal steps from its principal components: an orthogonal matrix, the first column first in importance."""
    walk = np.tril(np.ones((steps, steps)))
    _, _, components = np.linalg.svd(walk)
    return components.T


def _reflect(noise: Array, heading: Array) -> Array:
    """Turned so that the first axis lies along the heading."""
    heading = jax.lax.stop_gradient(heading)
    size = jnp.sqrt(heading @ heading)
    first = jnp.where(heading[0] < 0, -1.0, 1.0).astype(heading.dtype)
    normal_vector = (heading / jnp.maximum(size, jnp.finfo(heading.dtype).tiny)).at[0].add(first)
    return noise - 2 * jnp.outer(noise @ normal_vector, normal_vector) / (
        normal_vector @ normal_vector
    )
