"""The floating-point dtype of a run, whatever the process-wide setting of JAX.

A dtype as the user passes it comes in. Out go the parsed dtype, a context in which JAX computes in
that dtype, and trees of arrays that are cast to it.
"""

from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .errors import ArgumentError

T = TypeVar("T")


def parse_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype that the user means: float32, float64, or JAX's default float for None.

    Raises ArgumentError for anything else.
    """
    if dtype is None:
        return np.dtype(jnp.result_type(float))
    refusal = ArgumentError(
        f'dtype must be None, "float32" or "float64", got {dtype!r}: pick one of these.'
    )
    try:
        parsed = np.dtype(dtype)
    except TypeError:
        raise refusal from None
    if parsed not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise refusal
    return parsed


def use_dtype(dtype: np.dtype[Any]) -> AbstractContextManager[Any]:
    """Return a context in which JAX computes in `dtype`.

    The context holds for one thread only. Each thread must enter its own.
    """
    return jax.enable_x64(dtype == np.float64)


def cast(tree: T, dtype: np.dtype[Any]) -> T:
    """Return the tree with every floating-point array converted to a NumPy array of `dtype`."""

    def cast_leaf(leaf: Any) -> Any:
        is_float = isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(
            leaf.dtype, jnp.floating
        )
        return np.asarray(leaf).astype(dtype) if is_float else leaf

    return jax.tree.map(cast_leaf, tree)
