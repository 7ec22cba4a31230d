"""Time laws: how an integral over [s, T] is sampled.

A time law takes a uniform number and returns a duration R - s and a time weight w, such that
int_s^T f(r) dr = E[sum over nodes of w f(R)]. For quadrature the equality is approximate.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class AbstractTimeLaw(eqx.Module):
    """Draws times in [s, T]. `nodes` is the number of times per sample."""

    nodes: eqx.AbstractVar[int]

    @abc.abstractmethod
    def draw(self, uniform: Array, node: Array, s: Array, horizon: float) -> tuple[Array, Array]:
        """Return the duration R - s and the time weight w of one node of one sample, two scalars.

        The duration is drawn and not the time R, because the difference of two times can round to 0
        in float32. A gradient weight would then be infinite.

        Arguments:
            uniform: a uniform number in (0, 1].
            node: the index of the node, from 0 to nodes - 1.
            s: the beginning of the interval, a scalar.
            horizon: T, the end of the interval.
        """


class FullHistory(AbstractTimeLaw):
    """One random time: R = s + (T - s) r, with r of density (1 - a) r^-a on (0, 1).

    `exponent` is a, in [0, 1). The time weight is w = (T - s) / density, so the integral is
    unbiased. Gradient weights grow as (R - s)^-1/2, so with them the variance is finite only for
    a > 0. With path derivatives, a = 0 (uniform times) is appropriate.
    """

    exponent: float = eqx.field(static=True)
    nodes: int = eqx.field(static=True, default=1)

    def draw(self, uniform: Array, node: Array, s: Array, horizon: float) -> tuple[Array, Array]:
        # The power underflows if the exponent is near 1.
        r = jnp.maximum(uniform ** (1 / (1 - self.exponent)), 1e-30)
        return (horizon - s) * r, (horizon - s) * r**self.exponent / (1 - self.exponent)


class GaussLegendre(AbstractTimeLaw):
    """The nodes and time weights of Gauss-Legendre quadrature on [s, T].

    The times are not random, and `uniform` is not used. For a smooth integrand the error falls
    exponentially in `nodes`.
    """

    nodes: int = eqx.field(static=True)

    def draw(self, uniform: Array, node: Array, s: Array, horizon: float) -> tuple[Array, Array]:
        abscissae, weights = np.polynomial.legendre.leggauss(self.nodes)
        half = (horizon - s) / 2
        abscissa = jnp.asarray(abscissae, s.dtype)[node]
        return half * (1 + abscissa), half * jnp.asarray(weights, s.dtype)[node]
