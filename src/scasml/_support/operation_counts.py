"""The work of a function, counted from its jaxpr.

A function and its arguments come in, of which only the shapes matter. A number of operations comes
out. The unit is one addition or multiplication of two numbers. The count is the same on every
machine and in every run. The body of a loop counts once per iteration.
"""

import math
from collections.abc import Callable
from typing import Any

import jax

from .jaxprs import inner_jaxprs
from .tracing import abstract_point, cached_by_structure

# Operations per scrambled normal number (8 to 20 ns at 15 operations per ns).
NORMAL_WORK = 150.0
# Work of a value together with its gradient, relative to the work of the value.
REVERSE_FACTOR = 3.0
# Iterations that a `while` loop is taken to have, because its jaxpr does not say how many.
WHILE_ITERATIONS = 10

# Operations per number of the output, on a vector unit. Primitives that no table lists count 1.
_OPERATIONS = {
    "exp": 8, "exp2": 8, "log": 8, "log1p": 10, "expm1": 10, "tanh": 10, "logistic": 10,
    "sin": 12, "cos": 12, "tan": 16, "pow": 16, "erf": 12, "erf_inv": 16, "erfc": 14, "atan2": 16,
    "sqrt": 4, "rsqrt": 4, "div": 4, "cbrt": 12, "lgamma": 40, "digamma": 40,
    "threefry2x32": 60, "random_bits": 60,
}  # fmt: skip
# Primitives that compute no number.
_FREE = frozenset(
    {
        "reshape", "broadcast_in_dim", "squeeze", "convert_element_type", "stop_gradient",
        "transpose", "slice", "copy", "copy_p", "random_wrap", "random_unwrap", "iota",
        "concatenate", "pad", "dynamic_slice", "gather", "rev", "split",
    }
)  # fmt: skip


def count_operations(f: Callable[..., Any], *arguments: Any) -> float:
    """Return the work of one call of `f` with arguments of these shapes."""
    return jaxpr_work(jax.make_jaxpr(f)(*arguments).jaxpr)


@cached_by_structure
def equation_work(equation: Any) -> tuple[float, float]:
    """Return the work of g and the work of the source F(t, x, 0, 0) of an `AbstractEquation`."""
    t, x = abstract_point(equation.dim)
    return count_operations(equation.terminal, x), count_operations(
        equation.source, t, x, jax.random.key(0)
    )


def jaxpr_work(jaxpr: Any) -> float:
    """Return the work of one call of a jaxpr."""
    return sum(_count_equation(equation) for equation in jaxpr.eqns)


def _count_equation(equation: Any) -> float:
    """Return the work of one jaxpr equation, inner jaxprs included."""
    name, params = equation.primitive.name, equation.params
    inner = inner_jaxprs(equation)
    if name == "scan":
        return params["length"] * sum(map(jaxpr_work, inner))
    if name == "cond":
        return max(map(jaxpr_work, inner))
    if inner and name != "while":
        return sum(map(jaxpr_work, inner))
    if inner:
        return WHILE_ITERATIONS * sum(map(jaxpr_work, inner))
    size = sum(math.prod(v.aval.shape) for v in equation.outvars)
    if name == "dot_general":
        # A term of the sum counts 1/2. Its multiplication and addition are one fused instruction,
        # and two of these run in the time of one operation.
        (contracted, _), _ = params["dimension_numbers"]
        return size * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted) / 2
    if name in _FREE:
        return 0.0
    if name.startswith("reduce_") or name in ("cumsum", "sort", "argmax", "argmin"):
        return sum(math.prod(v.aval.shape) for v in equation.invars)
    if name == "integer_pow":
        return size * max(1, math.ceil(math.log2(abs(params["y"]) + 1)))
    return _OPERATIONS.get(name, 1) * size
