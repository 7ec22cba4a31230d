"""Work, counted in operations from the code of a function."""

import jax
import jax.numpy as jnp

import scasml
from scasml import problems
from scasml._support.operation_counts import count_operations


def test_products():
    a, b = jnp.zeros((3, 4)), jnp.zeros((4, 5))
    assert count_operations(lambda a, b: a @ b, a, b) == 3 * 4 * 5 / 2


def test_loops_count_once_per_iteration():
    one = count_operations(lambda x: x + 1.0, jnp.zeros(7))
    many = count_operations(
        lambda x: jax.lax.fori_loop(0, 10, lambda i, x: x + 1.0, x), jnp.zeros(7)
    )
    assert one == 7
    assert many >= 70
    assert count_operations(lambda x: jax.jit(lambda x: x + 1.0)(x), jnp.zeros(7)) == 7


def test_a_residual_takes_more_work_than_a_value():
    problem = problems.hjb(20)
    model = scasml.surrogates.wrap(lambda t, x: jnp.log(1 + x @ x) + t, problem)
    defect = scasml.Defect(problem, model)
    t, x, key = jnp.zeros(()), jnp.zeros(20), jax.random.key(0)
    residual = count_operations(defect.source, t, x, key)
    assert residual > 2 * count_operations(defect.terminal, x)
