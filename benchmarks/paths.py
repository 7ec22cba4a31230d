"""What a path costs: exact laws over the Gaussian one, and a path in steps over its evaluations of mu and sigma."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scasml._sampling.normals import normal
from scasml.paths import Gaussian, General, GeometricBrownian, OrnsteinUhlenbeck, Stepped
from timing import cpu_seconds

DIM, STEPS, TILE, TILES = 100, 16, 128, 64
FEW_TILES = 1  # where a path costs a matrix of its own at every step


def cheap() -> General:
    """Two operations each: the random numbers are what costs."""
    return General(lambda t, x: 0.05 * x, lambda t, x: 0.2 * x)


def usual() -> General:
    """A local volatility and a mean reversion: a few transcendental functions of every coordinate."""
    return General(
        lambda t, x: jnp.tanh(x) * jnp.exp(-t) - 0.5 * x,
        lambda t, x: x * (0.2 + 0.1 * jnp.tanh(jnp.log1p(x**2) + t) + 0.05 * jnp.exp(-(x**2))),
    )


def full() -> General:
    """Correlated: a matrix of every state."""
    factor = np.linalg.cholesky(0.7 * np.eye(DIM) + 0.3).astype(np.float32)
    return General(lambda t, x: 0.05 * x, lambda t, x: (0.2 * x)[:, None] * factor)


def paths(equation: Any, weight: bool, tiles: int = TILES) -> Any:
    @jax.jit
    def run(key: Any, x: Any) -> Any:
        def tile(total: Any, key: Any) -> Any:
            jump = lambda key: equation.jump(key, jnp.zeros(()), x, jnp.ones(()), weight)
            out = jax.vmap(jump)(jax.random.split(key, TILE))
            return total + sum(jnp.sum(a) for a in out if a is not None), None

        return jax.lax.scan(tile, jnp.zeros(()), jax.random.split(key, tiles))[0]

    return lambda: run(jax.random.key(0), jnp.ones(DIM))


def evaluations(equation: Any) -> Any:
    """As many mu and sigma as the paths take, each applied: x moves a little, so that none can be left out."""

    @jax.jit
    def run(x: Any) -> Any:
        def step(y: Any, k: Any) -> Any:
            t = k / (STEPS * TILES)
            moved = jax.vmap(lambda y: equation.drift(t, y))(y)
            spread = jax.vmap(lambda y: equation.diffusion(t, y))(y)
            # A full sigma must be applied to something: that is d^2, as its evaluation is.
            applied = jnp.einsum("bij,bj->bi", spread, moved) if spread.ndim == 3 else spread
            return y + 1e-3 * moved + 1e-3 * applied, None

        return jax.lax.scan(
            step, jnp.ones((TILE, DIM)) * x, jnp.arange(STEPS * TILES, dtype=jnp.float32)
        )[0]

    return lambda: run(jnp.ones(DIM))


def normals() -> Any:
    draw = lambda key: normal(key, (STEPS, DIM), jnp.dtype(jnp.float32))

    @jax.jit
    def run(key: Any) -> Any:
        step = lambda total, key: (
            total + jnp.sum(jax.vmap(draw)(jax.random.split(key, TILE))),
            None,
        )
        return jax.lax.scan(step, jnp.zeros(()), jax.random.split(key, TILES))[0]

    return lambda: run(jax.random.key(0))


def main() -> None:
    exact = {
        "Gaussian": Gaussian(0.05, 0.2),
        "geometric Brownian": GeometricBrownian(0.05, 0.2),
        "Ornstein-Uhlenbeck": OrnsteinUhlenbeck(1.0, 0.0, 0.2),
    }
    for weight in (False, True):
        seconds = cpu_seconds({name: paths(equation, weight) for name, equation in exact.items()})
        for name in list(exact)[1:]:
            ratio = seconds[name] / seconds["Gaussian"]
            print(
                f"d = {DIM}, exact {name} / exact Gaussian{', with weights' if weight else ''}: {ratio:.2f} (aim 1.3)"
            )
    general = {"cheap coefficients": cheap(), "usual coefficients": usual(), "full sigma": full()}
    sides = {"normals": normals()}
    for name, equation in general.items():
        for scheme in ("euler", "milstein"):
            if not (scheme == "milstein" and name == "full sigma"):  # d derivatives a step
                sides[f"{name}, {scheme}"] = paths(
                    Stepped(dynamics=equation, scheme=scheme, steps=STEPS), False
                )
        sides[f"{name}, euler with weights"] = paths(
            Stepped(dynamics=equation, scheme="euler", steps=STEPS),
            True,
            FEW_TILES if name == "full sigma" else TILES,
        )
        sides[f"{name}: evaluations"] = evaluations(equation)
    seconds = cpu_seconds(sides, rounds=5)
    seconds["full sigma, euler with weights"] *= TILES / FEW_TILES
    per_path = 1e6 / (TILE * TILES)
    for name in general:
        base = seconds[f"{name}: evaluations"]
        for kind in ("euler", "milstein", "euler with weights"):
            if (key := f"{name}, {kind}") in seconds:
                without = seconds[key] - seconds["normals"]
                print(
                    f"d = {DIM}, {STEPS} steps, {key}: {seconds[key] * per_path:.1f} CPU-us a path; over {STEPS} mu and sigma "
                    f"{seconds[key] / base:.2f} (aim 2), without its random numbers {without / base:.2f}"
                )
