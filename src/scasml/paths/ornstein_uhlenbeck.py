"""`OrnsteinUhlenbeck`: a Gaussian process that reverts to a mean, and is drawn exactly."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._support.errors import ArgumentError
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


class OrnsteinUhlenbeck(AbstractDynamics, AbstractPathLaw):
    """dX = k (m - X) dt + sigma dW: a process that reverts to the mean m at the reversion rate k.

    `rate` is k and `mean` is m, each a scalar or (d,). `diffusion` is sigma: a scalar, the diagonal
    (d,) of a matrix, or, if all entries of the reversion rate are equal, a matrix (d, d).
    """

    rate: Coefficient
    mean: Coefficient
    sigma: Coefficient
    steps: int = eqx.field(static=True)

    def __init__(
        self, rate: ArrayLike | Any, mean: ArrayLike | Any = 0.0, diffusion: ArrayLike | Any = 1.0
    ):
        self.rate = coefficient("rate", rate, DRIFT_SHAPES, 1)
        self.mean = coefficient("mean", mean, DRIFT_SHAPES, 1)
        self.sigma = coefficient("diffusion", diffusion, DIFFUSION_SHAPES, 2)
        check_invertible("diffusion", self.sigma)
        if self.sigma.ndim == 2 and self.rate.ndim == 1 and len(np.unique(self.rate)) > 1:
            raise ArgumentError(
                "rate must be a scalar where diffusion is a matrix, got shapes "
                f"{self.rate.shape} and {self.sigma.shape}: "
                "pass drift= and diffusion= as functions to Problem instead."
            )
        self.steps = 1

    def check(self, dim: int) -> None:
        check_width("rate", self.rate, dim, DRIFT_SHAPES)
        check_width("mean", self.mean, dim, DRIFT_SHAPES)
        check_width("diffusion", self.sigma, dim, DIFFUSION_SHAPES)

    def drift(self, t: Array, x: Array) -> Array:
        return jnp.asarray(self.rate, x.dtype) * (self.mean - x)

    def diffusion(self, t: Array, x: Array) -> Array:
        return jnp.asarray(self.sigma, x.dtype)

    @property
    def constant_diffusion(self) -> Coefficient:
        return self.sigma

    @property
    def exact(self) -> AbstractPathLaw:
        return self

    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        """Return X_t = m + e^{-k tau} (x - m) + sigma sqrt(v) xi and its gradient weight.

        Here tau = t - s and v = (1 - e^{-2 k tau})/(2 k). The gradient weight e^{-k tau} xi/sqrt(v)
        comes from the score of this Gaussian. It is the conditional mean, given X_t, of the
        gradient weight of `Stepped`, so its variance is minimal.
        """
        (xi,) = noise
        rate = jnp.asarray(self.rate, x.dtype)
        decay, root = (
            jnp.exp(-rate * duration),
            jnp.sqrt(duration * _relaxation(2 * rate * duration)),
        )
        moved = x + (1 - decay) * (self.mean - x) + diffuse(self.sigma, root * xi)
        return Jump(moved, decay * xi / root if weight else None)


def _relaxation(y: Array) -> Array:
    """Return (1 - e^-y)/y, which has the limit 1 at y = 0."""
    small = jnp.abs(y) < 1e-4
    safe = jnp.where(small, 1.0, y)
    return jnp.where(small, 1 - y / 2, -jnp.expm1(-safe) / safe)
