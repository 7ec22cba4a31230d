"""Linear-quadratic control of an Ornstein-Uhlenbeck process.

`ornstein_uhlenbeck` builds the problem. Its solution is that of a Riccati equation.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from .._support.errors import positive
from ..paths import OrnsteinUhlenbeck
from ._zoo import ROUNDING, QuadraticHamiltonian, dimension, time_to_go, zoo

HORIZON = 1.0


class _Terminal(eqx.Module):
    """g = c |x|^2/2."""

    weight: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return 0.5 * self.weight * jnp.sum(jnp.square(x))


@dataclass(frozen=True)
class _Riccati:
    """The exact solution u = P |x|^2/2 + r, for k = `rate`, s = `sigma` and c = `weight`.

    P and r are functions of tau = T - t: P' = -2 k P - s^2 P^2 with P(0) = c, and r' = (d/2) s^2 P
    with r(0) = 0.
    """

    rate: float
    sigma: float
    weight: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        tau = time_to_go(t, HORIZON)
        # s^2 c (1 - e^(-2 k tau))/(2 k)
        spread = self.sigma**2 * self.weight * -np.expm1(-2 * self.rate * tau) / (2 * self.rate)
        p = self.weight * np.exp(-2 * self.rate * tau) / (1 + spread)
        return p * np.sum(np.square(x), axis=-1) / 2 + x.shape[-1] / 2 * np.log1p(spread)


@zoo
def ornstein_uhlenbeck(
    dim: int = 10, rate: float = 1.0, sigma: float = 1.0, weight: float = 1.0
) -> Problem:
    """Linear-quadratic control of an Ornstein-Uhlenbeck process, exact solution by Riccati.

    u_t - k <x, grad u> + (s^2/2) Lap u - (s^2/2) |grad u|^2 = 0,    u(T, x) = c |x|^2/2,    T = 1

    k, the speed of the reversion to 0, is `rate`; s is `sigma` and c is `weight`. u is the least
    expected cost of controlling dX = (-k X + s a) dt + s dW. The control a costs |a|^2/2 per unit
    of time, and the final state costs c |X_T|^2/2. x0 = (1, ..., 1).
    """
    dim = dimension(dim)
    rate = positive("rate", rate, "pass the speed k of the reversion to 0")
    sigma = positive("sigma", sigma, "pass the diffusion coefficient")
    weight = positive("weight", weight, "pass the c of the final cost c |x|^2/2")
    return Problem(
        dim=dim,
        horizon=HORIZON,
        dynamics=OrnsteinUhlenbeck(rate, 0.0, sigma),
        nonlinearity=QuadraticHamiltonian(),
        terminal=_Terminal(weight),
        name="ornstein_uhlenbeck",
        reference=Reference(
            _Riccati(rate, sigma, weight),
            ROUNDING * max(1.0, weight),
            "exact, the Riccati equation of linear-quadratic control",
        ),
        x0=np.ones(dim),
    )
