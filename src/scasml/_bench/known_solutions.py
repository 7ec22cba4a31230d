"""Problems with known solutions, perturbed surrogates of them, and points.

The benchmarks and tests of error bars run over the list that `cases` returns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import Picard, Problem, problems


@dataclass(frozen=True)
class Case:
    """A problem with an exact solution, and a Picard iteration that suits it."""

    name: str
    problem: Problem
    # u(t, x) in JAX, to make surrogates of. If it is None, the case has no surrogate, and
    # `problem.exact` returns the solution.
    solution: Callable[[Any, Any], Any] | None
    method: Picard
    low: Any = -0.5  # states are uniform between `low` and `high`, numbers or arrays (d,)
    high: Any = 0.5

    def surrogate(self, size: float, roughness: float = 1.0) -> Callable[[Any, Any], Any] | None:
        """Return the solution plus `size` times a wave; None if there is no solution in JAX.

        `roughness` multiplies the wave number. It makes the residual of the surrogate larger, and
        so the variance of its correction.
        """
        if self.solution is None:
            return None
        u, wave = self.solution, roughness / np.sqrt(self.problem.dim)
        return lambda t, x: u(t, x) + size * jnp.sin(wave * jnp.sum(x) + 2 * t + 0.5)

    def points(self, count: int, seed: int) -> tuple[Any, Any]:
        """Draw points: t (count,), uniform in [0, 0.8 T], and x (count, d)."""
        rng = np.random.default_rng(seed)
        t = rng.uniform(0, 0.8 * self.problem.horizon, count)
        return t, rng.uniform(self.low, self.high, (count, self.problem.dim))


def _control_value(t: Any, x: Any) -> Any:
    """Return the solution of `problems.ornstein_uhlenbeck` with all parameters equal to 1.

    It solves the Riccati equation of linear-quadratic control.
    """
    decay = jnp.exp(-2 * (1 - t))
    spread = (1 - decay) / 2
    return decay / (1 + spread) * (x @ x) / 2 + x.size / 2 * jnp.log1p(spread)


def cases() -> list[Case]:
    """Return linear and nonlinear problems with every path law.

    F depends on u, on z, on both or on neither. Paths are Gaussian, geometric or mean-reverting and
    drawn exactly, or they are simulated in steps.
    """
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
            _control_value,
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
