"""The adapter for any JAX callable of one point.

It takes every model that no other adapter handles, and returns a `Function`. `check_model` raises
if a model does not return one real number that can be differentiated.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._equations.base import AbstractEquation, check_scalar_function
from ..._equations.surrogate import AbstractSurrogate
from ..._support.errors import ArgumentTypeError, first_line
from ..._support.tracing import abstract_point, cached_by_structure, hashable


class Function(AbstractSurrogate):
    """A JAX callable of one point, as a surrogate. `inputs` is the option of `wrap`.

    If the model is an equinox module, its arrays are leaves of this module too. New network weights
    therefore do not cause a new trace.
    """

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


def adapt(model: Any, problem: AbstractEquation, inputs: str | None) -> Function:
    """Check that `model` is a JAX callable of one point, and return it as a surrogate.

    Raises `ArgumentTypeError` or `ArgumentError` if it is not.
    """
    if not callable(model):
        raise ArgumentTypeError(
            "surrogate must be a function u(t, x) or a network, "
            f"got {type(model).__name__}: pass something that can be called at one point."
        )
    model, inputs = hashable(model), inputs or "t, x"
    check_model(model, inputs, problem.dim)
    return Function(model, inputs)


def evaluate(model: Callable[..., Any], inputs: str, t: Array, x: Array) -> Any:
    """Call the model as `inputs` says, and return its output unchanged."""
    match inputs:
        case "tx":
            return model(jnp.concatenate([t[None], x]))
        case "xt":
            return model(jnp.concatenate([x, t[None]]))
        case _:
            return model(t, x)


@cached_by_structure
def check_model(model: Any, inputs: str, dim: int) -> None:
    """Raise unless the model returns one real number and can be differentiated in x.

    The output of the model is checked before it is reshaped to a scalar.
    """
    t, x = abstract_point(dim)
    function = lambda t, x: evaluate(model, inputs, t, x)
    check_scalar_function("surrogate", "u(t, x)", function, t, x)
    try:
        jax.eval_shape(
            jax.grad(lambda t, x: jnp.asarray(function(t, x), x.dtype).reshape(()), argnums=1), t, x
        )
    except Exception as error:
        raise ArgumentTypeError(
            "surrogate: u(t, x) cannot be differentiated in x by reverse mode "
            f"({first_line(error)}): write it without while_loop, or with a custom gradient."
        ) from error
