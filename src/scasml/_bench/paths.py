"""CPU time of paths in 100 dimensions.

The benchmark prints the time of exact laws over that of the Gaussian law, and the time of a stepped
path over that of its evaluations of mu and sigma.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._sampling.normals import normal
from ..paths import Gaussian, General, GeometricBrownian, OrnsteinUhlenbeck, Stepped
from .measuring import cpu_seconds

PATH_DIM, STEPS_PER_PATH = 100, 16
# Paths that run side by side, and how many such groups run one after the other.
PATHS_PER_GROUP, GROUPS = 128, 64
# Groups if a path multiplies matrices at every step.
GROUPS_WITH_MATRICES = 1


def cheap() -> General:
    """Return mu and sigma of one operation each; random numbers take most of the time."""
    return General(lambda t, x: 0.05 * x, lambda t, x: 0.2 * x)


def usual() -> General:
    """Return a local volatility and a mean reversion, with several transcendental functions."""
    return General(
        lambda t, x: jnp.tanh(x) * jnp.exp(-t) - 0.5 * x,
        lambda t, x: x * (0.2 + 0.1 * jnp.tanh(jnp.log1p(x**2) + t) + 0.05 * jnp.exp(-(x**2))),
    )


def full() -> General:
    """Return correlated coordinates: sigma is a full matrix that depends on the state."""
    factor = np.linalg.cholesky(0.7 * np.eye(PATH_DIM) + 0.3).astype(np.float32)
    return General(lambda t, x: 0.05 * x, lambda t, x: (0.2 * x)[:, None] * factor)


def simulation(law: Any, weight: bool, groups: int = GROUPS) -> Callable[[], Any]:
    """Return a function that simulates paths of a law, with gradient weights if `weight`."""

    @jax.jit
    def run(key: Any, x: Any) -> Any:
        def group(total: Any, key: Any) -> Any:
            jump = lambda key: law.jump(key, jnp.zeros(()), x, jnp.ones(()), weight)
            out = jax.vmap(jump)(jax.random.split(key, PATHS_PER_GROUP))
            return total + sum(jnp.sum(a) for a in out if a is not None), None

        return jax.lax.scan(group, jnp.zeros(()), jax.random.split(key, groups))[0]

    return lambda: run(jax.random.key(0), jnp.ones(PATH_DIM))


def coefficient_evaluations(dynamics: Any) -> Callable[[], Any]:
    """Return a function that evaluates and applies mu and sigma as often as stepped paths do.

    Every evaluation moves x a little, so that the compiler cannot omit any.
    """
    count = STEPS_PER_PATH * GROUPS

    @jax.jit
    def run(x: Any) -> Any:
        def step(y: Any, k: Any) -> Any:
            t = k / count
            moved = jax.vmap(lambda y: dynamics.drift(t, y))(y)
            spread = jax.vmap(lambda y: dynamics.diffusion(t, y))(y)
            # A path applies a full sigma to a vector, which takes d^2 operations like its
            # evaluation.
            applied = jnp.einsum("bij,bj->bi", spread, moved) if spread.ndim == 3 else spread
            return y + 1e-3 * moved + 1e-3 * applied, None

        start = jnp.ones((PATHS_PER_GROUP, PATH_DIM)) * x
        return jax.lax.scan(step, start, jnp.arange(count, dtype=jnp.float32))[0]

    return lambda: run(jnp.ones(PATH_DIM))


def random_numbers() -> Callable[[], Any]:
    """Return a function that draws the normal numbers of all stepped paths."""
    draw = lambda key: normal(key, (STEPS_PER_PATH, PATH_DIM), jnp.dtype(jnp.float32))

    @jax.jit
    def run(key: Any) -> Any:
        def group(total: Any, key: Any) -> Any:
            drawn = jax.vmap(draw)(jax.random.split(key, PATHS_PER_GROUP))
            return total + jnp.sum(drawn), None

        return jax.lax.scan(group, jnp.zeros(()), jax.random.split(key, GROUPS))[0]

    return lambda: run(jax.random.key(0))


def compare_exact() -> None:
    """Print the time of exact laws over that of the Gaussian law."""
    laws = {
        "Gaussian": Gaussian(0.05, 0.2),
        "geometric Brownian": GeometricBrownian(0.05, 0.2),
        "Ornstein-Uhlenbeck": OrnsteinUhlenbeck(1.0, 0.0, 0.2),
    }
    for weight in (False, True):
        seconds = cpu_seconds({name: simulation(law, weight) for name, law in laws.items()})
        for name in list(laws)[1:]:
            ratio = seconds[name] / seconds["Gaussian"]
            print(
                f"d = {PATH_DIM}, exact {name} / exact Gaussian"
                f"{', with weights' if weight else ''}: {ratio:.2f} (aim 1.3)",
                flush=True,
            )


def compare_stepped() -> None:
    """Print the time of stepped paths over that of their coefficients."""
    dynamics = {"cheap coefficients": cheap(), "usual coefficients": usual(), "full sigma": full()}
    sides = {"normals": random_numbers()}
    for name, each in dynamics.items():
        stepped = lambda scheme, each=each: Stepped(
            dynamics=each, scheme=scheme, steps=STEPS_PER_PATH
        )
        sides[f"{name}, euler"] = simulation(stepped("euler"), False)
        if name != "full sigma":  # there a Milstein step takes d derivatives
            sides[f"{name}, milstein"] = simulation(stepped("milstein"), False)
        groups = GROUPS_WITH_MATRICES if name == "full sigma" else GROUPS
        sides[f"{name}, euler with weights"] = simulation(stepped("euler"), True, groups)
        sides[f"{name}: evaluations"] = coefficient_evaluations(each)
    seconds = cpu_seconds(sides, rounds=5)
    seconds["full sigma, euler with weights"] *= GROUPS / GROUPS_WITH_MATRICES
    microseconds_per_path = 1e6 / (PATHS_PER_GROUP * GROUPS)
    for name in dynamics:
        base = seconds[f"{name}: evaluations"]
        for scheme in ("euler", "milstein", "euler with weights"):
            if (side := f"{name}, {scheme}") in seconds:
                without = seconds[side] - seconds["normals"]
                print(
                    f"d = {PATH_DIM}, {STEPS_PER_PATH} steps, {side}: "
                    f"{seconds[side] * microseconds_per_path:.1f} CPU us per path; "
                    f"over {STEPS_PER_PATH} mu and sigma {seconds[side] / base:.2f} (aim 2), "
                    f"without its random numbers {without / base:.2f}",
                    flush=True,
                )


def main() -> None:
    """Print both comparisons."""
    compare_exact()
    compare_stepped()
