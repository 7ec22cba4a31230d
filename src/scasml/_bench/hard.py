"""Manufactured problems that are hard for estimated biases, with known solutions and surrogates.

`hard_problems` returns them by name. Each one made an earlier version of `method="auto"` lie,
refuse, or state too small an error bar.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import Problem

Function = Callable[..., Any]


@dataclass(frozen=True)
class Hard:
    """A problem with its solution, a surrogate, and the point (0, x) of the query."""

    problem: Problem
    solution: Function
    surrogate: Function
    x: tuple[float, ...]

    def points(self, count: int, seed: int = 5) -> tuple[Any, Any]:
        """Return states (count, d) that are almost `x`, and the exact values there (count,).

        Every state has random numbers of its own, so each is a repeat of the experiment.
        """
        noise = np.random.default_rng(seed).normal(size=(count, len(self.x)))
        states = np.asarray(self.x) + 1e-3 * noise
        exact = jax.vmap(lambda x: self.solution(jnp.zeros(()), x))(jnp.asarray(states))
        return states, np.asarray(exact, float)

    def slopes(self, states: Any) -> Any:
        """Return the exact gradients at states, (count, d)."""
        slope = jax.grad(self.solution, 1)
        return np.asarray(jax.vmap(lambda x: slope(jnp.zeros(()), x))(jnp.asarray(states)), float)


def manufactured(
    solution: Function,
    nonlinearity: Function,
    dim: int,
    horizon: float = 1.0,
    drift: Function | None = None,
    diffusion: Any = 0.5,
) -> Problem:
    """Return the problem that `solution` solves with this F, plus a source that makes it so.

    The source is a function of t and x. It does not depend on u and z.
    """
    drift = drift or (lambda t, x: jnp.zeros_like(x))
    sigma: Any = (
        diffusion if callable(diffusion) else (lambda t, x: jnp.asarray(diffusion, x.dtype))
    )

    def residual(t: Any, x: Any) -> Any:
        spread = jnp.asarray(sigma(t, x), x.dtype)
        spread = spread if spread.ndim == 2 else spread * jnp.eye(dim, dtype=x.dtype)
        slope, curvature = jax.grad(solution, 1)(t, x), jax.hessian(solution, 1)(t, x)
        generator = drift(t, x) @ slope + 0.5 * jnp.sum((spread @ spread.T) * curvature)
        f = nonlinearity(t, x, solution(t, x), spread.T @ slope)
        return jax.grad(solution, 0)(t, x) + generator + f

    return Problem(
        dim=dim,
        horizon=horizon,
        drift=drift,
        diffusion=sigma,
        nonlinearity=lambda t, x, u, z: nonlinearity(t, x, u, z) - residual(t, x),
        terminal=lambda x: solution(jnp.asarray(horizon, x.dtype), x),
    )


def _linear(solution: Function, x: float, **options: Any) -> Hard:
    """Return a linear problem on [0, 4] in one dimension, with a useless surrogate."""
    problem = Problem(dim=1, horizon=4.0, **options)
    return Hard(problem, solution, lambda t, x: 0.3 + 0 * x[0], (x,))


def aliased_drift() -> Hard:
    """Return a drift cos(2 pi t), of which whole steps see only the maxima."""
    return _linear(
        lambda t, x: x[0] - 0.5 * jnp.sin(2 * jnp.pi * t) / (2 * jnp.pi),
        1.5,
        drift=lambda t, x: 0.5 * jnp.cos(2 * jnp.pi * t) * jnp.ones_like(x),
        diffusion=0.2,
        terminal=lambda x: x[0],
    )


def seasonal_volatility() -> Hard:
    """Return a volatility with the period 1."""
    return _linear(
        lambda t, x: x[0] ** 2 + 4 * (0.2**2 + 0.15**2 / 2),
        1.5,
        diffusion=lambda t, x: (0.2 + 0.15 * jnp.cos(2 * jnp.pi * t)) * jnp.eye(1, dtype=x.dtype),
        terminal=lambda x: x[0] ** 2,
    )


def seasonal_rate() -> Hard:
    """Return a discount rate with the period 1."""
    return _linear(
        lambda t, x: x[0] * jnp.exp(jnp.sin(2 * jnp.pi * t) / (4 * jnp.pi)),
        1.5,
        diffusion=0.2,
        nonlinearity=lambda t, x, u, z: -0.5 * jnp.cos(2 * jnp.pi * t) * u,
        terminal=lambda x: x[0],
    )


def stiff_elsewhere() -> Hard:
    """Return an F that is steep only at x > 1.5, queried at 0.5."""
    solution = lambda t, x: 1.0 + 0.3 * jnp.sin(x[0]) * jnp.cos(t)
    f = lambda t, x, u, z: -40 * jax.nn.sigmoid(4 * (x[0] - 1.5)) * u**3 / 3
    problem = manufactured(solution, f, 1)
    return Hard(problem, solution, lambda t, x: 1.05 * solution(t, x), (0.5,))


def correlated() -> Hard:
    """Return 20 dimensions with the correlation 0.9 and a quadratic F of z."""
    volatility = 0.5 * np.linalg.cholesky(0.1 * np.eye(20) + 0.9)
    solution = lambda t, x: jnp.sin(jnp.mean(x) + t) + 0.2 * jnp.cos(x[0])
    problem = manufactured(
        solution,
        lambda t, x, u, z: 0.5 * z @ z,
        20,
        diffusion=lambda t, x: jnp.asarray(volatility, x.dtype),
    )
    surrogate = lambda t, x: solution(t, x) + 0.3 * jnp.sin(2 * jnp.mean(x))
    return Hard(problem, solution, surrogate, (0.3,) * 20)


def kinked() -> Hard:
    """Return an F with a kink in u, in five dimensions."""
    solution = lambda t, x: jnp.sin(jnp.sum(x) / jnp.sqrt(5.0) + t)
    problem = manufactured(solution, lambda t, x, u, z: -jnp.maximum(u - 0.3, 0.0), 5)
    return Hard(problem, solution, lambda t, x: 0.9 * solution(t, x) + 0.05, (0.2,) * 5)


def large_remainder() -> Hard:
    """Return a surrogate that is off by 0.6 sin(2 x), for a cubic F."""
    solution = lambda t, x: jnp.cos(x[0]) * jnp.exp(-t)
    problem = manufactured(solution, lambda t, x, u, z: u - u**3 + 0.2 * z @ z, 1)
    surrogate = lambda t, x: solution(t, x) + 0.6 * jnp.sin(2 * x[0])
    return Hard(problem, solution, surrogate, (0.7,))


def control() -> Hard:
    """Return a Hamilton-Jacobi-Bellman equation with a surrogate that is 10 % off."""
    solution = lambda t, x: jnp.log(1.5 + jnp.sin(x[0]) * jnp.cos(x[1]) * jnp.exp(t - 1))
    problem = manufactured(solution, lambda t, x, u, z: -0.5 * z @ z, 2, diffusion=1.4)
    return Hard(problem, solution, lambda t, x: 1.1 * solution(t, x), (0.5, 0.3))


def cubic() -> Hard:
    """Return a cubic F with sigma(x)."""
    solution = lambda t, x: 1 + 0.5 * jnp.tanh(x[0]) * jnp.cos(t)
    sigma = lambda t, x: (0.4 + 0.2 * jnp.sin(x[0])) * jnp.eye(1, dtype=x.dtype)
    problem = manufactured(solution, lambda t, x, u, z: u - u**3, 1, diffusion=sigma)
    return Hard(problem, solution, lambda t, x: 1.1 * solution(t, x), (0.5,))


def convection() -> Hard:
    """Return a convection term as in Burgers' equation, up to T = 2."""
    root = np.sqrt(10.0)
    solution = lambda t, x: jax.nn.sigmoid(t + jnp.sum(x) / root)
    problem = manufactured(solution, lambda t, x, u, z: u * jnp.sum(z) / root, 10, 2.0)
    return Hard(problem, solution, lambda t, x: 1.1 * solution(t, x), (0.1,) * 10)


def correlated_stocks() -> Hard:
    """Return geometric Brownian motions that do not commute, and an F that is no polynomial."""
    volatility = np.array([[0.3, 0.1, 0.0], [0.0, 0.3, 0.1], [0.1, 0.0, 0.3]])
    solution = lambda t, x: jnp.log1p(x @ x * jnp.exp(-t))
    problem = manufactured(
        solution,
        lambda t, x, u, z: jnp.sin(u) + 0.3 * z @ z,
        3,
        diffusion=lambda t, x: x[:, None] * jnp.asarray(volatility, x.dtype),
    )
    return Hard(problem, solution, lambda t, x: 1.1 * solution(t, x), (1.0,) * 3)


def call_option() -> Hard:
    """Return a g with a kink, a discount in F, and a volatility that depends on x."""
    rate, volatility = 0.05, 0.2

    def solution(t: Any, x: Any) -> Any:
        left = jnp.maximum(1.0 - t, 1e-6)
        spread = volatility * jnp.sqrt(left)
        d1 = (jnp.log(x[0]) + (rate + volatility**2 / 2) * left) / spread
        cdf = jax.scipy.stats.norm.cdf
        return x[0] * cdf(d1) - jnp.exp(-rate * left) * cdf(d1 - spread)

    problem = Problem(
        dim=1,
        horizon=1.0,
        drift=lambda t, x: rate * x,
        diffusion=lambda t, x: volatility * x,
        nonlinearity=lambda t, x, u, z: -rate * u,
        terminal=lambda x: jnp.maximum(x[0] - 1.0, 0.0),
    )
    return Hard(problem, solution, lambda t, x: 0.1 * x[0] ** 4, (1.0,))


def hard_problems() -> dict[str, Callable[[], Hard]]:
    """Return functions that make the problems, by name."""
    each = (
        aliased_drift,
        seasonal_volatility,
        seasonal_rate,
        stiff_elsewhere,
        correlated,
        kinked,
        large_remainder,
        control,
        cubic,
        convection,
        correlated_stocks,
        call_option,
    )
    return {make.__name__.replace("_", " "): make for make in each}
