"""What it means to move: the coefficients of a diffusion, and a law by which its paths are drawn."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._sampling.normals import normal
from .coefficients import Coefficient


class Jump(NamedTuple):
    """X_t given X_s = x, and, if asked for, its weight: E[f(X_t) weight] = sigma(s, x)^T grad_x E[f(X_t)].

    Where paths have a potential a they carry e^growth f with growth = int a. The growth depends on x too, and E[e^growth f (weight + lift)]
    is sigma^T grad_x E[e^growth f]. The mean of a weight is 0, that of a lift is not.
    """

    x: Array
    weight: Array | None
    growth: Array | None = None
    lift: Array | None = None

    def carry(self, f: Array) -> Array:
        """e^growth f."""
        return f if self.growth is None else jnp.exp(self.growth) * f


class AbstractPathLaw(eqx.Module):
    """How X is drawn at a later time."""

    steps: eqx.AbstractVar[int]  # draws of a d-dimensional normal per jump

    @abc.abstractmethod
    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        """X at time s + duration, from (steps, d) standard normals. The duration is given, not the time: their difference
        would round to 0 in float32."""

    def jump(self, key: PRNGKeyArray, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        """The same from a stream."""
        return self.move(normal(key, (self.steps, *x.shape), x.dtype), s, x, duration, weight)


class AbstractDynamics(eqx.Module):
    """dX = mu(t, X) dt + sigma(t, X) dW, written for one point."""

    @abc.abstractmethod
    def drift(self, t: Array, x: Array) -> Array:
        """mu, of shape (d,)."""

    @abc.abstractmethod
    def diffusion(self, t: Array, x: Array) -> Array:
        """sigma: a scalar, a diagonal (d,) or a matrix (d, d)."""

    @property
    @abc.abstractmethod
    def constant_diffusion(self) -> Coefficient | None:
        """sigma, if it depends on neither t nor x."""

    @property
    @abc.abstractmethod
    def exact(self) -> AbstractPathLaw | None:
        """The law of X_t given X_s, if it can be drawn without discretising."""

    @abc.abstractmethod
    def check(self, dim: int) -> None:
        """Refuse a dimension that the coefficients do not fit."""
