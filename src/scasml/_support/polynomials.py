"""The degrees of the outputs of a jaxpr, as polynomials in some of its inputs.

Degrees of the inputs come in, degrees of the outputs come out. A degree is an upper bound, or None
where the code does not show a polynomial. In this module, "equation" means a jaxpr equation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Jaxpr, Literal

from .jaxprs import inner_jaxprs

Degree = int | None

# Primitives whose outputs are linear in the operands that depend on inputs of positive degree.
# Indices and predicates are integers or booleans, and these never have a positive degree.
_LINEAR = (
    "add", "add_any", "sub", "neg", "convert_element_type", "copy", "copy_p", "device_put",
    "optimization_barrier", "reshape", "squeeze", "broadcast_in_dim", "transpose", "rev", "tile",
    "slice", "split", "concatenate", "stack", "unstack", "pad", "reduce_sum", "cumsum", "select_n",
    "gather", "dynamic_slice", "dynamic_update_slice", "scatter", "scatter-add", "scatter-sub",
)  # fmt: skip

# Primitives whose outputs are linear in each of two operands.
_BILINEAR = ("mul", "dot_general", "conv_general_dilated")

# Primitives that run their one inner jaxpr once, on their operands. `pjit` and `checkpoint` are
# names that versions of JAX use for `jit` and `remat2`.
_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call"}
)


def _quotient(degrees: list[int], parameters: dict[str, Any]) -> Degree:
    return degrees[0] if degrees[1] == 0 else None


def _power(degrees: list[int], parameters: dict[str, Any]) -> Degree:
    return parameters["y"] * degrees[0] if parameters["y"] >= 0 else None


# The degree of the outputs from the degrees of the operands and the parameters of the equation.
_RULES: dict[str, Callable[[list[int], dict[str, Any]], Degree]] = {
    **dict.fromkeys(_LINEAR, lambda degrees, parameters: max(degrees)),
    **dict.fromkeys(_BILINEAR, lambda degrees, parameters: sum(degrees)),
    "square": lambda degrees, parameters: 2 * degrees[0],
    "integer_pow": _power,
    "div": _quotient,
}


def output_degrees(jaxpr: Jaxpr, degrees: Sequence[Degree]) -> list[Degree]:
    """Return a degree for each output of a jaxpr, given one for each input.

    Only an input of a floating dtype may have a positive degree. Constants have degree 0. The
    degrees are those of exact arithmetic, without rounding.
    """
    known: dict[Any, Degree] = dict(zip(jaxpr.invars, degrees, strict=True))
    known.update(dict.fromkeys(jaxpr.constvars, 0))
    degree_of = lambda v: 0 if isinstance(v, Literal) else known[v]
    for equation in jaxpr.eqns:
        operands = [degree_of(v) for v in equation.invars]
        known.update(zip(equation.outvars, _equation_degrees(equation, operands), strict=True))
    return [degree_of(v) for v in jaxpr.outvars]


def _equation_degrees(equation: Any, operands: list[Degree]) -> list[Degree]:
    """Return a degree for each output of an equation, given one for each operand."""
    name, inner = equation.primitive.name, inner_jaxprs(equation)
    if name in _CALLS and len(inner) == 1 and len(inner[0].invars) == len(operands):
        return output_degrees(inner[0], operands)
    return [_output_degree(equation, operands, v.aval) for v in equation.outvars]


def _output_degree(equation: Any, operands: list[Degree], output: Any) -> Degree:
    """Return the degree of one output of an equation that calls no inner jaxpr."""
    degrees = [degree for degree in operands if degree is not None]
    # An effect can read what another equation has stored.
    if equation.effects or len(degrees) < len(operands):
        return None
    if not any(degrees):
        return 0
    rule = _RULES.get(equation.primitive.name)
    if rule is None or not _is_precise(output.dtype):
        return None
    return rule(degrees, equation.params)


def _is_precise(dtype: Any) -> bool:
    """Whether numbers of this dtype can stand for real numbers.

    A conversion to integers, or to floats of fewer than 32 bits, rounds as `round` does.
    """
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits >= 32
