"""The interfaces of this package: `AbstractDynamics`, `AbstractPathLaw` and its result `Jump`.

A dynamics holds the coefficients mu and sigma of X. A path law takes a state and standard normal
numbers, and returns the state at a later time. All methods are written for one point.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._sampling.normals import normal
from .coefficients import Coefficient


class Jump(NamedTuple):
    """One draw of X_t given X_s = x, with the gradient weights of expectations over such draws.

    A path law without a potential returns None for `growth` and `lift`, and

        E[f(X_t) weight] = sigma(s, x)^T grad_x E[f(X_t)].

    A path law with a potential a multiplies f(X_t) by e^growth, where growth is
    int_s^t a(r, X_r) dr. This factor depends on x too. Its part of the gradient needs a second
    gradient weight, the lift:

        E[e^growth f(X_t) (weight + lift)] = sigma(s, x)^T grad_x E[e^growth f(X_t)]

        lift = sigma(s, x)^T int_s^t (t - r)/(t - s) grad_x [a(r, X_r)] dr

    where grad_x differentiates X_r in the initial state x. The two gradient weights are separate
    because the mean of `weight` is 0 and the mean of `lift` in general is not. So a constant may be
    subtracted from the factor of `weight`, to reduce the variance, but not from that of `lift`.

    Attributes:
        x: the state X_t, of shape (d,).
        weight: shape (d,), or None if it was not requested.
        growth: the integral of the potential, a scalar, or None if there is no potential.
        lift: shape (d,), or None if there is no potential or no weight was requested.
    """

    x: Array
    weight: Array | None
    growth: Array | None = None
    lift: Array | None = None

    def carry(self, f: Array) -> Array:
        """Return e^growth f, which is `f` itself if there is no potential."""
        return f if self.growth is None else jnp.exp(self.growth) * f


class AbstractPathLaw(eqx.Module):
    """A law by which X is drawn at a later time.

    The gradient weight of a `Jump` turns an expectation of a function of X into its gradient in x.
    `steps` is the number of normal vectors of shape (d,) that one move consumes.
    """

    steps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        """Move X from (s, x) to the time s + duration.

        The duration is an argument, and not the later time, because a difference of two times
        can round to 0 in float32. Returns the `Jump` to this time.

        Arguments:
            noise: standard normal numbers of shape (steps, d).
            s: the time at the beginning, a scalar.
            x: the state at time s, of shape (d,).
            duration: a positive scalar.
            weight: whether to compute `Jump.weight` (and `Jump.lift` if there is a potential).
        """

    def jump(self, key: PRNGKeyArray, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        """Draw the normal numbers from `key`, and return the result of `move`."""
        return self.move(normal(key, (self.steps, *x.shape), x.dtype), s, x, duration, weight)


class AbstractDynamics(eqx.Module):
    """The coefficients of dX = mu(t, X) dt + sigma(t, X) dW, written for one point.

    Every dynamics can be simulated in steps by the path law `Stepped`. A dynamics whose
    distribution is known in closed form also has an exact path law, its property `exact`.

    To add a diffusion, write one file with a subclass, and pass an instance to
    `Problem(dynamics=...)`. The subclass defines the methods and properties below, written with
    `jax.numpy`. If X can be drawn exactly, derive the class from `AbstractPathLaw` too, return
    `self` from `exact`, set `steps = 1` and define `move`. `geometric.py` is an example.
    """

    @abc.abstractmethod
    def drift(self, t: Array, x: Array) -> Array:
        """Return mu(t, x), of shape (d,), at a point x of shape (d,)."""

    @abc.abstractmethod
    def diffusion(self, t: Array, x: Array) -> Array:
        """Return sigma(t, x): a scalar, the diagonal (d,) of a matrix, or a matrix (d, d)."""

    @property
    @abc.abstractmethod
    def constant_diffusion(self) -> Coefficient | None:
        """sigma, if it depends on neither t nor x; otherwise None."""

    @property
    @abc.abstractmethod
    def exact(self) -> AbstractPathLaw | None:
        """The path law that draws X_t given X_s without discretisation, or None."""

    @abc.abstractmethod
    def check(self, dim: int) -> None:
        """Raise an error if the coefficients do not fit the dimension `dim`."""
