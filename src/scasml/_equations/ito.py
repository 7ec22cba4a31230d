"""Ito's formula, applied to one primitive of a function after the other.

`apply_ito` takes a function and one process (`Ito`) for each argument. It returns the value, the
noise and the drift of the result. In this module an operand is moving if it is an `Ito`, and noisy
if it is an `Ito` whose noise is not None.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array

from .ito_banded import apply_banded
from .ito_process import (
    Ito,
    Outputs,
    Step,
    dense_noise,
    number_of_directions,
    restrict_to_noisy,
    slope_and_curvature,
    value_and_drift,
)
from .primitives import CALLS, ELEMENTWISE, LINEAR, LINEAR_IN_ONE


def apply_ito(function: Callable[..., Array], *inputs: Ito) -> tuple[Array, Array, Array]:
    """Apply Ito's formula to a function f of arrays that returns one array.

    Let dY = b dt + sum_k S_k dW^k, where b is the drift of Y and the rows S_k are its noise. Then
    f(Y) is an Ito process too, with

        drift   b'   = f'(Y)[b] + 1/2 sum_k f''(Y)[S_k, S_k]
        noise   S'_k = f'(Y)[S_k]

    The jaxpr of f is interpreted: this rule is applied to one jaxpr equation after the other,
    without approximation.

    `inputs` holds one process for each argument; at least one must be noisy. Returns the value, the
    noise as a dense array (directions, *shape of the value), and the drift in the shape of the
    value. The function need not depend on its arguments: noise and drift are then 0.
    """
    closed = jax.make_jaxpr(function)(*(i.value for i in inputs))
    (out,) = _interpret(closed.jaxpr, closed.consts, list(inputs))
    if not isinstance(out, Ito):
        out = Ito(out, None, jnp.zeros_like(out))
    directions = next(number_of_directions(i.noise) for i in inputs if i.noise is not None)
    noise = dense_noise(out.noise)
    if noise is None:
        noise = jnp.zeros((directions, *jnp.shape(out.value)), jnp.result_type(out.value))
    return out.value, noise, out.drift


def _interpret(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr at inputs that are each an `Ito` or an array.

    An output is an `Ito` if it is floating-point and depends on an `Ito`; otherwise it is an array.
    """
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))
    for equation in jaxpr.eqns:
        env.update(zip(equation.outvars, _apply(equation, env, jaxpr), strict=True))
    return [_lookup(v, env) for v in jaxpr.outvars]


def _lookup(variable: Any, env: dict[Any, Any]) -> Any:
    return variable.val if isinstance(variable, Literal) else env[variable]


def _apply(equation: Any, env: dict[Any, Any], jaxpr: Any) -> list[Any]:
    """Evaluate one jaxpr equation of `jaxpr` and return its outputs, as `_interpret` does.

    `env` maps the variables of `jaxpr` to their values, each an `Ito` or an array.
    """
    operands = [_lookup(v, env) for v in equation.invars]
    if any(isinstance(operand, Ito) for operand in operands) and equation.primitive.name in CALLS:
        inner = equation.params["jaxpr"]
        jaxpr, consts = (
            (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
        )
        return _interpret(jaxpr, consts, operands)

    # Make the jaxpr equation a function of its distinct variables: a variable may be two of its
    # operands, as in x * x.
    variables = list(dict.fromkeys(v for v in equation.invars if not isinstance(v, Literal)))
    single = jaxpr.replace(
        constvars=[],
        invars=variables,
        outvars=equation.outvars,
        eqns=[equation],
        effects=equation.effects,
    )
    function = jaxpr_as_fun(ClosedJaxpr(single, ()))
    moving_variables = [v for v in variables if isinstance(env[v], Ito)]
    if not moving_variables:
        return list(function(*(env[v] for v in variables)))
    is_float = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.outvars]

    def of_moving(*values: Array) -> list[Array]:
        replaced = dict(zip(moving_variables, values, strict=True))
        return list(function(*(replaced[v] if v in replaced else env[v] for v in variables)))

    def float_outputs(*values: Array) -> list[Array]:
        return [out for out, keep in zip(of_moving(*values), is_float, strict=True) if keep]

    moving = [env[v] for v in moving_variables]
    # Integers and booleans have no noise and drift, so these outputs are plain arrays.
    outputs = [] if all(is_float) else of_moving(*(each.value for each in moving))
    if not any(is_float):
        return outputs
    processes = _apply_formula(equation, operands, float_outputs, moving)
    if all(is_float):
        return list(processes)
    remaining = iter(processes)
    return [next(remaining) if keep else out for out, keep in zip(outputs, is_float, strict=True)]


def _apply_formula(
    equation: Any, operands: Sequence[Any], f: Outputs, moving: Sequence[Ito]
) -> list[Ito]:
    """Return the floating-point outputs of one jaxpr equation, by the cheapest rule for it.

    Some primitives have a cheap special rule. Any other primitive is differentiated by two nested
    jvps. `operands`, `f` and `moving` are as in `Step`.
    """
    name = equation.primitive.name
    step = Step(name, equation.params, operands, f, moving)
    noisy = step.noisy
    if not noisy:
        values_and_drifts = zip(*value_and_drift(f, moving), strict=True)
        return [Ito(value, None, drift) for value, drift in values_and_drifts]
    if (banded := apply_banded(step)) is not None:
        return [banded]
    operands = [_dense(operand) for operand in operands]
    moving = [_dense(each) for each in moving]
    if (
        name == "dot_general"
        and noisy == [1]
        and not isinstance(operands[0], Ito)
        and _is_matrix_vector(equation)
    ):
        return [_matrix_vector(operands[0], equation.params, *operands[1])]
    if name in LINEAR or (
        name in LINEAR_IN_ONE and len(noisy) == 1 and LINEAR_IN_ONE[name] in (None, noisy[0])
    ):
        return _first_order(f, moving)
    if name in ELEMENTWISE:
        return [_elementwise(lambda v: f(v)[0], *moving[0])]
    return _second_order(f, moving)


def _dense(operand: Any) -> Any:
    """Return an operand, with its noise as a dense array if it is noisy."""
    return (
        operand._replace(noise=dense_noise(operand.noise)) if isinstance(operand, Ito) else operand
    )


def _is_matrix_vector(equation: Any) -> bool:
    """Whether a `dot_general` is the product of a matrix and a vector in one dtype."""
    ((axes, _), batch), (matrix, vector) = (
        equation.params["dimension_numbers"],
        (v.aval for v in equation.invars),
    )
    one_dtype = matrix.dtype == vector.dtype == equation.outvars[0].aval.dtype
    return (
        len(axes) == 1 and batch == ((), ()) and matrix.ndim == 2 and vector.ndim == 1 and one_dtype
    )


def _matrix_vector(matrix: Array, params: dict[str, Any], *parts: Array) -> Ito:
    """Return the process W y for a constant matrix W, such as the network weights of a layer.

    `parts` are the value (n,), the noise (directions, n) and the drift (n,) of y.
    """
    # The vectors are the left factor. In a batch they are the rows of a large matrix, and with this
    # order XLA needs no transpose between layers.
    ((axis,), _), _ = params["dimension_numbers"]
    transposed = matrix.T if axis == 1 else matrix
    product = lambda y: jnp.matmul(y, transposed, precision=params["precision"])
    return Ito(*map(product, parts))


def _first_order(f: Outputs, moving: Sequence[Ito]) -> list[Ito]:
    """Apply the formula to a function that is linear in its noisy operands, taken together."""
    out, drift = value_and_drift(f, moving)
    f, value, noise = restrict_to_noisy(f, moving)
    slopes = jax.vmap(lambda *s: jax.jvp(f, value, s)[1])(*noise)
    return [Ito(*parts) for parts in zip(out, slopes, drift, strict=True)]


def _elementwise(f: Callable[[Array], Array], value: Array, noise: Any, drift: Array) -> Ito:
    """Apply the formula to a function that acts on each entry separately.

    One first and one second derivative per entry are computed, for all directions together.
    """
    one = jnp.ones_like(value)
    (out, d1), (_, d2) = jax.jvp(lambda v: jax.jvp(f, (v,), (one,)), (value,), (one,))
    return Ito(out, d1[None] * noise, d1 * drift + 0.5 * d2 * jnp.sum(noise * noise, 0))


def _second_order(f: Outputs, moving: Sequence[Ito]) -> list[Ito]:
    """Apply the formula to any function, by two nested jvps along each row of the noise."""
    out, drift = value_and_drift(f, moving)
    f, value, noise = restrict_to_noisy(f, moving)
    slopes, curvatures = jax.vmap(lambda *s: slope_and_curvature(f, value, s))(*noise)
    return [
        Ito(o, s, b + 0.5 * jnp.sum(c, 0))
        for o, s, b, c in zip(out, slopes, drift, curvatures, strict=True)
    ]
