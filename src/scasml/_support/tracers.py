"""Detection of traced values: values that `jax.jit`, `jax.grad` or `jax.vmap` put into a function.

An argument of an entry point comes in, and the answer is whether it holds a traced value.
"""

import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

# Objects of these types hold no tracers.
_PLAIN = (
    *(int, float, complex, str, bytes, type(None), type, types.ModuleType),
    *(np.ndarray, np.generic, jax.Array),
)
# Objects that are searched at most, so that a search of a large graph of objects ends.
MOST_OBJECTS = 10_000


def holds_tracer(value: Any) -> bool:
    """Whether an object holds a traced value.

    Containers, attributes of objects, and closures of functions are searched too.
    """
    seen: dict[int, Any] = {}  # by identity; the values keep their objects alive
    waiting = [value]
    while waiting and len(seen) < MOST_OBJECTS:
        each = waiting.pop()
        if isinstance(each, Tracer):
            if _is_live(each):
                return True
        elif not isinstance(each, _PLAIN) and id(each) not in seen:
            seen[id(each)] = each
            waiting += _parts(each)
    return False


def is_inside_jit() -> bool:
    """Whether the caller is being traced by `jax.jit`, `scan` or another staging transformation."""
    return isinstance(jnp.zeros(()), Tracer)


def _is_live(tracer: Tracer) -> bool:
    """Whether the trace of a tracer still runs. A function may keep tracers of past traces."""
    try:
        jax.lax.expand_dims(tracer, [0])
    except jax.errors.UnexpectedTracerError:
        return False
    except Exception:  # a tracer of something that is no array
        return True
    return True


def _parts(each: Any) -> list[Any]:
    """Return the objects that an object refers to: items, attributes, variables of a closure."""
    if isinstance(each, Mapping):
        return list(each.values())
    if isinstance(each, list | tuple | set | frozenset):
        return list(each)
    if isinstance(each, functools.partial):
        return [each.func, each.args, each.keywords]
    if inspect.ismethod(each):
        return [each.__self__, each.__func__]
    found = _attributes(each)
    if inspect.isfunction(each):
        found += [each.__defaults__, each.__kwdefaults__]
        for cell in each.__closure__ or ():
            try:
                found.append(cell.cell_contents)
            except ValueError:  # the variable of the closure is not assigned yet
                continue
    return found


def _attributes(each: Any) -> list[Any]:
    """Return the values of the attributes that an object stores, without running its code."""
    slots = [getattr(base, "__slots__", ()) for base in type(each).__mro__]
    names = [name for one in slots for name in ([one] if isinstance(one, str) else one)]
    found = []
    for name in ("__dict__", *names):
        try:
            found.append(object.__getattribute__(each, name))
        except Exception:  # no such attribute, or a proxy without an object behind it
            continue
    return found
