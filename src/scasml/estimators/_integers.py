"""Arithmetic on integers that are not negative, which compiles faster than that of JAX arrays."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def quotient(a: Any, b: Any) -> Array:
    """Return the floor of a / b, for integers a >= 0 and b > 0."""
    return jax.lax.div(*_matched(a, b))


def remainder(a: Any, b: Any) -> Array:
    """Return a - b floor(a / b), for integers a >= 0 and b > 0."""
    return jax.lax.rem(*_matched(a, b))


def is_odd(a: Any) -> Array:
    """Return whether an integer is odd. It may be negative."""
    return jnp.bitwise_and(a, 1) == 1


def _matched(a: Any, b: Any) -> list[Array]:
    dtype = jnp.result_type(a, b)
    arrays = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
    return jnp.broadcast_arrays(*arrays)
