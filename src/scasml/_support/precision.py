"""float32 by default, float64 on request, whatever the process-wide setting of JAX."""

from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .errors import ArgumentError

T = TypeVar("T")


def parse_dtype(dtype: Any) -> np.dtype[Any]:
    refusal = ArgumentError(
        f'dtype must be "float32" or "float64", got {dtype!r}: pick one of the two.'
    )
    try:
        parsed = np.dtype(dtype)
    except TypeError:
        raise refusal from None
    if dtype is None or parsed not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise refusal
    return parsed


def use_dtype(dtype: np.dtype[Any]) -> AbstractContextManager[Any]:
    """A context in which JAX computes in `dtype`. It belongs to one thread: enter it again in each."""
    return jax.enable_x64(dtype == np.float64)


def cast(tree: T, dtype: np.dtype[Any]) -> T:
    """The same tree with every floating-point array in `dtype`."""

    def one(leaf: Any) -> Any:
        is_float = isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(
            leaf.dtype, jnp.floating
        )
        return np.asarray(leaf).astype(dtype) if is_float else leaf

    return jax.tree.map(one, tree)
