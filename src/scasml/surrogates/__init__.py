"""Surrogates: anything that gives u(t, x), made ready for the law of defect."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..errors import ArgumentError, ArgumentTypeError
from ..problem import AbstractLaw, check_scalar_function
from .base import AbstractSurrogate as AbstractSurrogate
from .callables import FirstLayer, Function, Joined

_INPUTS = ("t, x", "tx", "xt")


def wrap(model: Any, problem: AbstractLaw, *, inputs: str | None = None) -> AbstractSurrogate:
    """Make a surrogate of a model of one point.

    `inputs` says how the model is called: `"t, x"` as model(t, x), the default; `"tx"` as
    model(v) with v = (t, x) joined into one vector of d + 1 numbers; `"xt"` with the time last.
    An `eqx.nn.MLP` or `eqx.nn.Sequential` takes one vector, and then the order must be said.
    """
    if isinstance(model, AbstractSurrogate):
        surrogate = model
    else:
        surrogate = _adapt(model, problem.dim, inputs)
    t, x = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((problem.dim,), jnp.float32)
    check_scalar_function("surrogate", "u(t, x)", surrogate if isinstance(model, AbstractSurrogate) else _raw(surrogate), t, x)
    return surrogate


def _adapt(model: Any, dim: int, inputs: str | None) -> AbstractSurrogate:
    if not callable(model):
        raise ArgumentTypeError(
            f"surrogate must be a function u(t, x) or a network, got {type(model).__name__}: pass something that can be called at one point."
        )
    if inputs is not None and inputs not in _INPUTS:
        raise ArgumentError(f"inputs must be one of {', '.join(map(repr, _INPUTS))}, got {inputs!r}: say how the model is called.")
    is_network = isinstance(model, eqx.nn.MLP | eqx.nn.Sequential)
    if is_network and inputs in (None, "t, x"):
        raise ArgumentError(
            f"inputs must say the order for an eqx.nn.{type(model).__name__}, which takes one vector of {dim + 1} numbers, "
            f'got {inputs!r}: pass inputs="tx" for (t, x) or inputs="xt" for (x, t).'
        )
    if inputs in (None, "t, x"):
        return Function(_hashable(model))
    first = model.layers[0] if is_network and len(model.layers) else None
    if isinstance(first, eqx.nn.Linear) and first.in_features == dim + 1 and first.weight.ndim == 2:
        return FirstLayer(model, time_first=inputs == "tx")
    return Joined(_hashable(model), time_first=inputs == "tx")


def _raw(surrogate: AbstractSurrogate) -> Callable[..., Any]:
    """The model before its output is reshaped to a scalar, so that a vector is refused and not hidden."""
    if isinstance(surrogate, Function):
        return surrogate.function
    if isinstance(surrogate, Joined | FirstLayer):
        joined = (lambda t, x: [t[None], x]) if surrogate.time_first else (lambda t, x: [x, t[None]])
        return lambda t, x: surrogate.network(jnp.concatenate(joined(t, x)))
    return surrogate


def _hashable(model: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that jit can key its cache on; an equinox module already is one, by its structure."""
    if isinstance(model, eqx.Module):
        return model
    try:
        hash(model)
    except TypeError:
        return lambda *args: model(*args)
    return model


__all__ = ["AbstractSurrogate", "wrap"]
