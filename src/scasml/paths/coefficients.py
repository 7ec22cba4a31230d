"""The coefficients mu and sigma as arrays: products with sigma, and checks of arguments.

sigma is a linear map. It is stored as a scalar, as the diagonal (d,) of a matrix, or as a matrix
(d, d); the number of axes says which. The products take sigma and a vector (d,) and return a
vector. The checks turn arguments of the user into finite float64 arrays, or raise an error.
"""

import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._support.errors import ArgumentError, ArgumentTypeError, brief

Coefficient = Array | NDArray[Any]

# A sigma counts as singular if its smallest singular value is below this multiple of its largest.
CONDITION = 1e-7
# The shapes that a constant mu and a constant sigma may have, for error messages.
DRIFT_SHAPES, DIFFUSION_SHAPES = "a scalar or (d,)", "a scalar, (d,) or (d, d)"


def diffuse(diffusion: Coefficient, vector: Array) -> Array:
    """Return sigma v."""
    sigma = jnp.asarray(diffusion)
    return sigma @ vector if diffusion.ndim == 2 else sigma * vector


def diffuse_transposed(diffusion: Coefficient, vector: Array) -> Array:
    """Return sigma^T v, which turns a gradient into z."""
    return diffuse(diffusion.T, vector)


def undiffuse_transposed(diffusion: Coefficient, vector: Array) -> Array:
    """Return sigma^-T v, which turns z into a gradient."""
    if diffusion.ndim == 2:
        return solve_linear(jnp.asarray(diffusion).T, vector)
    return vector / diffusion


def solve_linear(matrix: Array, vector: Array) -> Array:
    """Return matrix^-1 vector, by Gauss-Jordan elimination with row pivots.

    `matrix` is (n, n) and `vector` is (n,). LAPACK is not used: XLA calls it for one small matrix
    at a time, which is slow in a batch of paths, and calls from two threads can deadlock.
    """
    rows = jnp.arange(len(vector))

    def eliminate(k: Array, system: Array) -> Array:
        pivot = jnp.argmax(jnp.where(rows >= k, jnp.abs(system[:, k]), -1.0))
        chosen, displaced = system[pivot], system[k]
        system = system.at[pivot].set(displaced).at[k].set(chosen)
        row = chosen / chosen[k]
        return (system - jnp.outer(system[:, k], row)).at[k].set(row)

    return jax.lax.fori_loop(
        0, len(vector), eliminate, jnp.concatenate([matrix, vector[:, None]], 1)
    )[:, -1]


def columns(diffusion: Coefficient, dim: int) -> Array:
    """Return the columns of sigma as the rows of an array (d, d)."""
    sigma = jnp.asarray(diffusion)
    return sigma.T if sigma.ndim == 2 else jnp.diag(jnp.broadcast_to(sigma, (dim,)))


def real_array(argument: str, value: Any, expected: str) -> NDArray[np.float64]:
    """Return `value` as a float64 array.

    NumPy alone would accept text and booleans, and drop an imaginary part with a warning.

    Arguments:
        argument: the name of the argument, for the message.
        value: real numbers.
        expected: the allowed shapes in words, for the message.

    Raises `ArgumentTypeError` if `value` is not an array of real numbers.
    """
    try:
        # NumPy makes an array of objects from a Fraction.
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        array = np.asarray(float(value) if is_number else value)
        if not (
            jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)
        ):
            raise TypeError
        return array.astype(np.float64)
    # Ragged lists, tracers and arrays of other libraries raise errors of many types.
    except Exception as error:
        raise ArgumentTypeError(
            f"{argument} must be {expected}, got {brief(value)}: pass real numbers."
        ) from error


def coefficient(argument: str, value: Any, allowed: str, max_ndim: int) -> NDArray[np.float64]:
    """Return `value` as a finite float64 array of at most `max_ndim` axes of equal length.

    `argument` and `allowed` are the name and the allowed shapes, for messages. Raises
    `ArgumentTypeError` or `ArgumentError` if `value` is not such an array.
    """
    array = real_array(argument, value, allowed)
    if array.ndim > max_ndim or len(set(array.shape)) > 1:
        raise ArgumentError(
            f"{argument} must be {allowed}, got shape {array.shape}: check it against dim."
        )
    if not np.all(np.isfinite(array)):
        raise ArgumentError(
            f"{argument} must be finite, got {brief(value)}: remove the NaN or infinite entries."
        )
    return array


def check_width(argument: str, array: Coefficient, dim: int, allowed: str) -> None:
    """Raise `ArgumentError` if an axis of `array` does not have the length `dim`.

    `argument` and `allowed` are the name and the allowed shapes, for the message.
    """
    if any(n != dim for n in array.shape):
        raise ArgumentError(
            f"{argument} must be {allowed} with d = {dim}, got shape {array.shape}: "
            "check it against dim."
        )


def check_invertible(argument: str, sigma: NDArray[Any]) -> None:
    """Raise `ArgumentError` if a constant sigma is singular, or close to it; see `CONDITION`."""
    if sigma.ndim == 2:
        singular_values = np.linalg.svd(sigma, compute_uv=False)
        ratio = singular_values[-1] / singular_values[0] if singular_values[0] > 0 else 0.0
    else:
        magnitude = np.abs(sigma)
        ratio = magnitude.min() / magnitude.max() if magnitude.max() > 0 else 0.0
    if ratio < CONDITION:
        raise ArgumentError(
            f"{argument} must be invertible, got one whose smallest singular value is "
            f"{ratio:.1g} times its largest: z = sigma^T grad u determines the gradient only then; "
            "give every direction some noise."
        )
