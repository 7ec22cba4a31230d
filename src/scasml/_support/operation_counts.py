"""How much work a function is, counted off its jaxpr: the same on every machine and in every run, which no clock is.

A multiplication or an addition of one number counts 1, an exponential or its like as many as it takes on a vector unit, a product of
matrices a quarter of its multiplications and additions, which are fused, and two of them done where anything else does one (12 to 15 a ns, of all of these). Loops count as often as they run.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from .tracing import cached_by_structure

# A random number, turned and made normal (8 to 20 ns, where a network does 15 operations a ns); and how much more a value and its slope are than the value.
NORMAL_WORK, REVERSE_FACTOR = 150.0, 3.0
# In units of one addition, on one number.
_DEAR = {
    "exp": 8, "exp2": 8, "log": 8, "log1p": 10, "expm1": 10, "tanh": 10, "logistic": 10, "sin": 12, "cos": 12, "tan": 16, "pow": 16,
    "erf": 12, "erf_inv": 16, "erfc": 14, "atan2": 16, "sqrt": 4, "rsqrt": 4, "div": 4, "cbrt": 12, "lgamma": 40, "digamma": 40,
    "threefry2x32": 60, "random_bits": 60,
}  # fmt: skip
_FREE = frozenset(
    {
        "reshape", "broadcast_in_dim", "squeeze", "convert_element_type", "stop_gradient", "transpose", "slice", "copy", "copy_p",
        "random_wrap", "random_unwrap", "iota", "concatenate", "pad", "dynamic_slice", "gather", "rev", "split",
    }
)  # fmt: skip


def count_operations(f: Callable[..., Any], *arguments: Any) -> float:
    """Of one call with arguments of these shapes."""
    return _count(jax.make_jaxpr(f)(*arguments).jaxpr)


@cached_by_structure
def equation_work(equation: Any) -> tuple[float, float]:
    """Of g and of F(t, x, 0, 0)."""
    t, x = jnp.zeros(()), jnp.zeros(equation.dim)
    return count_operations(equation.terminal, x), count_operations(
        equation.source, t, x, jax.random.key(0)
    )


def _count(jaxpr: Any) -> float:
    return sum(_of(equation) for equation in jaxpr.eqns)


def _of(equation: Any) -> float:
    name, params = equation.primitive.name, equation.params
    inner = [
        p.jaxpr if isinstance(p, ClosedJaxpr) else p
        for p in jax.tree.leaves(params, is_leaf=lambda p: isinstance(p, Jaxpr | ClosedJaxpr))
        if isinstance(p, Jaxpr | ClosedJaxpr)
    ]
    if name == "scan":
        return params["length"] * sum(map(_count, inner))
    if name == "cond":
        return max(map(_count, inner))
    if inner and name != "while":
        return sum(map(_count, inner))
    if inner:  # of unknown length
        return 10 * sum(map(_count, inner))
    size = sum(math.prod(v.aval.shape) for v in equation.outvars)
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return size * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted) / 2
    if name in _FREE:
        return 0.0
    if name.startswith("reduce_") or name in ("cumsum", "sort", "argmax", "argmin"):
        return sum(math.prod(v.aval.shape) for v in equation.invars)
    if name == "integer_pow":
        return size * max(1, math.ceil(math.log2(abs(params["y"]) + 1)))
    return _DEAR.get(name, 1) * size
