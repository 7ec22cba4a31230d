"""The walker over jaxprs: what it finds, and what it takes to depend on what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scasml._support.jaxprs import (
    any_equation,
    contains_primitive,
    follow,
    inner_jaxprs,
    inputs_read,
    outputs_depend_on,
)


def jaxpr_of(function, *arguments):
    return jax.make_jaxpr(function)(*arguments).jaxpr


CALLS = {
    "jit": lambda x: jax.jit(jnp.sin)(x),
    "checkpoint": lambda x: jax.checkpoint(jnp.sin)(x),
    "scan": lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)[0],
    "cond": lambda x: jax.lax.cond(x > 0, jnp.sin, jnp.cos, x),
    "while": lambda x: jax.lax.while_loop(lambda c: c > 0, jnp.sin, x),
    "nested": lambda x: jax.jit(lambda y: jax.checkpoint(jnp.sin)(y))(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_primitives_of_inner_jaxprs_are_found(name):
    jaxpr = jaxpr_of(CALLS[name], 1.0)
    assert any(inner_jaxprs(equation) for equation in jaxpr.eqns)
    assert contains_primitive(jaxpr, {"sin"})
    assert not contains_primitive(jaxpr, {"tan", "cholesky"})


def test_an_equation_of_cond_holds_all_branches():
    (equation,) = (e for e in jaxpr_of(CALLS["cond"], 1.0).eqns if e.primitive.name == "cond")
    assert len(inner_jaxprs(equation)) == 2


class TestMarkedInputs:
    def test_a_predicate_sees_which_operands_are_marked(self):
        jaxpr = jaxpr_of(lambda x, y: jnp.where(x > 0, y, -y), 1.0, 2.0)
        selects_by = lambda equation, operands: (
            equation.primitive.name == "select_n" and operands[0]
        )
        assert any_equation(jaxpr, selects_by, [True, False])
        assert not any_equation(jaxpr, selects_by, [False, True])

    def test_a_call_keeps_its_outputs_separate(self):
        """jit is entered, so each of its outputs depends on its own operands only."""
        jaxpr = jaxpr_of(lambda x, y: jax.jit(lambda a, b: (a + 1, b + 1))(x, y), 1.0, 2.0)
        assert follow(jaxpr, [True, False]) == [True, False]
        assert follow(jaxpr, [True, False], enter=False) == [True, True]

    def test_the_outputs_of_a_loop_depend_on_all_operands(self):
        double = lambda carry, _: ((2 * carry[0], 2 * carry[1]), None)
        loop = lambda x, y: jax.lax.scan(double, (x, y), None, length=2)[0]
        assert follow(jaxpr_of(loop, 1.0, 2.0), [True, False]) == [True, True]

    def test_constants_are_not_marked(self):
        jaxpr = jaxpr_of(lambda x: jnp.asarray(np.arange(3.0)) + 1, 1.0)
        assert follow(jaxpr, [True]) == [False]


def test_inputs_read():
    """An input counts if any equation reads it, whether or not the result is used."""

    def function(t, x, u, z):
        _ = jnp.sum(z)
        return 0 * u + x[0]

    assert inputs_read(jaxpr_of(function, 0.0, jnp.ones(2), 1.0, jnp.ones(2))) == [
        False,
        True,
        True,
        True,
    ]
    assert inputs_read(jaxpr_of(lambda t, u: u, 0.0, 1.0)) == [False, True]
    assert inputs_read(jaxpr_of(lambda t, u: 2.0, 0.0, 1.0)) == [False, False]


def test_outputs_depend_on():
    def function(x, y):
        _ = jnp.sin(y)
        return x * 2

    jaxpr = jaxpr_of(function, 1.0, 2.0)
    assert outputs_depend_on(jaxpr, [True, False])
    assert not outputs_depend_on(jaxpr, [False, True])
