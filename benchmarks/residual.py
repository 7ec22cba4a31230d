"""The residual of a 5 x 50 tanh network over its forward pass, as ratios of CPU time; folx beside it where it is installed."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import scasml
from scasml._equations.defect import Defect
from scasml.surrogates import wrap
from scasml.surrogates.terminal import DRAWS, Base, directions
from timing import cpu_seconds

DIMS = (20, 60, 100, 160)
AIMS = {20: 16, 60: 32, 100: 26, 160: 22}
BATCH, CHUNK = 2048, 128


def network(dim: int) -> eqx.nn.MLP:
    return eqx.nn.MLP(dim + 1, 1, 50, 5, activation=jnp.tanh, key=jax.random.key(0))


def chunked(f: Any) -> Any:
    return eqx.filter_jit(
        lambda equation, t, x: jax.lax.map(lambda a: f(equation, *a), (t, x), batch_size=CHUNK)
    )


def measure(dim: int) -> dict[str, float]:
    problem = scasml.problems.hjb(dim)
    equation = Defect(problem, wrap(network(dim), problem, inputs="tx"))
    ends = Defect(problem, wrap(Base(problem, directions(dim, DRAWS, 0)), problem))
    key = jax.random.key(0)
    t, x = jnp.linspace(0, 1, BATCH), jax.random.normal(jax.random.key(1), (BATCH, dim))
    sides = {
        "forward": eqx.filter_jit(lambda equation, t, x: jax.vmap(equation.surrogate)(t, x)),
        "gradient": eqx.filter_jit(
            lambda equation, t, x: jax.vmap(jax.value_and_grad(equation.surrogate, 1))(t, x)
        ),
        "residual": chunked(lambda equation, t, x: equation.source(t, x, key)),
        "residual and its gradient": chunked(
            lambda equation, t, x: jax.value_and_grad(lambda x: equation.source(t, x, key))(x)
        ),
    }
    # What a PINN has built in: g at eight points where paths end.
    sides["residual of what is built in"] = lambda equation, t, x: sides["residual"](ends, t, x)
    try:
        import folx

        def by_folx(equation: Any, t: Any, x: Any) -> Any:
            u = lambda y: equation.surrogate(t, y)
            out = folx.forward_laplacian(u, disable_jit=True)(x)
            z = np.sqrt(2) * out.jacobian.dense_array
            return jax.grad(equation.surrogate)(t, x) + out.laplacian - 0.5 * z @ z

        sides["folx, same chunks"] = chunked(by_folx)
    except ImportError:
        pass
    seconds = cpu_seconds({name: (lambda f=f: f(equation, t, x)) for name, f in sides.items()})
    return {name: value / seconds["forward"] for name, value in seconds.items()}


def main() -> None:
    print(
        "CPU time over one forward pass; 5 x 50 tanh network, float32, batch 2048 in chunks of 128"
    )
    for dim in DIMS:
        ratios = measure(dim)
        print(
            f"d = {dim:>4}: "
            + ", ".join(f"{k} {v:.1f}" for k, v in ratios.items() if k != "forward")
            + f" (aim for the residual {AIMS[dim]})"
        )
