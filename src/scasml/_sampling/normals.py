"""Normal numbers, in float32 at half the price of `jax.random.normal`, and from the bits of any uniform number.

JAX keeps one of the two words that a block of Threefry makes, so that arrays can be laid out over
devices. A path is never laid out, so both words are used here. The inverse of the error function is
that of M. Giles, "Approximating the erfinv function" (2010), with the tail computed from the bits and
not from 1 - x: the largest of the numbers is 6.3, not 5.4.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, PRNGKeyArray

# Of erfinv(x)/x in w = -log(1 - x^2): centrally in w - 2.5, in the tail in sqrt(w) - 3.
_CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
)
_CENTRE += (-0.00417768164, 0.246640727, 1.50140941)
_TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
)
_TAIL += (0.00943887047, 1.00167406, 2.83297682)


def normal(key: PRNGKeyArray, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Independent standard normal numbers."""
    if dtype != np.float32:
        return jax.random.normal(key, shape, dtype)
    size = math.prod(shape)
    counter = jnp.arange(size + size % 2, dtype=jnp.uint32)
    bits = threefry_2x32(jax.random.key_data(key), counter)[:size].reshape(shape)
    return _from_tail(bits >> 31, bits & 0x7FFFFFFF)


def normal_of(bits: Array, dtype: np.dtype) -> Array:
    """The normal number below which the share bits/2^32 of them lies."""
    if dtype != np.float32:
        return jax.scipy.special.ndtri((bits.astype(dtype) + 0.5) * 2.0**-32)
    below = bits < np.uint32(2**31)
    return _from_tail(below, jnp.where(below, bits, ~bits))


def _from_tail(negative: Array, tail: Array) -> Array:
    """From a sign and 31 bits of the smaller tail, t in (0, 1/2)."""
    t = (tail.astype(jnp.float32) + 0.5) * np.float32(2.0**-32)
    w = -jnp.log(4 * t * (1 - t))
    factor = jnp.where(
        w < 5, _polynomial(_CENTRE, w - 2.5), _polynomial(_TAIL, jnp.sqrt(jnp.maximum(w, 0.0)) - 3)
    )
    size_of = np.float32(math.sqrt(2.0)) * (1 - 2 * t) * factor
    return jnp.where(negative, -size_of, size_of)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = c + value * x
    return value
