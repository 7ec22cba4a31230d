"""Tools for traced functions: abstract inputs, cache keys, comparison, prevention of fusion.

`cached_by_structure` caches the checks of the user's functions, as `jax.jit` caches its programs. A
model of the same structure is then not traced again.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

T = TypeVar("T")
# Results that one cached function keeps. The oldest is discarded first.
CACHE_SIZE = 512


def abstract_point(dim: int) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Return the shapes and dtypes of t, (), and x, (dim,), in JAX's default float dtype."""
    dtype = jnp.result_type(float)
    return jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((dim,), dtype)


def structure_key(tree: Any) -> Hashable:
    """Return a cache key for a tree, like the key under which `jax.jit` stores a program.

    The key consists of the tree structure, the default float dtype, the leaves that are not arrays,
    and the shapes and dtypes of the arrays. If a leaf is unhashable, so is the key.
    """
    return key_of_leaves(*jax.tree.flatten(tree))


def key_of_leaves(leaves: Sequence[Any], structure: Any) -> Hashable:
    """Return the `structure_key` of a tree that was flattened to these leaves and structure."""
    return (
        structure,
        jnp.result_type(float),
        *((a.shape, a.dtype) if eqx.is_array(a) else (type(a), a) for a in leaves),
    )


def cached_by_structure(function: Callable[..., T]) -> Callable[..., T]:
    """Cache the results of a function by the `structure_key` of its positional arguments.

    The result must not depend on the entries of arrays. If an argument is unhashable, the function
    is called without the cache.
    """
    results: OrderedDict[Hashable, T] = OrderedDict()

    @functools.wraps(function)
    def cached(*args: Any) -> T:
        key = structure_key(args)
        try:
            if key not in results:
                results[key] = function(*args)
                if len(results) > CACHE_SIZE:
                    results.popitem(last=False)
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            return function(*args)
        return results[key]

    return cached


def prevent_fusion(function: Callable[..., T], true: Any) -> Callable[..., T]:
    """Return `function` wrapped in a `lax.cond` that XLA cannot fold.

    XLA fuses cheap operations into every operation that uses their result, and it counts random
    numbers as cheap. Without the conditional, it draws the numbers once per use. An
    `optimization_barrier` does not help, because XLA removes it before it fuses.

    `true` is a boolean whose value is True but which the compiler does not know. It must not be
    batched: `vmap` turns a conditional with a batched predicate into a select.
    """

    def conditional(*args: Any) -> T:
        zeros = lambda *args: jax.tree.map(
            lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(function, *args)
        )
        return jax.lax.cond(true, function, zeros, *args)

    return conditional


def same_function(one: Any, other: Any) -> bool:
    """Whether two functions are the same object, or modules of equal structure and equal arrays.

    Traced arrays have no known values, so modules with different traced arrays count as different.
    """
    leaves, trees = zip(*(jax.tree.flatten(each) for each in (one, other)), strict=True)
    if trees[0] != trees[1]:
        return False
    return all(a is b or _is_equal(a, b) for a, b in zip(*leaves, strict=True))


def _is_equal(a: Any, b: Any) -> bool:
    """Whether two leaves have the same shape and equal entries; False if one of them is traced."""
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return False
    equal = np.asarray(a == b) if np.shape(a) == np.shape(b) else np.zeros((), bool)
    return bool(equal.all())


class ByIdentity:
    """A wrapper of an unhashable callable that is hashed and compared by identity."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)


def hashable(model: Any) -> Any:
    """Return a callable that `jax.jit` can use as a cache key.

    Equinox modules are returned as they are, because jit keys on their structure.
    """
    if isinstance(model, eqx.Module):
        return model
    try:
        hash(model)
    except TypeError:
        return ByIdentity(model)
    return model
