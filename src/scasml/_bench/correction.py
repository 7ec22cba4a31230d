"""CPU time of one replicate of `Picard(2, 10)` over that of its residual evaluations alone.

The benchmark also prints compile times, and the time of the literal recursion (see `literal`) over
that of a compiled replicate.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import Picard, problems
from .._equations.defect import Defect
from .._support.precision import cast
from ..estimators import Variant
from ..execution.compilation import prepare
from ..execution.points import Points
from ..execution.program import Program
from ..execution.row_numbers import RowNumbers, rows_at
from ..surrogates import wrap
from .literal import literal_picard
from .measuring import FLOAT32, cpu_seconds, tanh_network
from .residual import AIMED_RATIOS

REPLICATES_PER_CALL, PICARD_SAMPLES = 16, 10
# Residuals of one replicate with two levels: M^2 at level 0, and M times M inside level 1.
RESIDUALS = 2 * PICARD_SAMPLES**2


def residuals(equation: Any, t: Any, x: Any, differentiated: int) -> Any:
    """Evaluate the residuals of one replicate at t (RESIDUALS,) and x (RESIDUALS, d).

    The last `differentiated` of them are evaluated with their gradients in x. Returns the values
    of the others, and values with gradients of these; None for an empty part.
    """
    key = jax.random.key(0)
    residual = lambda t, x: equation.source(t, x, key)
    split, values, slopes = RESIDUALS - differentiated, None, None
    if split:
        plain = lambda point: residual(*point)
        values = jax.lax.map(plain, (t[:split], x[:split]), batch_size=100)
    if differentiated:
        with_slope = lambda point: jax.value_and_grad(residual, 1)(*point)
        slopes = jax.lax.map(with_slope, (t[split:], x[split:]), batch_size=100)
    return values, slopes


@eqx.filter_jit
def residuals_alone(equation: Any, t: Any, x: Any, differentiated: int) -> Any:
    """Evaluate the residuals of REPLICATES_PER_CALL replicates, and return their sum."""

    def step(i: Any, total: Any) -> Any:
        parts = residuals(equation, t, x + 1e-3 * i, differentiated)
        return total + sum(jnp.sum(a) for a in jax.tree.leaves(parts))

    return jax.lax.fori_loop(0, REPLICATES_PER_CALL, step, jnp.zeros(()))


def measure(dim: int, rounds: int = 5) -> None:
    """Print the ratios for three kinds of replicates of the HJB problem in `dim` dimensions.

    CPU times are medians over `rounds` interleaved runs.
    """
    problem = cast(problems.hjb(dim), FLOAT32)
    surrogate = wrap(tanh_network(dim), problem, inputs="tx")
    equation = Defect(problem, surrogate)
    rng, count = np.random.default_rng(0), REPLICATES_PER_CALL
    t = rng.uniform(size=count).astype(FLOAT32)
    x = rng.normal(size=(count, dim)).astype(FLOAT32)
    points = Points.of(np.arange(count), t, x, seed=0)
    ts, xs = jnp.linspace(0, 1, RESIDUALS), jax.random.normal(jax.random.key(1), (RESIDUALS, dim))
    # By name: the estimator, whether the gradient is estimated, and how many residuals are
    # differentiated.
    setups = {
        "weights": (Picard(2, PICARD_SAMPLES, gradient="weights"), True, 0),
        "pathwise, value only": (Picard(2, PICARD_SAMPLES), False, PICARD_SAMPLES**2),
        "pathwise, with gradient": (Picard(2, PICARD_SAMPLES), True, RESIDUALS),
    }
    sides, compile_seconds = {}, {}
    for name, (method, gradient, differentiated) in setups.items():
        tuning = method.default_tuning(equation, gradient)
        program = Program(
            equation, method, tuning, surrogate=surrogate, start=surrogate, gradient=gradient
        )
        zeros = np.zeros(count, np.int64)
        rows = rows_at(points, tuning, RowNumbers(np.arange(count), zeros, zeros + Variant.MAIN))
        prepared = prepare(program, rows, FLOAT32)
        compile_seconds[name] = prepared.compile_seconds
        sides[name] = lambda prepared=prepared, rows=rows: prepared(rows)
        sides[f"{name}: residuals"] = lambda d=differentiated: residuals_alone(equation, ts, xs, d)
    seconds = cpu_seconds(sides, rounds=rounds)
    plain = seconds["weights: residuals"]
    for name, (_, _, differentiated) in setups.items():
        print(
            f"d = {dim:>4}, {name}: {seconds[name] / count * 1e3:.1f} CPU ms per replicate; "
            f"over its {RESIDUALS} residuals {seconds[name] / plain:.2f}; "
            f"over them with {differentiated} gradients, as it needs them, "
            f"{seconds[name] / seconds[f'{name}: residuals']:.2f} (aim 1.5); "
            f"trace and compile {compile_seconds[name]:.1f} s",
            flush=True,
        )


def against_literal(dim: int = 20) -> None:
    """Print the time of `literal_picard` over that of a compiled replicate."""
    problem = cast(problems.hjb(dim), FLOAT32)
    surrogate = wrap(tanh_network(dim), problem, inputs="tx")
    equation, method, key = Defect(problem, surrogate), Picard(2, 3), jax.random.key(0)
    tuning, main_variant = method.default_tuning(equation, True), jnp.asarray(Variant.MAIN)
    x = np.zeros(dim, np.float32)
    compiled = jax.jit(
        lambda t, x: method.replicate(equation, tuning, main_variant, key, t, x, True)
    )
    seconds = cpu_seconds(
        {
            "compiled": lambda: compiled(jnp.asarray(0.0), jnp.asarray(x)),
            "literal": lambda: literal_picard(problem, surrogate, 2, 3, key, 0.0, x),
        },
        rounds=1,
    )
    ratio = seconds["literal"] / seconds["compiled"]
    print(f"d = {dim}, n = 2, M = 3: literal recursion / compiled replicate = {ratio:.0f}")


def main() -> None:
    """Print the ratios in every dimension of `residual`."""
    for dim in AIMED_RATIOS:
        measure(dim)
    against_literal()
