"""Surrogates written in JAX: any function u(t, x), and equinox networks."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from .base import AbstractSurrogate


class Function(AbstractSurrogate):
    """Any JAX callable u(t, x) of one point; arrays inside an equinox module stay arrays, so new weights do not retrace."""

    function: Callable[[Array, Array], ArrayLike]

    def __call__(self, t: Array, x: Array) -> Array:
        return jnp.asarray(self.function(t, x), x.dtype).reshape(())

    @property
    def first_layer(self) -> None:
        return None

    def head(self, t: Array, h: Array) -> Array:
        raise AssertionError("a Function exposes no first layer")


class Joined(AbstractSurrogate):
    """A network of one vector, (t, x) or (x, t) joined."""

    network: Callable[[Array], ArrayLike]
    time_first: bool = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        parts = [t[None], x] if self.time_first else [x, t[None]]
        return jnp.asarray(self.network(jnp.concatenate(parts)), x.dtype).reshape(())

    @property
    def first_layer(self) -> None:
        return None

    def head(self, t: Array, h: Array) -> Array:
        raise AssertionError("a Joined network exposes no first layer")


class FirstLayer(AbstractSurrogate):
    """An `eqx.nn.MLP` or `eqx.nn.Sequential` of (t, x) joined, cut after its linear first layer."""

    network: eqx.nn.MLP | eqx.nn.Sequential
    time_first: bool = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        return self.head(t, self.first_layer @ x)

    @property
    def first_layer(self) -> Array:
        weight = self.network.layers[0].weight
        return weight[:, 1:] if self.time_first else weight[:, :-1]

    def head(self, t: Array, h: Array) -> Array:
        first = self.network.layers[0]
        h = h + first.weight[:, 0 if self.time_first else -1] * t
        if first.use_bias:
            h = h + first.bias
        rest = eqx.tree_at(lambda network: network.layers[0], self.network, eqx.nn.Identity())
        return jnp.asarray(rest(h), h.dtype).reshape(())
