"""Designs: the random numbers of all samples of one mean.

`design` takes keys and returns a function from the index of a sample to its `Draw`: one uniform
number for its time, and the normal numbers of its path. Samples of two designs are independent.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._support.errors import ArgumentError
from .normals import normal, normal_of
from .sobol import (
    NET_AXES,
    NET_BITS,
    direction_numbers,
    net_point,
    principal_components,
    reflect,
    scramble,
)

Sampling = Literal["mc", "antithetic", "rqmc"]
SAMPLINGS = ("mc", "antithetic", "rqmc")
# A function from the index of a sample to the keys of its path and of its time.
Streams = Callable[[Array], tuple[PRNGKeyArray, PRNGKeyArray]]


class Draw(NamedTuple):
    """The random numbers of one sample.

    Attributes:
        uniform: a number in (0, 1], from which a time is drawn.
        noise: standard normal numbers of shape (steps, d), from which a path is drawn.
    """

    uniform: Array
    noise: Array


def design(
    sampling: Sampling,
    streams: Streams,
    samples: int | Array,
    shape: tuple[int, int],
    like: Array,
    heading: Array | None,
) -> Callable[[Array], Draw]:
    """Return a function from the index of a sample to its `Draw`.

    There are three kinds of designs:

        mc          all samples are independent.
        antithetic  samples come in pairs with equal times and opposite normal numbers. The times of
                    the pairs are stratified.
        rqmc        the samples are a scrambled Sobol net. Its first axis is the time. The other
                    axes are principal components of the path, the first of which moves along a
                    heading.

    A mean is unbiased under each design. The path of every sample has the right distribution. The
    time of every sample has it too under mc and rqmc. Under antithetic, the times of all strata
    together have it. Samples of one design depend on each other, except under mc.

    Arguments:
        sampling: "mc", "antithetic" or "rqmc".
        streams: a function from the index of a sample to the keys of its path and of its time.
        samples: the number of samples. A traced number gives the same draws as an int.
        shape: (steps, d), the shape of the normal numbers of one sample.
        like: an array with the dtype of the draws.
        heading: a vector (d,) along which the first principal component of an rqmc path moves, or
            None for the first coordinate axis. The other designs do not use it.
    """
    if sampling == "mc":
        return lambda k: _independent(streams, shape, like.dtype, k)
    if sampling == "antithetic":
        return lambda k: _antithetic(streams, samples // 2, shape, like.dtype, k)
    return _net(streams, samples, shape, like.dtype, heading)


def in_halves(
    sampling: Sampling,
    streams: Streams,
    samples: int,
    shape: tuple[int, int],
    like: Array,
    heading: Array | None,
) -> Callable[[Array], Draw]:
    """As `design`, but the samples with even and with odd index form two independent designs.

    The samples of mc are independent already, so for mc this is `design` itself.
    """
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
    """Return sample k of independent samples."""
    key_path, key_time = streams(k)
    return Draw(1 - jax.random.uniform(key_time, (), dtype), normal(key_path, shape, dtype))


def _antithetic(
    streams: Streams, pairs: int | Array, shape: tuple[int, int], dtype: np.dtype, k: Array
) -> Draw:
    """Return sample k of antithetic samples, where samples 2 i and 2 i + 1 are pair i."""
    base = _independent(streams, shape, dtype, k - k % 2)
    stratified = ((k // 2).astype(dtype) + base.uniform) / jnp.asarray(pairs, dtype)
    return Draw(stratified, jnp.where(k % 2 == 1, -base.noise, base.noise))


def _net(
    streams: Streams,
    samples: int | Array,
    shape: tuple[int, int],
    dtype: np.dtype,
    heading: Array | None,
) -> Callable[[Array], Draw]:
    """Return the design of a scrambled net; see `design`.

    Normal numbers beyond the axes of the net are independent, as under mc.
    """
    numbers = math.prod(shape)
    axes = min(1 + numbers, NET_AXES)
    bits = max(samples.bit_length() - 1, 1) if isinstance(samples, int) else NET_BITS
    key_rest, key_net = streams(jnp.asarray(0))
    directions, shift = scramble(direction_numbers(axes)[:bits], key_net)

    def draw(k: Array) -> Draw:
        point = net_point(directions, shift, k)
        noise = normal_of(point[1:], dtype)
        if numbers >= axes:
            rest = normal(jax.random.fold_in(key_rest, k), (numbers + 1 - axes,), dtype)
            noise = jnp.concatenate([noise, rest])
        noise = jnp.asarray(principal_components(shape[0]), dtype) @ noise.reshape(shape)
        uniform = (point[0].astype(dtype) + 1) * jnp.asarray(2.0**-32, dtype)
        return Draw(uniform, noise if heading is None else reflect(noise, heading))

    return draw


def check_samples(argument: str, sampling: str, samples: int, levels: int = 1) -> None:
    """Raise `ArgumentError` if the number of samples does not suit the design.

    Each of the two designs of `in_halves` must be complete: an even number of samples, or a power
    of two for a net. A net must not have more than 2^NET_BITS points.

    Arguments:
        argument: the name of the argument, for the message.
        sampling: "mc", "antithetic" or "rqmc".
        samples: the number of samples.
        levels: an exponent: the largest design has samples**levels samples.
    """
    if sampling == "antithetic" and samples % 4:
        raise ArgumentError(
            f"{argument} must be a multiple of 4 for antithetic sampling, got {samples}: "
            f"take {4 * -(-samples // 4)}."
        )
    if sampling == "rqmc" and (samples < 4 or samples & (samples - 1)):
        nearest = max(4, 2 ** (samples - 1).bit_length())
        raise ArgumentError(
            f"{argument} must be 4, 8, 16, ... for rqmc, got {samples}: take {nearest}."
        )
    if sampling == "rqmc" and levels * math.log2(samples) > NET_BITS:
        got = samples if levels == 1 else f"{samples}**{levels}"
        raise ArgumentError(
            f"{argument} must make at most 2^{NET_BITS} for rqmc, got {got}: "
            "take more replicates instead."
        )
