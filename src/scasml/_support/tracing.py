"""Checks of the user's functions run once per structure, as traces under jit do: the same model is not called again."""

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

T = TypeVar("T")
REMEMBERED = 512


def cached_by_structure(function: Callable[..., T]) -> Callable[..., T]:
    """Remember the result by what jit would key on: the tree, its static leaves, and shapes and dtypes of its arrays."""
    results: OrderedDict[Hashable, T] = OrderedDict()

    @functools.wraps(function)
    def remembered(*args: Any) -> T:
        leaves, tree = jax.tree.flatten(args)
        is_array = lambda leaf: isinstance(leaf, jax.Array | np.ndarray)
        key = (
            tree,
            jnp.result_type(float),
            *((a.shape, a.dtype) if is_array(a) else (type(a), a) for a in leaves),
        )
        try:
            if key not in results:
                results[key] = function(*args)
                if len(results) > REMEMBERED:
                    results.popitem(last=False)
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            return function(*args)
        return results[key]

    return remembered


def apart(yes: Any, function: Callable[..., T]) -> Callable[..., T]:
    """The same function in a conditional that holds, which the compiler does not know.

    XLA else fuses what is cheap into everything that uses it, and counts random numbers as cheap: they are made again for every use. It drops the barriers of
    `jax.lax.optimization_barrier` before it comes to that, and `yes` must not be batched, or there is no conditional.
    """

    def either(*args: Any) -> T:
        nothing = lambda *args: jax.tree.map(
            lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(function, *args)
        )
        return jax.lax.cond(yes, function, nothing, *args)

    return either


def same_function(one: Any, other: Any) -> bool:
    """Whether two functions are one, or modules of one structure with equal numbers; not where those are traced, and cannot be told."""
    leaves, trees = zip(*(jax.tree.flatten(each) for each in (one, other)), strict=True)
    if trees[0] != trees[1]:
        return False
    return all(a is b or _is_equal(a, b) for a, b in zip(*leaves, strict=True))


def _is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return False
    same = np.asarray(a == b) if np.shape(a) == np.shape(b) else np.zeros((), bool)
    return bool(same.all())


class ByIdentity:
    """A callable that cannot be hashed, made to compare by identity."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)


def hashable(model: Any) -> Any:
    """A callable that jit can key its cache on; an equinox module already is one, by its structure."""
    if isinstance(model, eqx.Module):
        return model
    try:
        hash(model)
    except TypeError:
        return ByIdentity(model)
    return model
