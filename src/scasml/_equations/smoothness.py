"""What the code of g and F says about their smoothness, without running them.

An equation comes in. Booleans come out: whether g or F may be rough, and whether F is affine in u
and z. The degree of F as a polynomial in u and z comes out too. A function is rough if it has a
kink or a discontinuity.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr
from jaxtyping import Array

from .._support.jaxprs import any_equation, outputs_depend_on
from .._support.polynomials import output_degrees
from .._support.tracing import abstract_point, cached_by_structure
from .base import AbstractEquation, Solution

# Primitives that can have a kink or a discontinuity. `_is_rough` treats two more primitives.
_ROUGH = frozenset(
    {
        "max", "min", "abs", "sign", "floor", "ceil", "round", "rem", "clamp", "sort", "top_k",
        "is_finite", "reduce_max", "reduce_min", "argmax", "argmin", "cummax", "cummin",
        "eq", "ne", "lt", "le", "gt", "ge", "cond", "while", "pure_callback", "custom_vjp_call",
    }
)  # fmt: skip


@cached_by_structure
def terminal_may_be_rough(equation: AbstractEquation) -> bool:
    """Whether the code of g has a primitive that can make g rough in x.

    A pathwise derivative of g misses what happens at a discontinuity, and a second derivative
    misses what happens at a kink.
    """
    _, x = abstract_point(equation.dim)
    return any_equation(jax.make_jaxpr(equation.terminal)(x).jaxpr, _is_rough, [True])


@cached_by_structure
def nonlinearity_may_be_rough(equation: AbstractEquation) -> bool:
    """Whether the code of F has a primitive that can make F rough in x, u or z.

    Where the residual is differentiated, F must be as smooth as g; see `terminal_may_be_rough`.
    """
    return _difference_may_be_rough(equation, [False, True, True, True])


@cached_by_structure
def may_have_kinks(equation: AbstractEquation) -> bool:
    """Whether the code of F has a primitive that can make F rough in u or z."""
    return _difference_may_be_rough(equation, [False, False, True, True])


@cached_by_structure
def is_affine(equation: AbstractEquation) -> bool:
    """Whether F is affine in u and z: the code of its derivatives in u and z reads neither.

    The answer is conservative: F = u * u / u counts as not affine.
    """
    t, x = abstract_point(equation.dim)

    def slopes(t: Array, x: Array, u: Array, z: Array) -> Solution:
        difference = lambda new: equation.difference(t, x, new, Solution.zero(t, x))
        return jax.grad(difference)(Solution(u, z))

    jaxpr = jax.make_jaxpr(slopes)(t, x, t, x).jaxpr
    return not outputs_depend_on(jaxpr, [False, False, True, True])


@cached_by_structure
def polynomial_degree(equation: AbstractEquation) -> int | None:
    """Return the degree of F as a polynomial in u and z together, or None.

    The answer is conservative: it is an upper bound, and None if the code of F does not show that F
    is a polynomial. F = u * u / u has None, and F = u - u has 1.
    """
    (degree,) = output_degrees(_difference_jaxpr(equation), [0, 0, 1, 1])
    return degree


def _difference_may_be_rough(equation: AbstractEquation, marked: list[bool]) -> bool:
    """Whether F(t, x, u, z) - F(t, x, 0, 0) may be rough in its marked arguments.

    `marked` has one flag for each of t, x, u and z.
    """
    return any_equation(_difference_jaxpr(equation), _is_rough, marked)


def _difference_jaxpr(equation: AbstractEquation) -> Jaxpr:
    """Return the jaxpr of F(t, x, u, z) - F(t, x, 0, 0) as a function of t, x, u and z."""
    t, x = abstract_point(equation.dim)
    difference = lambda t, x, u, z: equation.difference(t, x, Solution(u, z), Solution.zero(t, x))
    return jax.make_jaxpr(difference)(t, x, t, x).jaxpr


def _is_rough(equation: Any, operands: list[bool]) -> bool:
    """Whether a jaxpr equation can be rough in its marked operands, given one flag for each."""
    name = equation.primitive.name
    if name == "select_n":
        # A selection whose predicate does not depend on a marked input makes no kink.
        return operands[0]
    if name == "convert_element_type":
        # A change of precision is smooth. A conversion from booleans or integers is not.
        return operands[0] and not jnp.issubdtype(equation.invars[0].aval.dtype, jnp.floating)
    return name in _ROUGH and any(operands)
