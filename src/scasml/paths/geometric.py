"""`GeometricBrownian`: geometric Brownian motion. log X is Gaussian, so X is drawn exactly."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from .base import AbstractDynamics, AbstractPathLaw, Jump
from .coefficients import (
    DIFFUSION_SHAPES,
    DRIFT_SHAPES,
    Coefficient,
    check_invertible,
    check_width,
    coefficient,
    diffuse,
)


class GeometricBrownian(AbstractDynamics, AbstractPathLaw):
    """dX_i = X_i (mu_i dt + (L dW)_i): prices with drift mu and volatility L.

    `drift` is mu, a scalar or (d,). `volatility` is L: a scalar, the diagonal (d,) of a matrix, or
    a matrix (d, d) for correlated prices. Such a matrix is, for instance, diag(volatilities) times
    a Cholesky factor of the correlations.
    """

    rate: Coefficient
    volatility: Coefficient
    steps: int = eqx.field(static=True)

    def __init__(self, drift: ArrayLike | Any, volatility: ArrayLike | Any):
        self.rate = coefficient("drift", drift, DRIFT_SHAPES, 1)
        self.volatility = coefficient("volatility", volatility, DIFFUSION_SHAPES, 2)
        check_invertible("volatility", self.volatility)
        self.steps = 1

    def check(self, dim: int) -> None:
        check_width("drift", self.rate, dim, DRIFT_SHAPES)
        check_width("volatility", self.volatility, dim, DIFFUSION_SHAPES)

    def drift(self, t: Array, x: Array) -> Array:
        return jnp.asarray(self.rate, x.dtype) * x

    def diffusion(self, t: Array, x: Array) -> Array:
        volatility = jnp.asarray(self.volatility, x.dtype)
        return x[:, None] * volatility if volatility.ndim == 2 else x * volatility

    @property
    def constant_diffusion(self) -> None:
        return None

    @property
    def exact(self) -> AbstractPathLaw:
        return self

    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        """Return X_t = x exp((mu - |L_i|^2/2)(t - s) + L (W_t - W_s)) and its gradient weight.

        L_i is row i of L. The derivative process is D_t = diag(X_t / x). In the gradient weight of
        `Stepped`, sigma(X_t)^-1 D_t is then constant in time. So the gradient weight is
        (W_t - W_s)/(t - s), as for constant coefficients.
        """
        (xi,) = noise
        root, square = jnp.sqrt(duration), jnp.square(self.volatility)
        variance = jnp.sum(square, 1) if self.volatility.ndim == 2 else square
        growth = (self.rate - 0.5 * variance) * duration + root * diffuse(self.volatility, xi)
        return Jump(x * jnp.exp(growth), xi / root if weight else None)
