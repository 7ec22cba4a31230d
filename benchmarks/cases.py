"""Problems with known solutions, surrogates of them spoiled by a known amount, and points: what the error bars are tried on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import scasml
from scasml import Picard, problems


@dataclass(frozen=True)
class Case:
    name: str
    problem: scasml.Problem
    solution: (
        Callable[[Any, Any], Any] | None
    )  # u(t, x) in JAX; None where the problem itself is simulated
    method: Picard
    low: Any = -0.5  # points are uniform between these
    high: Any = 0.5

    def surrogate(self, size: float, roughness: float = 1.0) -> Callable[[Any, Any], Any] | None:
        """The solution and `size` times a wave; the rougher, the larger its residual and the noise of its correction."""
        if self.solution is None:
            return None
        u, wave = self.solution, roughness / np.sqrt(self.problem.dim)
        return lambda t, x: u(t, x) + size * jnp.sin(wave * jnp.sum(x) + 2 * t + 0.5)

    def points(self, count: int, seed: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(seed)
        t = rng.uniform(0, 0.8 * self.problem.horizon, count)
        return t, rng.uniform(self.low, self.high, (count, self.problem.dim))


def _control(t: Any, x: Any) -> Any:
    """Of `problems.ornstein_uhlenbeck`: the Riccati equation of linear-quadratic control, all parameters 1."""
    decay = jnp.exp(-2 * (1 - t))
    spread = (1 - decay) / 2
    return decay / (1 + spread) * (x @ x) / 2 + x.size / 2 * jnp.log1p(spread)


def cases() -> list[Case]:
    """Linear and nonlinear, in u and in z; exact Gaussian, geometric and mean-reverting paths, and paths in steps."""
    logistic = lambda t, x: jax.nn.sigmoid(t + jnp.sum(x))
    oscillation = lambda t, x: 1.6 + jnp.sin(0.1 * jnp.sum(x)) * jnp.exp(0.1**2 * 20 / 2 * (t - 1))
    barenblatt = lambda t, x: jnp.exp((0.05 + 0.4**2) * (1 - t)) * (x @ x)
    sine = lambda t, x: jnp.sin(t + jnp.sum(x) / np.sqrt(5))
    zoo = problems
    return [
        Case(
            "convection-diffusion 10d",
            zoo.convection_diffusion(10),
            lambda t, x: jnp.sum(x) + t,
            Picard(1, 10),
        ),
        Case(
            "basket of 10 stocks (GBM)",
            zoo.black_scholes_basket(10),
            None,
            Picard(2, 10),
            80.0,
            120.0,
        ),
        Case("Heston, in steps", zoo.heston(), None, Picard(2, 5), [80.0, 0.1], [120.0, 0.3]),
        Case(
            "Barenblatt 10d (GBM, F of u and z)",
            zoo.black_scholes_barenblatt(10),
            barenblatt,
            Picard(2, 6),
            0.5,
            1.5,
        ),
        Case("HJB 100d, no surrogate", zoo.hjb(100), None, Picard(2, 16)),
        Case("LQG 20d, no surrogate", zoo.lqg(20), None, Picard(2, 16)),
        Case(
            "quadratic gradient 20d, no surrogate", zoo.quadratic_gradient(20), None, Picard(2, 16)
        ),
        Case("HJB lin 20d, no surrogate", zoo.hjb_lin(20), None, Picard(2, 8)),
        Case("Burgers 20d", zoo.burgers(20), logistic, Picard(2, 6)),
        Case("diffusion-reaction 20d", zoo.diffusion_reaction(20), oscillation, Picard(2, 6)),
        Case(
            "mean-reverting control 5d",
            zoo.ornstein_uhlenbeck(5),
            _control,
            Picard(2, 6),
            -1.0,
            1.0,
        ),
        Case(
            "Allen-Cahn 5d, sigma(x), in steps",
            zoo.allen_cahn_variable(5),
            sine,
            Picard(2, 4),
            -1.0,
            1.0,
        ),
    ]
