"""Ito's formula, one primitive at a time.

If Y is an Ito process, dY = b dt + sum_k S_k dW^k, then so is f(Y), and Ito's formula says which:

    b'   = f'(Y)[b] + 1/2 sum_k f''(Y)[S_k, S_k]
    S'_k = f'(Y)[S_k]

`ito` reads the jaxpr of a function and pushes a process through it by that rule. Nothing is approximate: a primitive
without a rule of its own gets the formula above by two nested jvp's.

S has d rows, yet often most of it is 0. A clock has no noise at all (None). Where sigma is diagonal every coordinate has a
noise of its own (`Own`), and keeps it through functions of one coordinate, or of a few neighbours: up to the first sum over
them S is a few times d numbers instead of d^2.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array

# Neighbours that an entry may depend on while its noises are kept apart.
FEW = 4


class Own(NamedTuple):
    """Entry i along `axis` moves by `scales[s]` with noise i + s, for each shift s, and with no other of the `directions`."""

    scales: dict[int, Array]
    axis: int
    directions: int

    def map(self, linear: Callable[[Array], Array], axis: int) -> "Own":
        return Own(
            {shift: linear(scale) for shift, scale in self.scales.items()}, axis, self.directions
        )

    def rows(self, of_scale: Callable[[Array], Array]) -> Array:
        """Rows of noise, of what has one row for every entry along the axis."""
        return sum(
            _placed(of_scale(scale), shift, self.directions) for shift, scale in self.scales.items()
        )  # pyright: ignore[reportReturnType]


def own(scale: Array) -> Own:
    """A vector whose entries have a noise each."""
    return Own({0: scale}, 0, len(scale))


def _placed(rows: Array, shift: int, directions: int) -> Array:
    """Among as many rows as there are noises, the others 0."""
    return jnp.pad(rows, [(shift, directions - len(rows) - shift), *[(0, 0)] * (rows.ndim - 1)])


class Ito(NamedTuple):
    """A value moving as dY = drift dt + sum_k noise[k] dW^k."""

    value: Array
    noise: Array | Own | None
    drift: Array


def apply_ito(function: Callable[..., Array], *inputs: Ito) -> tuple[Array, Array, Array]:
    """Ito's formula for `function` of one point: value, noise, row by row, and drift."""
    closed = jax.make_jaxpr(function)(*(i.value for i in inputs))
    (out,) = _interpret(closed.jaxpr, closed.consts, list(inputs))
    if not isinstance(out, Ito):
        out = Ito(out, None, jnp.zeros_like(out))
    directions = next(_directions(i.noise) for i in inputs if i.noise is not None)
    noise = _written_out(out.noise)
    if noise is None:
        noise = jnp.zeros((directions, *jnp.shape(out.value)), jnp.result_type(out.value))
    return out.value, noise, out.drift


def _directions(noise: Array | Own) -> int:
    return noise.directions if isinstance(noise, Own) else noise.shape[0]


def _written_out(noise: Array | Own | None) -> Array | None:
    """Row by row."""
    if not isinstance(noise, Own):
        return noise

    def apart(scale: Array) -> Array:
        """Row i has the entries i of the scale, and 0 elsewhere."""
        shape = [1] * scale.ndim
        shape[noise.axis] = count = scale.shape[noise.axis]
        return scale[None] * jnp.eye(count, dtype=scale.dtype).reshape(count, *shape)

    return noise.rows(apart)


# Linear in all operands that carry noise, taken together.
_LINEAR = frozenset(
    [
        "add",
        "add_any",
        "sub",
        "neg",
        "reshape",
        "transpose",
        "broadcast_in_dim",
        "squeeze",
        "expand_dims",
        "concatenate",
        "slice",
        "rev",
        "reduce_sum",
        "convert_element_type",
        "copy",
        "cumsum",
        "real",
        "symbolic_zeros",
        "pad",
        "reduce_precision",
    ]
)
# Linear in one operand when the other carries no noise; `None` means in either.
_LINEAR_IN_ONE: dict[str, int | None] = {
    "mul": None,
    "dot_general": None,
    "conv_general_dilated": None,
    "div": 0,
    "dynamic_slice": 0,
    "gather": 0,
}
# Acts on each entry by itself.
_ELEMENTWISE = frozenset(
    [
        "tanh",
        "exp",
        "exp2",
        "log",
        "log1p",
        "expm1",
        "logistic",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "sqrt",
        "rsqrt",
        "cbrt",
        "erf",
        "erfc",
        "integer_pow",
        "square",
    ]
)
# So do these, on entries of several operands at the same place.
_PLACE_BY_PLACE = _ELEMENTWISE | frozenset(
    [
        "add",
        "add_any",
        "sub",
        "neg",
        "mul",
        "div",
        "pow",
        "max",
        "min",
        "abs",
        "sign",
        "select_n",
        "convert_element_type",
        "copy",
    ]
)
_CALLS = frozenset({"jit", "pjit", "remat", "remat2", "checkpoint"})


def _interpret(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))
    for equation in jaxpr.eqns:
        env.update(zip(equation.outvars, _apply(equation, env, jaxpr), strict=True))
    return [_value(v, env) for v in jaxpr.outvars]


def _value(variable: Any, env: dict[Any, Any]) -> Any:
    return variable.val if isinstance(variable, Literal) else env[variable]


def _apply(equation: Any, env: dict[Any, Any], jaxpr: Any) -> list[Any]:
    operands = [_value(v, env) for v in equation.invars]
    if any(isinstance(operand, Ito) for operand in operands) and equation.primitive.name in _CALLS:
        inner = equation.params["jaxpr"]
        jaxpr, consts = (
            (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
        )
        return _interpret(jaxpr, consts, operands)

    # The equation as a function of its distinct variables: an operand may stand in it twice, as in x * x.
    variables = list(dict.fromkeys(v for v in equation.invars if not isinstance(v, Literal)))
    alone = jaxpr.replace(
        constvars=[],
        invars=variables,
        outvars=equation.outvars,
        eqns=[equation],
        effects=equation.effects,
    )
    function = jaxpr_as_fun(ClosedJaxpr(alone, ()))
    movers = [v for v in variables if isinstance(env[v], Ito)]
    if not movers:
        return list(function(*(env[v] for v in variables)))
    smooth = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.outvars]

    def of_movers(*values: Array) -> list[Array]:
        at = dict(zip(movers, values, strict=True))
        return list(function(*(at[v] if v in at else env[v] for v in variables)))

    def smooth_part(*values: Array) -> list[Array]:
        return [out for out, keep in zip(of_movers(*values), smooth, strict=True) if keep]

    moving = [env[v] for v in movers]
    # Integers and booleans do not move.
    still = [] if all(smooth) else of_movers(*(each.value for each in moving))
    if not any(smooth):
        return still
    outs = _moved(equation, operands, smooth_part, moving)
    if all(smooth):
        return list(outs)
    carried = iter(outs)
    return [next(carried) if keep else out for out, keep in zip(still, smooth, strict=True)]


class _Step(NamedTuple):
    """An equation of a jaxpr; `f` is it as a function of the distinct operands that move."""

    name: str
    params: dict[str, Any]
    operands: Sequence[Any]
    f: Callable[..., list[Array]]
    moving: Sequence[Ito]

    @property
    def noisy(self) -> list[int]:
        """Which operands carry noise."""
        return [
            i
            for i, each in enumerate(self.operands)
            if isinstance(each, Ito) and each.noise is not None
        ]


def _moved(
    equation: Any, operands: Sequence[Any], f: Callable[..., list[Array]], moving: Sequence[Ito]
) -> list[Ito]:
    name = equation.primitive.name
    step = _Step(name, equation.params, operands, f, moving)
    noisy = step.noisy
    if not noisy:
        return [Ito(value, None, drift) for value, drift in zip(*_carried(f, moving), strict=True)]
    if (kept := _with_own(step)) is not None:
        return [kept]
    operands = [_dense(operand) for operand in operands]
    moving = [_dense(each) for each in moving]
    if (
        name == "dot_general"
        and noisy == [1]
        and not isinstance(operands[0], Ito)
        and _is_matrix_vector(equation)
    ):
        return [_matrix_vector(operands[0], equation.params, *operands[1])]
    if name in _LINEAR or (
        name in _LINEAR_IN_ONE and len(noisy) == 1 and _LINEAR_IN_ONE[name] in (None, noisy[0])
    ):
        return _first_order(f, moving)
    if name in _ELEMENTWISE:
        return [_elementwise(lambda v: f(v)[0], *moving[0])]
    return _second_order(f, moving)


def _dense(operand: Any) -> Any:
    return (
        operand._replace(noise=_written_out(operand.noise)) if isinstance(operand, Ito) else operand
    )


def _is_matrix_vector(equation: Any) -> bool:
    ((axes, _), batch), (matrix, vector) = (
        equation.params["dimension_numbers"],
        (v.aval for v in equation.invars),
    )
    one_dtype = matrix.dtype == vector.dtype == equation.outvars[0].aval.dtype
    return (
        len(axes) == 1 and batch == ((), ()) and matrix.ndim == 2 and vector.ndim == 1 and one_dtype
    )


def _matrix_vector(matrix: Array, params: dict[str, Any], *parts: Array) -> Ito:
    """W y for a layer's weights W, with the y's on the left of the product: thousands of them go
    through one W, and XLA then needs no transpose between layers. Half of the whole cost."""
    ((axis,), _), _ = params["dimension_numbers"]
    transposed = matrix.T if axis == 1 else matrix
    product = lambda y: jnp.matmul(y, transposed, precision=params["precision"])
    return Ito(*map(product, parts))


def _carried(
    f: Callable[..., list[Array]], moving: Sequence[Ito]
) -> tuple[list[Array], list[Array]]:
    """The value and f'[b]."""
    return jax.jvp(f, tuple(each.value for each in moving), tuple(each.drift for each in moving))


def _of_noisy(
    f: Callable[..., list[Array]], moving: Sequence[Ito]
) -> tuple[Callable[..., list[Array]], Any, Any]:
    """`f` of those that carry noise, their values and their noises; the others are held."""
    noisy = [i for i, each in enumerate(moving) if each.noise is not None]

    def of_noisy(*values: Array) -> list[Array]:
        at = dict(zip(noisy, values, strict=True))
        return f(*(at.get(i, each.value) for i, each in enumerate(moving)))

    return of_noisy, tuple(moving[i].value for i in noisy), tuple(moving[i].noise for i in noisy)


def _first_order(f: Callable[..., list[Array]], moving: Sequence[Ito]) -> list[Ito]:
    out, moved = _carried(f, moving)
    f, value, noise = _of_noisy(f, moving)
    spread = jax.vmap(lambda *s: jax.jvp(f, value, s)[1])(*noise)
    return [Ito(*parts) for parts in zip(out, spread, moved, strict=True)]


def _elementwise(f: Callable[[Array], Array], value: Array, noise: Any, drift: Array) -> Ito:
    one = jnp.ones_like(value)
    (out, d1), (_, d2) = jax.jvp(lambda v: jax.jvp(f, (v,), (one,)), (value,), (one,))
    return Ito(out, d1[None] * noise, d1 * drift + 0.5 * d2 * jnp.sum(noise * noise, 0))


def _second_order(f: Callable[..., list[Array]], moving: Sequence[Ito]) -> list[Ito]:
    out, moved = _carried(f, moving)
    f, value, noise = _of_noisy(f, moving)
    spread, curved = jax.vmap(lambda *s: _slope_and_curve(f, value, s))(*noise)
    return [
        Ito(o, s, m + 0.5 * jnp.sum(c, 0))
        for o, s, m, c in zip(out, spread, moved, curved, strict=True)
    ]


def _slope_and_curve(
    f: Callable[..., list[Array]], value: Any, along: Any
) -> tuple[list[Array], list[Array]]:
    """f'[s] and f''[s, s]."""
    return jax.jvp(lambda *v: jax.jvp(f, v, along)[1], value, along)


def _with_own(step: _Step) -> Ito | None:
    """Where every coordinate still has a noise of its own; None where the primitive has no rule for that."""
    name, params, operands, f, moving = step
    noises = [operands[i].noise for i in step.noisy]
    if (
        not all(isinstance(noise, Own) for noise in noises)
        or len({noise.axis for noise in noises}) > 1
    ):
        return None
    if len(set().union(*(noise.scales for noise in noises))) > FEW:
        return None
    if name in _PLACE_BY_PLACE:
        return _place_by_place(f, moving)
    if name == "dot_general":
        return _product(step)
    noise, axis = noises[0], noises[0].axis
    shape = next(iter(noise.scales.values())).shape
    if name == "reduce_sum" and axis in params["axes"]:
        others = tuple(i + (i < axis) for i in params["axes"] if i != axis)
        after: Any = noise.rows(lambda scale: jnp.sum(jnp.moveaxis(scale, axis, 0), others))
    elif (new := _axis_after(name, params, shape, axis)) is not None:
        after = noise.map(lambda scale: jax.jvp(f, (moving[0].value,), (scale,))[1][0], new)
        if name == "slice":
            start = params["start_indices"][axis]
            after = after._replace(
                scales={shift + start: scale for shift, scale in after.scales.items()}
            )
    else:
        return None
    (out,), (moved,) = _carried(f, moving)
    return Ito(out, after, moved)


def _place_by_place(f: Callable[..., list[Array]], moving: Sequence[Ito]) -> Ito:
    """Noise i + s meets entry i alone: one shift after the other."""
    (out,), (moved,) = _carried(f, moving)
    f, value, noises = _of_noisy(f, moving)
    scales = {}
    for shift in sorted(set().union(*(noise.scales for noise in noises))):
        along = tuple(
            noise.scales.get(shift, jnp.zeros_like(v))
            for noise, v in zip(noises, value, strict=True)
        )
        (scales[shift],), (curve,) = _slope_and_curve(f, value, along)
        moved = moved + 0.5 * curve
    return Ito(out, Own(scales, noises[0].axis, noises[0].directions), moved)


def _axis_after(name: str, params: dict[str, Any], shape: tuple[int, ...], axis: int) -> int | None:
    """Where the axis of the coordinates is after a primitive that only moves entries about; None if it is lost."""
    match name:
        case "reduce_sum":
            return axis - sum(i < axis for i in params["axes"])
        case "squeeze":
            return (
                None
                if axis in params["dimensions"]
                else axis - sum(i < axis for i in params["dimensions"])
            )
        case "transpose":
            return params["permutation"].index(axis)
        case "slice":
            return axis if params["strides"] is None or params["strides"][axis] == 1 else None
        case "broadcast_in_dim":
            new = params["broadcast_dimensions"][axis]
            return new if params["shape"][new] == shape[axis] else None
        case _:
            return None


def _product(step: _Step) -> Ito | None:
    """A sum over the coordinates of products: row k of the noise is the k-th of them."""
    contracted, batch = step.params["dimension_numbers"]
    operands, noisy = step.operands, step.noisy
    if batch != ((), ()) or any(contracted[i] != (operands[i].noise.axis,) for i in noisy):
        return None
    front = lambda i, a: jnp.moveaxis(a, contracted[i][0], 0)
    first, second = (
        front(i, each.value if isinstance(each, Ito) else each) for i, each in enumerate(operands)
    )
    (out,), (moved,) = _carried(step.f, step.moving)
    noise = jnp.zeros((), out.dtype)
    if 0 in noisy:
        noise = noise + operands[0].noise.rows(
            lambda scale: _outer(front(0, scale), second)
        ).astype(out.dtype)
    if 1 in noisy:
        noise = noise + operands[1].noise.rows(lambda scale: _outer(first, front(1, scale))).astype(
            out.dtype
        )
    if len(noisy) == 2:
        one, other = (operands[i].noise.scales for i in noisy)
        for shift in sorted(one.keys() & other.keys()):
            moved = moved + jnp.sum(_outer(front(0, one[shift]), front(1, other[shift])), 0).astype(
                out.dtype
            )
    return Ito(out, noise, moved)


def _outer(a: Array, b: Array) -> Array:
    """Of each k, over all other axes."""
    return a.reshape(a.shape + (1,) * (b.ndim - 1)) * b.reshape(
        b.shape[:1] + (1,) * (a.ndim - 1) + b.shape[1:]
    )
