"""A call on the geometric mean of correlated assets, which is lognormal like each of them."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from .._support.errors import ArgumentError, number, positive
from ..paths import GeometricBrownian
from ._zoo import constructor, dimension, final_time, time_to_go
from .references.black_scholes import ROUNDING, call
from .references.discount import Discount

SPOT = 100.0


class _Terminal(eqx.Module):
    """g = (geometric mean of x - K)^+; the mean of prices of which one is not positive counts as 0."""

    strike: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        alive = jnp.all(x > 0)
        mean = jnp.exp(jnp.mean(jnp.log(jnp.where(alive, x, 1.0))))
        return jnp.where(alive, jnp.maximum(mean - self.strike, 0.0), 0.0)


@dataclass(frozen=True)
class _Basket:
    """ln of the mean is normal: its variance per time is that of one asset times (1 + (d - 1) rho)/d."""

    correlation: float
    rate: float
    volatility: float
    strike: float
    horizon: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        tau, dim = time_to_go(t, self.horizon), x.shape[-1]
        variance = self.volatility**2 * (1 + (dim - 1) * self.correlation) / dim
        # The mean of logarithms drifts like one asset, at r - sigma^2/2, and its exponential half its own variance faster.
        growth = self.rate + (variance - self.volatility**2) / 2
        alive = np.all(x > 0, axis=-1)
        mean = np.where(
            alive, np.exp(np.mean(np.log(np.where(alive[:, None], x, 1.0)), axis=-1)), 0.0
        )
        return np.exp(-self.rate * tau) * call(
            mean * np.exp(growth * tau), self.strike, np.sqrt(variance * tau)
        )


@constructor
def black_scholes_basket(
    dim: int = 100,
    correlation: float = 0.3,
    rate: float = 0.05,
    volatility: float = 0.2,
    strike: float = 100.0,
    horizon: float = 1.0,
) -> Problem:
    """Black-Scholes call on the geometric mean of d correlated assets (Kemna & Vorst 1990), exact solution in closed form.

    u_t + r <x, grad u> + (sigma^2/2) sum_ij rho_ij x_i x_j d_ij u - r u = 0,    u(T, x) = ((x_1 ... x_d)^(1/d) - K)^+

    rho_ij is `correlation` between every two assets, r `rate`, sigma `volatility`, K `strike`. x0 = (100, ..., 100).
    """
    dim, horizon = dimension(dim), final_time(horizon)
    correlation = number("correlation", correlation, "pass the correlation of every two assets")
    least = -1 / max(dim - 1, 1)
    if not least < correlation < 1:
        raise ArgumentError(
            f"correlation must lie between {least:g} and 1, got {correlation!r}: "
            f"{dim} assets have no other common correlation."
        )
    rate = number("rate", rate, "pass the rate of interest")
    volatility = positive("volatility", volatility, "pass the volatility of each asset")
    strike = positive("strike", strike, "pass the strike K")
    if dim == 1 or correlation == 0:
        factor = volatility
    else:
        factor = volatility * np.linalg.cholesky(
            np.full((dim, dim), correlation) + (1 - correlation) * np.eye(dim)
        )
    return Problem(
        dim=dim,
        horizon=horizon,
        dynamics=GeometricBrownian(rate, factor),
        nonlinearity=Discount(rate),
        terminal=_Terminal(strike),
        name="black_scholes_basket",
        reference=Reference(
            _Basket(correlation, rate, volatility, strike, horizon),
            # Rounding grows with the size of the prices.
            ROUNDING * max(1.0, strike / SPOT),
            "exact, Black-Scholes for the geometric mean",
        ),
        x0=np.full(dim, SPOT),
    )
