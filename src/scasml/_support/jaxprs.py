"""A walker over jaxprs, and the questions that the library answers with it.

The functions take an open jaxpr (`jax.make_jaxpr(f)(...).jaxpr`) and return booleans. The answers
are conservative: True means that something can happen, False that it cannot. In this module,
"equation" always means a jaxpr equation.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Primitives whose inner jaxprs run several times, or perhaps not at all.
_CONTROL_FLOW = frozenset({"scan", "while", "cond"})


def inner_jaxprs(equation: Any) -> list[Jaxpr]:
    """Return the jaxprs that an equation holds in its parameters, without those inside them.

    The equations of some primitives, such as `jit` and `scan`, hold inner jaxprs.
    """
    is_jaxpr = lambda p: isinstance(p, Jaxpr | ClosedJaxpr)
    parameters = jax.tree.leaves(equation.params, is_leaf=is_jaxpr)
    return [p.jaxpr if isinstance(p, ClosedJaxpr) else p for p in parameters if is_jaxpr(p)]


def follow(
    jaxpr: Jaxpr,
    marked: Sequence[bool],
    visit: Callable[[Any, list[bool]], None] = lambda equation, operands: None,
    *,
    enter: bool = True,
) -> list[bool]:
    """Follow marked inputs through a jaxpr and return which outputs can depend on them.

    A jaxpr is the record of a traced function: a list of equations, each of which applies one
    primitive to variables.

    `marked` has one flag per input, and the result has one flag per output. For each equation,
    `visit(equation, operands)` is called; `operands` has one flag per operand, which is true if the
    operand depends on a marked input. Inner jaxprs are followed too, unless `enter` is False. Each
    output of an equation is assumed to depend on all its operands, except where an inner jaxpr that
    is called once shows that it does not.
    """
    marks = dict(zip(jaxpr.invars, marked, strict=True))
    is_marked = lambda v: not isinstance(v, Literal) and marks.get(v, False)
    for equation in jaxpr.eqns:
        operands = [is_marked(v) for v in equation.invars]
        visit(equation, operands)
        outputs = [any(operands)] * len(equation.outvars)
        for inner in inner_jaxprs(equation) if enter else ():
            is_call = (
                len(inner.invars) == len(operands) and equation.primitive.name not in _CONTROL_FLOW
            )
            inner_marked = operands if is_call else [any(operands)] * len(inner.invars)
            inner_outputs = follow(inner, inner_marked, visit)
            if is_call and len(inner_outputs) == len(outputs):
                outputs = inner_outputs
        marks.update(zip(equation.outvars, outputs, strict=True))
    return [is_marked(v) for v in jaxpr.outvars]


def any_equation(
    jaxpr: Jaxpr, predicate: Callable[[Any, list[bool]], bool], marked: Sequence[bool]
) -> bool:
    """Whether `predicate(equation, operands)` is true for any equation, inner jaxprs included.

    `marked` and `operands` are flags as in `follow`.
    """
    results: list[bool] = []
    follow(jaxpr, marked, lambda equation, operands: results.append(predicate(equation, operands)))
    return any(results)


def contains_primitive(jaxpr: Jaxpr, names: Collection[str]) -> bool:
    """Whether a primitive with one of the `names` occurs, inner jaxprs included."""
    unmarked = [False] * len(jaxpr.invars)
    return any_equation(jaxpr, lambda equation, _: equation.primitive.name in names, unmarked)


def inputs_read(jaxpr: Jaxpr) -> list[bool]:
    """For each input, whether an equation of the jaxpr reads it or the jaxpr returns it.

    An input counts as read even if the result of the equation is multiplied by zero or not used.
    """
    count = len(jaxpr.invars)
    one_marked = [[i == j for j in range(count)] for i in range(count)]
    read: list[bool] = []
    for marked in one_marked:
        seen: list[bool] = []
        outputs = follow(
            jaxpr, marked, lambda _, operands, seen=seen: seen.extend(operands), enter=False
        )
        read.append(any(seen) or any(outputs))
    return read


def outputs_depend_on(jaxpr: Jaxpr, marked: Sequence[bool]) -> bool:
    """Whether any output can depend on a marked input.

    Inner jaxprs are not entered: each output of an equation depends on all its operands.
    """
    return any(follow(jaxpr, marked, enter=False))
