"""Standard normal numbers, from a key or from uniform random bits.

`normal` takes a key and returns independent numbers. `normal_of` takes 32-bit words and returns
the normal number of each. In float64 both call JAX.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, PRNGKeyArray

# Coefficients of erfinv(x)/x with w = -log(1 - x^2), highest power first: a polynomial in w - 2.5
# for w < 5, and a polynomial in sqrt(w) - 3 beyond. They are from M. Giles, "Approximating the
# erfinv function" (2010).
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
    """Return independent standard normal numbers of the given shape and dtype, from a key.

    In float32 both words of each Threefry block are used. JAX uses one, so that arrays can be
    sharded.
    """
    if dtype != np.float32:
        return jax.random.normal(key, shape, dtype)
    size = math.prod(shape)
    counter = jnp.arange(size + size % 2, dtype=jnp.uint32)
    bits = threefry_2x32(jax.random.key_data(key), counter)[:size].reshape(shape)
    return _from_tail(bits >> 31, bits & 0x7FFFFFFF)


def normal_of(bits: Array, dtype: np.dtype) -> Array:
    """Return the standard normal quantile of (bits + 1/2)/2^32, for 32-bit words."""
    if dtype != np.float32:
        return jax.scipy.special.ndtri((bits.astype(dtype) + 0.5) * 2.0**-32)
    below = bits < np.uint32(2**31)
    return _from_tail(below, jnp.where(below, bits, ~bits))


def _from_tail(negative: Array, tail: Array) -> Array:
    """Return float32 normal numbers with the tail probability t = (tail + 1/2)/2^32.

    The numbers are negative where `negative` is not 0. `tail` has 31 bits, so t is in (0, 1/2).
    t is computed from the bits. Computed as 1 - x it would be rounded, and the largest normal
    numbers would not occur.
    """
    t = (tail.astype(jnp.float32) + 0.5) * np.float32(2.0**-32)
    w = -jnp.log(4 * t * (1 - t))
    factor = jnp.where(
        w < 5, _polynomial(_CENTRE, w - 2.5), _polynomial(_TAIL, jnp.sqrt(jnp.maximum(w, 0.0)) - 3)
    )
    magnitude = np.float32(math.sqrt(2.0)) * (1 - 2 * t) * factor
    return jnp.where(negative, -magnitude, magnitude)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Evaluate a polynomial by Horner's rule, with the coefficient of the highest power first."""
    value = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = c + value * x
    return value
