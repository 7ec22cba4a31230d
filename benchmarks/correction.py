"""A whole correction at n = 2, M = 10 over its residual evaluations alone; compile times; against the literal recursion."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import scasml
from literal import literal_picard
from residual import DIMS, network
from scasml import Picard
from scasml._equations.defect import Defect
from scasml._support.precision import cast
from scasml.execution import local
from scasml.surrogates import wrap
from timing import cpu_seconds

ITEMS, SAMPLES = 16, 10
RESIDUALS = 2 * SAMPLES**2  # of one replicate at two levels: M^2 at l = 0, and M x M inside l = 1


def residuals(equation: Any, t: Any, x: Any, differentiated: int) -> Any:
    """As many residuals as one replicate evaluates, the last `differentiated` of them with their gradient."""
    key = jax.random.key(0)
    plain = lambda t, x: equation.source(t, x, key)
    split = RESIDUALS - differentiated
    values = (
        jax.lax.map(lambda a: plain(*a), (t[:split], x[:split]), batch_size=100) if split else None
    )
    slopes = None
    if differentiated:
        with_slope = lambda a: jax.value_and_grad(plain, 1)(*a)
        slopes = jax.lax.map(with_slope, (t[split:], x[split:]), batch_size=100)
    return values, slopes


@eqx.filter_jit
def residuals_alone(equation: Any, t: Any, x: Any, differentiated: int) -> Any:
    def step(i: Any, total: Any) -> Any:
        parts = residuals(equation, t, x + 1e-3 * i, differentiated)
        return total + sum(jnp.sum(a) for a in jax.tree.leaves(parts))

    return jax.lax.fori_loop(0, ITEMS, step, jnp.zeros(()))


def measure(dim: int) -> None:
    problem = cast(scasml.problems.hjb(dim), np.dtype("float32"))
    equation = Defect(problem, wrap(network(dim), problem, inputs="tx"))
    rng = np.random.default_rng(0)
    t, x = (
        rng.uniform(size=ITEMS).astype(np.float32),
        rng.normal(size=(ITEMS, dim)).astype(np.float32),
    )
    keys, replicates, halved = (
        local.point_keys(0, t, x),
        np.zeros(ITEMS, np.uint32),
        np.zeros(ITEMS, bool),
    )
    items = tuple(local._fill(a) for a in (t, x, keys, replicates, halved))
    ts, xs = jnp.linspace(0, 1, RESIDUALS), jax.random.normal(jax.random.key(1), (RESIDUALS, dim))
    kinds = {
        "weights": (Picard(2, SAMPLES, gradient="weights"), True, 0),
        "pathwise, value only": (Picard(2, SAMPLES), False, SAMPLES**2),
        "pathwise, with gradient": (Picard(2, SAMPLES), True, RESIDUALS),
    }
    sides, compile_seconds = {}, {}
    for name, (method, gradient, differentiated) in kinds.items():
        start = time.perf_counter()
        local._replicates.lower(
            equation, equation.surrogate, method, gradient, items, np.int32(1)
        ).compile()
        compile_seconds[name] = time.perf_counter() - start
        sides[name] = lambda m=method, g=gradient: local._replicates(
            equation, equation.surrogate, m, g, items, np.int32(ITEMS)
        )
        sides[f"{name}: residuals"] = lambda d=differentiated: residuals_alone(equation, ts, xs, d)
    seconds = cpu_seconds(sides, rounds=5)
    plain = seconds["weights: residuals"]
    for name, (_, _, differentiated) in kinds.items():
        print(
            f"d = {dim:>4}, {name}: {seconds[name] / ITEMS * 1e3:.1f} CPU-ms a replicate; over its {RESIDUALS} residuals "
            f"{seconds[name] / plain:.2f}; over them as it needs them, {differentiated} with gradient, "
            f"{seconds[name] / seconds[f'{name}: residuals']:.2f} (aim 1.5); trace and compile {compile_seconds[name]:.1f} s"
        )


def against_literal(dim: int = 20) -> None:
    problem = cast(scasml.problems.hjb(dim), np.dtype("float32"))
    surrogate = wrap(network(dim), problem, inputs="tx")
    x, method = np.zeros(dim, np.float32), Picard(2, 3)
    equation, key = Defect(problem, surrogate), jax.random.key(0)
    kernel = jax.jit(lambda s, x: method.replicate(equation, key, s, x, True))
    seconds = cpu_seconds(
        {
            "kernel": lambda: kernel(jnp.asarray(0.0), jnp.asarray(x)),
            "literal": lambda: literal_picard(problem, surrogate, 2, 3, key, 0.0, x),
        },
        rounds=1,
    )
    print(
        f"d = {dim}, n = 2, M = 3: literal recursion / kernel = {seconds['literal'] / seconds['kernel']:.0f}"
    )


def main() -> None:
    for dim in DIMS:
        measure(dim)
    against_literal()
