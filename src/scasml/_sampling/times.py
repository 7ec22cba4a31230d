"""Time laws: how the integral over [s, T] is sampled.

Each draw is a duration R - s and a weight w, with int_s^T f = E[sum over nodes of w f(R)]. The
duration is what is drawn: formed as a difference of times it would round to 0 in float32 once in
a few thousand draws, and a gradient weight would be infinite.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class AbstractTimeLaw(eqx.Module):
    nodes: eqx.AbstractVar[int]

    @abc.abstractmethod
    def draw(self, uniform: Array, node: Array, s: Array, horizon: float) -> tuple[Array, Array]:
        """(R - s, w) of one node of one sample, from a uniform number in (0, 1]."""


class FullHistory(AbstractTimeLaw):
    """R = s + (T - s) r with r of density (1 - a) r^-a on (0, 1), and w = (T - s) / density.

    Unbiased. With gradient weights, which grow as (R - s)^-1/2, the variance is finite for a > 0
    only; with path derivatives a = 0 is right.
    """

    exponent: float = eqx.field(static=True)
    nodes: int = eqx.field(static=True, default=1)

    def draw(self, uniform: Array, node: Array, s: Array, horizon: float) -> tuple[Array, Array]:
        r = jnp.maximum(
            uniform ** (1 / (1 - self.exponent)), 1e-30
        )  # an exponent near 1 underflows
        return (horizon - s) * r, (horizon - s) * r**self.exponent / (1 - self.exponent)


class GaussLegendre(AbstractTimeLaw):
    """The nodes and weights of Gauss-Legendre on [s, T]: no noise from time, an error that falls exponentially for a smooth integrand."""

    nodes: int = eqx.field(static=True)

    def draw(self, uniform: Array, node: Array, s: Array, horizon: float) -> tuple[Array, Array]:
        abscissae, weights = np.polynomial.legendre.leggauss(self.nodes)
        half = (horizon - s) / 2
        c = jnp.asarray(abscissae, s.dtype)[node]
        return half * (1 + c), half * jnp.asarray(weights, s.dtype)[node]
