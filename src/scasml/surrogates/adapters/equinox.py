"""The adapter for `eqx.nn.MLP` and `eqx.nn.Sequential`.

A network whose first layer is linear becomes a `FirstLayer`, which makes its residual cheaper.
For any other equinox module `adapt` returns None, so that `functions` handles it as a callable.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..._equations.base import AbstractEquation
from ..._equations.surrogate import AbstractSurrogate, Layered
from ..._support.errors import ArgumentError
from .functions import check_model


class FirstLayer(AbstractSurrogate):
    """A network of (t, x) joined into one vector, in the form `Layered` by its first layer.

    With `time_first` the vector is (t, x), otherwise (x, t).
    """

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
        """The network weights W (width, d) of x in the first layer."""
        weight = self.network.layers[0].weight
        return weight[:, 1:] if self.time_first else weight[:, :-1]

    def _head(self, t: Array, h: Array) -> Array:
        """Return the value of the network from h = W x of shape (width,)."""
        first = self.network.layers[0]
        h = h + first.weight[:, 0 if self.time_first else -1] * t
        if first.bias is not None:
            h = h + first.bias
        rest = eqx.tree_at(lambda network: network.layers[0], self.network, eqx.nn.Identity())
        return jnp.asarray(rest(h), h.dtype).reshape(())


def adapt(model: Any, problem: AbstractEquation, inputs: str | None) -> FirstLayer | None:
    """Return a network as a `FirstLayer`, or None if it has no linear first layer.

    Raises `ArgumentError` if `inputs` does not say where the time goes in the input vector.
    """
    # A subclass may do anything in its __call__, so it is treated as a function.
    if type(model) not in (eqx.nn.MLP, eqx.nn.Sequential):
        return None
    if inputs not in ("tx", "xt"):
        raise ArgumentError(
            f"inputs must say the order for an eqx.nn.{type(model).__name__}, which takes one "
            f"vector of {problem.dim + 1} numbers, got {inputs!r}: give surrogates.wrap "
            'inputs="tx" for (t, x) or inputs="xt" for (x, t).'
        )
    first = model.layers[0] if len(model.layers) else None
    if not isinstance(first, eqx.nn.Linear) or first.weight.ndim != 2:
        return None
    check_model(model, inputs, problem.dim)
    return FirstLayer(model, time_first=inputs == "tx")
