"""CPU time of the residual of a 5 x 50 tanh network, over that of its forward pass.

If folx is installed, its forward Laplacian is timed in the same run.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import problems
from .._equations.defect import Defect
from ..surrogates import wrap
from ..surrogates.terminal import DRAWS, SmoothedTerminal, directions
from .measuring import cpu_seconds, tanh_network

# Dimensions, and the largest ratio that is aimed for in each.
AIMED_RATIOS = {20: 16, 60: 32, 100: 26, 160: 22}
RESIDUAL_BATCH, POINTS_AT_ONCE = 2048, 128


def in_chunks(f: Any) -> Any:
    """Return a compiled function (equation, t, x) that applies f to points t (n,) and x (n, d).

    It applies f to POINTS_AT_ONCE points at a time.
    """
    return eqx.filter_jit(
        lambda equation, t, x: jax.lax.map(
            lambda point: f(equation, *point), (t, x), batch_size=POINTS_AT_ONCE
        )
    )


def measure(dim: int) -> dict[str, float]:
    """Return CPU times over that of the forward pass, by the name of what is computed."""
    problem = problems.hjb(dim)
    equation = Defect(problem, wrap(tanh_network(dim), problem, inputs="tx"))
    smoothed = SmoothedTerminal(problem, directions(dim, DRAWS, 0))
    smoothed_equation = Defect(problem, wrap(smoothed, problem))
    key = jax.random.key(0)
    t = jnp.linspace(0, 1, RESIDUAL_BATCH)
    x = jax.random.normal(jax.random.key(1), (RESIDUAL_BATCH, dim))
    residual = in_chunks(lambda equation, t, x: equation.source(t, x, key))
    sides = {
        "forward": eqx.filter_jit(lambda equation, t, x: jax.vmap(equation.surrogate)(t, x)),
        "gradient": eqx.filter_jit(
            lambda equation, t, x: jax.vmap(jax.value_and_grad(equation.surrogate, 1))(t, x)
        ),
        "residual": residual,
        "residual and its gradient": in_chunks(
            lambda equation, t, x: jax.value_and_grad(lambda x: equation.source(t, x, key))(x)
        ),
        # A PINN has the smoothed g built in.
        "residual of smoothed g": lambda equation, t, x: residual(smoothed_equation, t, x),
    }
    try:
        import folx

        def by_folx(equation: Any, t: Any, x: Any) -> Any:
            u = lambda y: equation.surrogate(t, y)
            out = folx.forward_laplacian(u, disable_jit=True)(x)
            z = np.sqrt(2) * out.jacobian.dense_array
            return jax.grad(equation.surrogate)(t, x) + out.laplacian - 0.5 * z @ z

        sides["folx, same chunks"] = in_chunks(by_folx)
    except ImportError:
        pass
    seconds = cpu_seconds({name: (lambda f=f: f(equation, t, x)) for name, f in sides.items()})
    return {name: value / seconds["forward"] for name, value in seconds.items()}


def main() -> None:
    """Print the ratios in every dimension."""
    print(
        "CPU time over one forward pass; 5 x 50 tanh network, float32, "
        f"batch {RESIDUAL_BATCH} in chunks of {POINTS_AT_ONCE}"
    )
    for dim, aim in AIMED_RATIOS.items():
        ratios = measure(dim)
        del ratios["forward"]
        columns = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
        print(f"d = {dim:>4}: {columns} (aim for the residual {aim})", flush=True)
