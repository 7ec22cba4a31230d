"""mu and sigma as arrays: their shapes, and sigma as the linear map it is, whether a scalar, a diagonal or a full matrix."""

import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._support.errors import ArgumentError, ArgumentTypeError, brief

Coefficient = Array | NDArray[Any]

# A matrix whose singular values span more than this is singular for the purposes of float32.
CONDITION = 1e-7


def diffuse(diffusion: Coefficient, vector: Array) -> Array:
    """sigma v."""
    return (
        jnp.asarray(diffusion) @ vector if diffusion.ndim == 2 else jnp.asarray(diffusion) * vector
    )


def diffuse_transposed(diffusion: Coefficient, vector: Array) -> Array:
    """sigma^T v: from the gradient to z."""
    return diffuse(diffusion.T, vector)


def undiffuse_transposed(diffusion: Coefficient, vector: Array) -> Array:
    """sigma^-T v: from z back to the gradient."""
    return solve(jnp.asarray(diffusion).T, vector) if diffusion.ndim == 2 else vector / diffusion


def solve(matrix: Array, vector: Array) -> Array:
    """matrix^-1 vector by Gauss and Jordan, with pivots.

    Not by LAPACK: XLA calls it one small matrix at a time, a hundred times slower in a batch of paths, and
    two such calls from two threads wait for each other for ever.
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
    """The columns of sigma, as rows."""
    sigma = jnp.asarray(diffusion)
    return sigma.T if sigma.ndim == 2 else jnp.diag(jnp.broadcast_to(sigma, (dim,)))


def real_array(argument: str, value: Any, expected: str) -> NDArray[np.float64]:
    """Numbers as float64. NumPy alone would take text and booleans, and drop an imaginary part with a warning."""
    try:
        # A Fraction is a number to Python and an object to NumPy.
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        array = np.asarray(float(value) if is_number else value)
        if not (
            jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)
        ):
            raise TypeError
        return array.astype(np.float64)
    except (
        Exception
    ) as error:  # ragged lists, tracers, whatever an array of another library refuses
        raise ArgumentTypeError(
            f"{argument} must be {expected}, got {brief(value)}: pass real numbers."
        ) from error


def coefficient(argument: str, value: Any, allowed: str, max_ndim: int) -> NDArray[np.float64]:
    """A finite array of at most `max_ndim` axes, all of one length."""
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
    if any(n != dim for n in array.shape):
        raise ArgumentError(
            f"{argument} must be {allowed} with d = {dim}, got shape {array.shape}: check it against dim."
        )


def check_invertible(argument: str, sigma: NDArray[Any]) -> None:
    """Refuse a constant sigma that leaves some direction without noise."""
    if sigma.ndim == 2:
        singular_values = np.linalg.svd(sigma, compute_uv=False)
        ratio = singular_values[-1] / singular_values[0] if singular_values[0] > 0 else 0.0
    else:
        magnitude = np.abs(sigma)
        ratio = magnitude.min() / magnitude.max() if magnitude.max() > 0 else 0.0
    if ratio < CONDITION:
        raise ArgumentError(
            f"{argument} must be invertible, got one whose smallest singular value is {ratio:.1g} times its largest: "
            "z = sigma^T grad u determines the gradient only then; give every direction some noise."
        )
