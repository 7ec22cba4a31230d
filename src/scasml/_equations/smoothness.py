"""How smooth the terminal condition is where paths end: with jumps, with kinks, or neither.

A path derivative of g misses what happens at a jump, and a second one what happens at a kink, of g
or, once a surrogate has put F(t, x, uh, zh) into the residual, of F. Where
the code of g holds nothing that could make either, nothing is run. Otherwise the segment between two
simulated end states is bisected thirty times toward the half in which g (or its slope along the
segment) changes more: the change dies away with the segment unless g jumps (or its slope does).
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array
from numpy.typing import NDArray

from .._support.tracing import cached_by_structure
from ..paths import AbstractPathLaw
from .problem import AbstractEquation, Solution

SMOOTH, KINKS, JUMPS = 0, 1, 2

SEGMENTS = 128
BISECTIONS = 30
# Of the largest change seen. A Lipschitz function changes by 2^-30 of it, and less if that is where it is flat.
REMAINS = 1e-6

_ROUGH = frozenset(
    [
        "max",
        "min",
        "abs",
        "sign",
        "floor",
        "ceil",
        "round",
        "rem",
        "clamp",
        "sort",
        "top_k",
        "is_finite",
        "reduce_max",
        "reduce_min",
        "argmax",
        "argmin",
        "cummax",
        "cummin",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "cond",
        "while",
        "pure_callback",
        "custom_vjp_call",
    ]
)


@cached_by_structure
def terminal_may_be_rough(equation: AbstractEquation) -> bool:
    """Whether the code of g holds a primitive that could make a kink or a jump in x."""
    x = jax.ShapeDtypeStruct((equation.dim,), jnp.result_type(float))
    return _search(jax.make_jaxpr(equation.terminal)(x).jaxpr, [True])[0]


@cached_by_structure
def nonlinearity_may_be_rough(equation: AbstractEquation) -> bool:
    """The same of F, in x, u and z."""
    return _searched(equation, [False, True, True, True])


@cached_by_structure
def may_have_kinks(equation: AbstractEquation) -> bool:
    """The same of F, in u and z."""
    return _searched(equation, [False, False, True, True])


def _searched(equation: AbstractEquation, moving: Sequence[bool]) -> bool:
    scalar, vector = (
        jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in ((), (equation.dim,))
    )
    less_zero = lambda t, x, u, z: equation.difference(
        t, x, Solution(u, z), Solution(jnp.zeros_like(u), jnp.zeros_like(z))
    )
    return _search(jax.make_jaxpr(less_zero)(scalar, vector, scalar, vector).jaxpr, moving)[0]


def _search(jaxpr: Any, moving: Sequence[bool]) -> tuple[bool, list[bool]]:
    """Whether a rough primitive is applied to anything that moves with the inputs that do; and which outputs move."""
    moves = dict(zip(jaxpr.invars, moving, strict=True))
    is_moving = lambda v: not isinstance(v, Literal) and moves.get(v, False)
    rough = False
    for equation in jaxpr.eqns:
        operands = [is_moving(v) for v in equation.invars]
        name, outs = equation.primitive.name, [any(operands)] * len(equation.outvars)
        if name == "select_n":
            rough |= operands[0]  # a choice that does not depend on x is no kink
        elif name == "convert_element_type":
            # A change of precision is smooth; one from booleans or integers is not.
            rough |= operands[0] and not jnp.issubdtype(equation.invars[0].aval.dtype, jnp.floating)
        elif name in _ROUGH:
            rough |= any(operands)
        for inner in jax.tree.leaves(
            equation.params, is_leaf=lambda p: isinstance(p, Jaxpr | ClosedJaxpr)
        ):
            inner = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
            if isinstance(inner, Jaxpr):
                same = len(inner.invars) == len(operands) and name not in ("scan", "while", "cond")
                found, inner_outs = _search(
                    inner, operands if same else [any(operands)] * len(inner.invars)
                )
                rough |= found
                outs = inner_outs if same and len(inner_outs) == len(outs) else outs
        moves.update(zip(equation.outvars, outs, strict=True))
    return rough, [is_moving(v) for v in jaxpr.outvars]


class Probe(eqx.Module):
    """Of one point: what is left of the changes of g, and of its slope, on the segments between ends of paths."""

    equation: AbstractEquation
    paths: AbstractPathLaw

    def __call__(self, s: Array, x: Array, key: Array) -> tuple[Array, Array]:
        equation = self.equation
        end = lambda key: self.paths.jump(key, s, x, equation.horizon - s, False).x
        ends = jax.vmap(end)(
            jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"), 2 * SEGMENTS)
        )
        value = lambda a, b, c: equation.terminal(a + c * (b - a))
        slope = lambda a, b, c: jax.jvp(lambda c: value(a, b, c), (c,), (jnp.ones_like(c),))[1]
        return _remains(value, ends), _remains(slope, ends)


class SlopeProbe(eqx.Module):
    """Of one point: what is left of the changes of the slopes of F in u and z, at the surrogate, between states of paths at random times."""

    equation: AbstractEquation
    paths: AbstractPathLaw

    def __call__(self, s: Array, x: Array, key: Array) -> Array:
        equation = self.equation

        def state(key: Array) -> Array:
            key_path, key_time = jax.random.split(key)
            duration = (equation.horizon - s) * jax.random.uniform(key_time, (), x.dtype)
            return jnp.append(self.paths.jump(key_path, s, x, duration, False).x, s + duration)

        def slopes(a: Array, b: Array, c: Array) -> Array:
            at = a + c * (b - a)
            t = at[-1]
            nothing = Solution(jnp.zeros_like(t), jnp.zeros_like(x))
            of_u, of_z = jax.grad(lambda new: equation.difference(t, at[:-1], new, nothing))(
                nothing
            )
            return of_u + of_z @ jnp.cos(jnp.arange(len(x), dtype=x.dtype))

        keys = jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"), 2 * SEGMENTS)
        return _remains(slopes, jax.vmap(state)(keys))


def _remains(f: Callable[[Array, Array, Array], Array], ends: Array) -> Array:
    """The largest change of f that is left on a segment after bisection, over the largest before."""

    def bisect(a: Array, b: Array) -> tuple[Array, Array]:
        def step(
            _: Any, held: tuple[Array, Array, Array, Array]
        ) -> tuple[Array, Array, Array, Array]:
            low, high, at_low, at_high = held
            middle = (low + high) / 2
            at_middle = f(a, b, middle)
            left = jnp.abs(at_middle - at_low) > jnp.abs(at_high - at_middle)
            return (
                jnp.where(left, low, middle),
                jnp.where(left, middle, high),
                jnp.where(left, at_low, at_middle),
                jnp.where(left, at_middle, at_high),
            )

        zero, one = jnp.zeros(()), jnp.ones(())
        at_a, at_b = f(a, b, zero), f(a, b, one)
        _, _, low, high = jax.lax.fori_loop(0, BISECTIONS, step, (zero, one, at_a, at_b))
        return jnp.abs(high - low), jnp.maximum(jnp.abs(at_a), jnp.abs(at_b))

    left, size = jax.vmap(bisect)(ends[:SEGMENTS], ends[SEGMENTS:])
    return jnp.max(left) / jnp.maximum(jnp.max(size), jnp.finfo(size.dtype).tiny)


def classify(value: NDArray[Any], slope: NDArray[Any]) -> NDArray[np.int64]:
    """SMOOTH, KINKS or JUMPS, from what a `Probe` in float64 finds left."""
    return np.where(value > REMAINS, JUMPS, np.where(slope > REMAINS, KINKS, SMOOTH))
