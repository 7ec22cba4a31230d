"""The domains in which answers are wanted: a box, a ball, or a list of points.

Surrogates are trained on the points that a domain draws, and on the states of paths that start
there.
"""

import abc
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._support.errors import ArgumentError, ArgumentTypeError, brief
from ..paths.coefficients import coefficient

# The shapes of a bound, for error messages.
BOUNDS = "a number, or one for each coordinate"


class AbstractDomain(abc.ABC):
    """A set of points (t, x) from which training points are drawn."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, dim: int, horizon: float) -> tuple[Array, Array]:
        """Return one random point (t, x) of the set; `Queries` picks a given one.

        t is a scalar in [0, horizon], and x is (dim,).
        """


@dataclass(frozen=True)
class Box(AbstractDomain):
    """All times in [0, T], and all x with coordinates between `low` and `high`.

    Each bound is one number, or one number for each coordinate. Raises ArgumentError or
    ArgumentTypeError if the bounds are not finite numbers with low < high.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]

    def __post_init__(self) -> None:
        low, high = (coefficient(name, getattr(self, name), BOUNDS, 1) for name in ("low", "high"))
        if not (low < high).all():
            raise ArgumentError(
                f"high must be above low in every coordinate, got low={brief(self.low)} "
                f"and high={brief(self.high)}: swap them."
            )
        object.__setattr__(self, "low", float(low) if low.ndim == 0 else tuple(map(float, low)))
        object.__setattr__(self, "high", float(high) if high.ndim == 0 else tuple(map(float, high)))

    def draw(self, key: PRNGKeyArray, dim: int, horizon: float) -> tuple[Array, Array]:
        key_t, key_x = jax.random.split(key)
        low, high = (jnp.broadcast_to(jnp.asarray(a), (dim,)) for a in (self.low, self.high))
        return horizon * jax.random.uniform(key_t), low + (high - low) * jax.random.uniform(
            key_x, (dim,)
        )


@dataclass(frozen=True)
class Ball(AbstractDomain):
    """All times in [0, T], and all x with |x| <= `radius`, which must be a positive number."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        radius = coefficient("radius", self.radius, "a number", 1)
        if radius.ndim or not radius > 0:
            raise ArgumentError(
                f"radius must be one positive number, got {brief(self.radius)}: "
                "pass the radius of the ball."
            )
        object.__setattr__(self, "radius", float(radius))

    def draw(self, key: PRNGKeyArray, dim: int, horizon: float) -> tuple[Array, Array]:
        key_t, key_x, key_r = jax.random.split(key, 3)
        direction = jax.random.normal(key_x, (dim,))
        radius = self.radius * jax.random.uniform(key_r) ** (1 / dim)
        return horizon * jax.random.uniform(key_t), radius * direction / jnp.linalg.norm(direction)


@dataclass(frozen=True, eq=False)
class Queries(AbstractDomain):
    """The given points t, (B,), and x, (B, d), each drawn with equal probability."""

    t: Any
    x: Any

    def draw(self, key: PRNGKeyArray, dim: int, horizon: float) -> tuple[Array, Array]:
        i = jax.random.randint(key, (), 0, len(self.x))
        return jnp.asarray(self.t, jnp.result_type(float))[i], jnp.asarray(
            self.x, jnp.result_type(float)
        )[i]


def require_domain(domain: Any, dim: int) -> None:
    """Check that `domain` is a domain of dimension `dim`.

    Raises ArgumentTypeError if it is not an `AbstractDomain`, and ArgumentError if it has neither
    one bound for all coordinates nor `dim` bounds.
    """
    if not isinstance(domain, AbstractDomain):
        raise ArgumentTypeError(
            f"domain must be a scasml.Box or a scasml.Ball, got {brief(domain)}: build one."
        )
    widths = {
        len(side)
        for side in (getattr(domain, "low", 0.0), getattr(domain, "high", 0.0))
        if isinstance(side, tuple)
    }
    if widths - {dim}:
        raise ArgumentError(
            f"domain must have 1 or {dim} bounds, got {max(widths - {dim})}: "
            "pass one for each coordinate."
        )
