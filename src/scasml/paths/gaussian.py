"""`Gaussian`: constant drift and diffusion. X_t given X_s is Gaussian and is drawn exactly."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
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


class Gaussian(AbstractDynamics, AbstractPathLaw):
    """dX = mu dt + sigma dW with constant mu and sigma.

    `drift` is mu, a scalar or (d,). `diffusion` is sigma, a scalar, the diagonal (d,) of a matrix,
    or a matrix (d, d).
    """

    mu: Coefficient
    sigma: Coefficient
    steps: int = eqx.field(static=True)

    def __init__(self, drift: ArrayLike | Any = 0.0, diffusion: ArrayLike | Any = 1.0):
        self.mu = coefficient("drift", drift, DRIFT_SHAPES, 1)
        self.sigma = coefficient("diffusion", diffusion, DIFFUSION_SHAPES, 2)
        self.steps = 1

    def check(self, dim: int) -> None:
        check_width("drift", self.mu, dim, DRIFT_SHAPES)
        check_width("diffusion", self.sigma, dim, DIFFUSION_SHAPES)
        check_invertible("diffusion", np.asarray(self.sigma))

    def drift(self, t: Array, x: Array) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.mu, x.dtype), x.shape)

    def diffusion(self, t: Array, x: Array) -> Array:
        return jnp.asarray(self.sigma, x.dtype)

    @property
    def constant_diffusion(self) -> Coefficient:
        return self.sigma

    @property
    def exact(self) -> AbstractPathLaw:
        return self

    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        """Return x + mu (t - s) + sigma (W_t - W_s) and the gradient weight (W_t - W_s)/(t - s)."""
        (xi,) = noise
        root = jnp.sqrt(duration)
        return Jump(
            x + self.mu * duration + root * diffuse(self.sigma, xi), xi / root if weight else None
        )
