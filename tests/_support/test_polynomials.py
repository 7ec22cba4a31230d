"""The degrees of the outputs of a jaxpr: one rule at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from scasml._support.polynomials import output_degrees

V = jnp.ones(3)


def degrees_of(function, *arguments, degrees):
    return output_degrees(jax.make_jaxpr(function)(*arguments).jaxpr, degrees)


@jax.custom_jvp
def with_jvp(v):
    return v * v


with_jvp.defjvp(lambda primals, tangents: (with_jvp(*primals), 2 * primals[0] * tangents[0]))


@jax.custom_vjp
def with_vjp(v):
    return v * v


with_vjp.defvjp(lambda v: (v * v, v), lambda v, slope: (2 * v * slope,))


def through_reference(v, c):
    """A state that is written and read."""
    reference = jax.new_ref(jnp.zeros(3))
    reference[...] = v
    return reference[...]


def through_frozen_reference(v, c):
    reference = jax.new_ref(jnp.zeros(3))
    jax.jit(lambda r, v: r.__setitem__(..., jnp.sin(v)))(reference, v)
    return jax.freeze(reference)


# A function of v, of degree 1, and of a constant vector c, and its degree.
RULES = {
    "identity": (lambda v, c: v, 1),
    "constant": (lambda v, c: c, 0),
    "literal": (lambda v, c: 2.0, 0),
    "traced constant": (lambda v, c: jnp.asarray(np.arange(3.0)) + c, 0),
    "add": (lambda v, c: v + c - 2 * v, 1),
    "neg": (lambda v, c: -v, 1),
    "mul": (lambda v, c: v * v * c, 2),
    "square": (lambda v, c: jnp.square(v * v), 4),
    "integer_pow": (lambda v, c: (v * v) ** 5, 10),
    "zeroth power": (lambda v, c: jax.lax.integer_pow(v, 0), 0),
    "negative power": (lambda v, c: v**-1, None),
    "negative power of a constant": (lambda v, c: c**-1 * v, 1),
    "real power": (lambda v, c: v**2.5, None),
    "power of a constant": (lambda v, c: c**2.5 * v, 1),
    "exponent": (lambda v, c: c**v, None),
    "div": (lambda v, c: v / (1 + c), 1),
    "div by input": (lambda v, c: c / v, None),
    "cancelled": (lambda v, c: v * v / v, None),
    "dot": (lambda v, c: v @ c, 1),
    "dot of both": (lambda v, c: (v * v) @ v, 3),
    "matrix": (lambda v, c: v @ jnp.outer(c, c) @ v, 2),
    "einsum": (lambda v, c: jnp.einsum("i,j,k->", v, v, c), 2),
    "convolve": (lambda v, c: jnp.convolve(v * v, c), 2),
    "sum": (lambda v, c: jnp.sum(v), 1),
    "mean": (lambda v, c: jnp.mean(v * v), 2),
    "cumsum": (lambda v, c: jnp.cumsum(v), 1),
    "cumprod": (lambda v, c: jnp.cumprod(v), None),
    "prod": (lambda v, c: jnp.prod(v), None),
    "shapes": (lambda v, c: jnp.concatenate([v[None], v[None]]).T.reshape(-1)[::2], 1),
    "roll": (lambda v, c: jnp.roll(v, 1) * v, 2),
    "pad and tile": (lambda v, c: jnp.tile(jnp.pad(v, 1), 2), 1),
    "split": (lambda v, c: jnp.split(v, [1])[1], 1),
    "stack": (lambda v, c: jnp.stack([v * v, c]), 2),
    "unstack": (lambda v, c: jnp.unstack(v)[1], 1),
    "outer": (lambda v, c: jnp.trace(jnp.outer(v, v)), 2),
    "diag": (lambda v, c: jnp.diag(v), 1),
    "gather": (lambda v, c: v[jnp.array([0, 2, 0])], 1),
    "index from a constant": (lambda v, c: v[jnp.argmax(c)], 1),
    "index from input": (lambda v, c: c[jnp.argmax(v)], None),
    "index from rounding": (lambda v, c: c[v[0].astype(int)], None),
    "scatter": (lambda v, c: c.at[0].set(v[1]), 1),
    "scatter-add": (lambda v, c: c.at[0].add(v[1] * v[2]), 2),
    "scatter-sub": (lambda v, c: v.at[0].subtract(c[1]), 1),
    "scatter-mul": (lambda v, c: v.at[0].multiply(v[1]), None),
    "update": (lambda v, c: jax.lax.dynamic_update_slice(c, v[:1], (jnp.argmin(c),)), 1),
    "select by constant": (lambda v, c: jnp.where(c > 0, v * v, c), 2),
    "select by input": (lambda v, c: jnp.where(v > 0, c, c), None),
    "comparison": (lambda v, c: (v > 0) * c, None),
    "sin": (lambda v, c: jnp.sin(v), None),
    "sin of a constant": (lambda v, c: jnp.sin(c) * v, 1),
    "max": (lambda v, c: jnp.maximum(v, c), None),
    "max of constants": (lambda v, c: jnp.maximum(jnp.max(c), c) * v, 1),
    "clip": (lambda v, c: jnp.clip(v, -1, 1), None),
    "abs": (lambda v, c: jnp.abs(v), None),
    "norm": (lambda v, c: jnp.linalg.norm(v), None),
    "sort": (lambda v, c: jnp.sort(v), None),
    "floor": (lambda v, c: jnp.floor(v), None),
    "half precision": (lambda v, c: v.astype(jnp.float16).astype(v.dtype), None),
    "half precision of a constant": (lambda v, c: c.astype(jnp.float16).astype(v.dtype) * v, 1),
    "to integers": (lambda v, c: v.astype(int) * c, None),
    "complex": (lambda v, c: jnp.real(v * 1j), None),
    "stop_gradient": (lambda v, c: jax.lax.stop_gradient(v), None),
    "gradient": (lambda v, c: jax.grad(lambda w: jnp.sum(w**3 * c))(v), 2),
    "unknown, not used": (lambda v, c: (jnp.sin(v), v)[1], 1),
    "jit": (jax.jit(lambda v, c: v * v), 2),
    "nested jit": (jax.jit(lambda v, c: jax.jit(jnp.sin)(c) * jax.jit(jnp.square)(v)), 2),
    "sin in jit": (jax.jit(lambda v, c: jnp.sin(v)), None),
    "checkpoint": (jax.checkpoint(lambda v, c: v * c), 1),
    "scan": (lambda v, c: jax.lax.scan(lambda a, b: (a + b, None), 0.0 * v[0], v)[0], None),
    "scan of constants": (lambda v, c: jnp.polyval(c, c) * v, 1),
    "while": (lambda v, c: jax.lax.while_loop(lambda a: a[0] < 9, lambda a: a + v, c), None),
    "while of constants": (
        lambda v, c: jax.lax.while_loop(lambda a: a[0] < 9, lambda a: a + 1, c) * v,
        1,
    ),
    "cond": (lambda v, c: jax.lax.cond(c[0] > 0, lambda v: v, lambda v: -v, v), None),
    "cond of constants": (lambda v, c: jax.lax.cond(c[0] > 0, jnp.sin, jnp.cos, c) * v, 1),
    "custom_jvp": (lambda v, c: with_jvp(v), 2),
    "relu": (lambda v, c: jax.nn.relu(v), None),
    "custom_vjp": (lambda v, c: with_vjp(v), None),
    "custom_vjp of constants": (lambda v, c: with_vjp(c) * v, 1),
    "pure_callback": (lambda v, c: jax.pure_callback(lambda v: v, v, v), None),
    "io_callback of constants": (lambda v, c: io_callback(lambda c: c, c, c), None),
    "reference": (through_reference, None),
    "frozen reference": (through_frozen_reference, None),
    "print": (lambda v, c: (jax.debug.print("{}", v), v)[1], 1),
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name):
    function, degree = RULES[name]
    assert degrees_of(function, V, V, degrees=[1, 0]) == [degree]


def test_each_output_of_a_call_has_its_own_degree():
    function = lambda u, v: jax.jit(lambda a, b: (a + 1, a * b, jnp.sin(b), jnp.cos(1.0)))(u, v)
    assert degrees_of(function, 1.0, 2.0, degrees=[1, 0]) == [1, 1, 0, 0]
    assert degrees_of(function, 1.0, 2.0, degrees=[0, 1]) == [0, 1, None, 0]
    assert degrees_of(function, 1.0, 2.0, degrees=[None, 3]) == [None, None, None, 0]


def test_degrees_of_inputs_are_added():
    assert degrees_of(lambda u, v: u**2 * v, 1.0, 2.0, degrees=[3, 5]) == [11]
