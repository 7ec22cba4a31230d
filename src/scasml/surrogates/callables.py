"""Surrogates written in JAX: any function u(t, x), and equinox networks."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._equations.surrogate import AbstractSurrogate, Layered


def evaluate(model: Callable[..., Any], inputs: str, t: Array, x: Array) -> Any:
    """What the model itself returns, called the way `inputs` says."""
    match inputs:
        case "tx":
            return model(jnp.concatenate([t[None], x]))
        case "xt":
            return model(jnp.concatenate([x, t[None]]))
        case _:
            return model(t, x)


class Function(AbstractSurrogate):
    """Any JAX callable of one point; arrays inside an equinox module stay arrays, so new weights do not retrace."""

    model: Callable[..., Any]
    inputs: str = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        return jnp.asarray(evaluate(self.model, self.inputs, t, x), x.dtype).reshape(())

    @property
    def terminal_function(self) -> None:
        return None

    @property
    def form(self) -> None:
        return None


class FirstLayer(AbstractSurrogate):
    """An `eqx.nn.MLP` or `eqx.nn.Sequential` of (t, x) joined, cut after its linear first layer."""

    network: Any  # eqx.nn.MLP or eqx.nn.Sequential
    time_first: bool = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        return self._head(t, self._weight @ x)

    @property
    def terminal_function(self) -> None:
        return None

    @property
    def form(self) -> Layered:
        return Layered(self._weight, self._head)

    @property
    def _weight(self) -> Array:
        weight = self.network.layers[0].weight
        return weight[:, 1:] if self.time_first else weight[:, :-1]

    def _head(self, t: Array, h: Array) -> Array:
        first = self.network.layers[0]
        h = h + first.weight[:, 0 if self.time_first else -1] * t
        if first.bias is not None:
            h = h + first.bias
        rest = eqx.tree_at(lambda network: network.layers[0], self.network, eqx.nn.Identity())
        return jnp.asarray(rest(h), h.dtype).reshape(())
