"""Detection of traced values: values that `jax.jit`, `jax.grad` or `jax.vmap` put into a function.

An argument of an entry point comes in, and the answer is whether it holds a traced value.
"""

import functools
import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer


def holds_tracer(value: Any) -> bool:
    """Whether a pytree holds a traced value, also in the closures of its functions."""
    seen: dict[int, Any] = {}  # by identity; the values keep their objects alive
    waiting = [value]
    while waiting:
        for leaf in jax.tree.leaves(waiting.pop(), is_leaf=_has_parts):
            if isinstance(leaf, Tracer):
                return True
            if id(leaf) not in seen:
                seen[id(leaf)] = leaf
                waiting += _parts(leaf)
    return False


def is_inside_jit() -> bool:
    """Whether the caller is being traced by `jax.jit`, `scan` or another staging transformation."""
    return isinstance(jnp.zeros(()), Tracer)


def _has_parts(leaf: Any) -> bool:
    """Whether `_parts` finds more in an object than its leaves as a pytree."""
    return isinstance(leaf, eqx.Module | functools.partial)


def _parts(leaf: Any) -> list[Any]:
    """Return the objects that a leaf refers to: attributes, arguments, variables of a closure."""
    if isinstance(leaf, eqx.Module):
        return list(vars(leaf).values())  # static fields too
    if isinstance(leaf, functools.partial):
        return [leaf.func, leaf.args, leaf.keywords]
    if inspect.ismethod(leaf):
        return [leaf.__self__, leaf.__func__]
    # An object such as `jax.jit(f)` has the function as its attribute `__wrapped__`.
    found: list[Any] = [getattr(leaf, "__wrapped__", None)]
    if not inspect.isfunction(leaf):
        is_object = callable(leaf) and not inspect.isclass(leaf)
        return found + (
            list(vars(leaf).values()) if is_object and hasattr(leaf, "__dict__") else []
        )
    found += [leaf.__defaults__, leaf.__kwdefaults__]
    for cell in leaf.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # the variable of the closure is not assigned yet
            continue
    return found
