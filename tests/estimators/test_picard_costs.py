"""The cost of `Picard`: against the literal recursion, the paper, and counted calls of F and g."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import cost, heat, manufactured, replicate
from scasml import Picard
from scasml._bench.literal import literal_picard

TIME = {"full-history": {}, "quadrature": {"time": "quadrature", "nodes": 2}}


@pytest.mark.usefixtures("x64")
def test_evaluations_are_those_of_the_literal_recursion():
    problem, _ = manufactured()
    for n, samples, time in [
        (1, 3, "full-history"),
        (2, 2, "full-history"),
        (2, 2, "quadrature"),
        (3, 2, "full-history"),
    ]:
        log = dict.fromkeys(("g", "F", "normals", "uniforms"), 0)
        key, nodes = jax.random.key(0), TIME[time].get("nodes")
        literal_picard(
            problem, None, n, samples, key, 0.1, np.zeros(3), nodes=nodes, weights=True, log=log
        )
        stated = cost(Picard(n, samples, gradient="weights", **TIME[time]), problem)
        assert log == {
            "g": stated.terminal,
            "F": stated.nonlinearity,
            "normals": stated.normals,
            "uniforms": stated.uniforms,
        }


def paper_recursions(n, m, d, q=None):
    """Return FE and RV (full history) or RN (quadrature) of the paper's complexity sections."""
    fe, rv = [0], [0]
    nodes = q or 1
    for k in range(1, n + 1):
        inner = lambda table, k=k: sum(
            nodes * m ** (k - l) * (table[l] + (table[l - 1] if l else 0)) for l in range(k)
        )
        fe.append(m**k + sum(nodes * m ** (k - l) * (1 + (l > 0)) for l in range(k)) + inner(fe))
        rv.append(
            d * m**k + sum(nodes * m ** (k - l) * (d + (q is None)) for l in range(k)) + inner(rv)
        )
    return fe[n], rv[n]


@pytest.mark.parametrize(
    ("n", "m", "q"), list(itertools.product([1, 2, 3, 4], [1, 2, 10], [None, 3]))
)
def test_evaluations_are_those_of_the_paper(n, m, q):
    problem, _ = manufactured()
    options = {} if q is None else {"time": "quadrature", "nodes": q}
    stated = cost(Picard(n, m, **options), problem)
    assert (stated.functions, stated.random_numbers) == paper_recursions(n, m, problem.dim, q)


@pytest.mark.parametrize("time", TIME)
def test_evaluations_are_those_of_the_program(time):
    """Callbacks inside the compiled program count the calls of F and g, element by element."""
    calls = {"F": 0, "g": 0}

    def counted(name, value, x):
        jax.debug.callback(lambda _: calls.__setitem__(name, calls[name] + 1), x)
        return value

    problem = scasml.Problem(
        dim=2,
        horizon=1.0,
        nonlinearity=lambda t, x, u, z: counted("F", jnp.sin(u) + jnp.sum(z), x),
        terminal=lambda x: counted("g", jnp.sum(x**2), x),
    )
    method, key = Picard(2, 3, **TIME[time]), jax.random.key(0)
    run = jax.jit(lambda s, x: replicate(method, problem, key, s, x, gradient=False))
    jax.block_until_ready(run(jnp.zeros(()), jnp.zeros(2)))
    jax.effects_barrier()
    stated = cost(method, problem)
    assert calls == {"F": stated.nonlinearity, "g": stated.terminal}


def test_a_linear_problem_costs_one_level_only():
    problem, _ = heat()
    assert cost(Picard(3, 2), problem) == cost(Picard(1, 8), problem)
