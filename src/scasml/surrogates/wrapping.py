"""`wrap` makes a surrogate of any model u(t, x) of one point.

The model is a JAX function, a surrogate, or an object that an adapter handles. The result is an
`AbstractSurrogate`, after a check that it returns one differentiable number.
"""

from typing import Any

from .._equations.base import AbstractEquation, require_equation
from .._equations.surrogate import AbstractSurrogate, ClosedForm, Derivatives, Layered
from .._support.errors import ArgumentError, brief
from .adapters import adapters_for, functions

_INPUTS = ("t, x", "tx", "xt")


def wrap(model: Any, problem: AbstractEquation, *, inputs: str | None = None) -> AbstractSurrogate:
    """Return a surrogate that evaluates `model` at one point: a time t and a vector x (d,).

    The model must return one number. `problem` is the equation that it approximates; only its
    dimension d is used here, and by the adapters of scasml.

    `inputs` says how the model is called: `"t, x"` as model(t, x), the default; `"tx"` as
    model(v) with v = (t, x) joined into one vector of d + 1 numbers; `"xt"` with the time last.
    An `eqx.nn.MLP` or `eqx.nn.Sequential` takes one vector, so `inputs` must give the order.
    A model of another library is handled by its adapter in `surrogates.ADAPTERS`, if it has one.

    Raises `ArgumentError` or `ArgumentTypeError` if the model cannot be used.
    """
    require_equation(problem)
    if inputs is not None and not (isinstance(inputs, str) and inputs in _INPUTS):
        raise ArgumentError(
            f"inputs must be one of {', '.join(map(repr, _INPUTS))}, "
            f"got {brief(inputs)}: say how the model is called."
        )
    if isinstance(model, AbstractSurrogate):
        if inputs not in (None, "t, x"):
            raise ArgumentError(
                f"inputs does not apply to a surrogate, which takes t and x, got {inputs!r}: "
                "leave it out."
            )
        functions.check_model(model, "t, x", problem.dim)
        return model
    for adapter in adapters_for(model):
        surrogate = adapter.adapt(model, problem, inputs)
        if surrogate is not None:
            functions.check_model(surrogate, "t, x", problem.dim)
            return surrogate
    return functions.adapt(model, problem, inputs)


__all__ = ["AbstractSurrogate", "ClosedForm", "Derivatives", "Layered", "wrap"]
