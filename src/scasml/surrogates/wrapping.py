"""What a surrogate is: anything that gives u(t, x), made ready for the law of defect."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._equations.problem import AbstractEquation, check_scalar_function, require_equation
from .._equations.surrogate import AbstractSurrogate, ClosedForm, Derivatives, Layered
from .._support.errors import ArgumentError, ArgumentTypeError, brief, first_line
from .._support.tracing import cached_by_structure, hashable
from .callables import FirstLayer, Function, evaluate

_INPUTS = ("t, x", "tx", "xt")


def wrap(model: Any, problem: AbstractEquation, *, inputs: str | None = None) -> AbstractSurrogate:
    """Make a surrogate of a model of one point.

    `inputs` says how the model is called: `"t, x"` as model(t, x), the default; `"tx"` as
    model(v) with v = (t, x) joined into one vector of d + 1 numbers; `"xt"` with the time last.
    An `eqx.nn.MLP` or `eqx.nn.Sequential` takes one vector, and then the order must be said.
    """
    require_equation(problem)
    if not callable(model):
        raise ArgumentTypeError(
            f"surrogate must be a function u(t, x) or a network, got {type(model).__name__}: pass something that can be called at one point."
        )
    if inputs is not None and not (isinstance(inputs, str) and inputs in _INPUTS):
        raise ArgumentError(
            f"inputs must be one of {', '.join(map(repr, _INPUTS))}, got {brief(inputs)}: say how the model is called."
        )
    # A subclass may do anything in its __call__; it is a function like any other.
    is_network = type(model) in (eqx.nn.MLP, eqx.nn.Sequential)
    if is_network and inputs not in ("tx", "xt"):
        raise ArgumentError(
            f"inputs must say the order for an eqx.nn.{type(model).__name__}, which takes one vector of {problem.dim + 1} numbers, "
            f'got {inputs!r}: give surrogates.wrap inputs="tx" for (t, x) or inputs="xt" for (x, t).'
        )
    how = inputs or "t, x"
    model = hashable(model)
    _check(model, how, problem.dim)
    if isinstance(model, AbstractSurrogate):
        return model
    first = model.layers[0] if is_network and len(model.layers) else None
    if isinstance(first, eqx.nn.Linear) and first.weight.ndim == 2:
        return FirstLayer(model, time_first=how == "tx")
    return Function(model, how)


@cached_by_structure
def _check(model: Any, how: str, dim: int) -> None:
    """One number at one point: the model's own output, before it is reshaped to a scalar."""
    t, x = (jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in ((), (dim,)))
    function = lambda t, x: evaluate(model, how, t, x)
    check_scalar_function("surrogate", "u(t, x)", function, t, x)
    try:
        jax.eval_shape(
            jax.grad(lambda t, x: jnp.asarray(function(t, x), x.dtype).reshape(()), argnums=1), t, x
        )
    except Exception as error:
        raise ArgumentTypeError(
            f"surrogate: u(t, x) cannot be differentiated in x by reverse mode ({first_line(error)}): "
            "write it without while_loop, or with a custom gradient."
        ) from error


__all__ = ["AbstractSurrogate", "ClosedForm", "Derivatives", "Layered", "wrap"]
