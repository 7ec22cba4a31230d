"""A call on the geometric mean of correlated assets in the Black-Scholes model.

`black_scholes_basket` builds the problem. The geometric mean is lognormal, so the price is known in
closed form.
"""

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
from ._zoo import Discount, dimension, final_time, time_to_go, zoo
from .references.black_scholes import PRICE_ROUNDING, call

SPOT = 100.0


class _Terminal(eqx.Module):
    """g = (geometric mean of x - K)^+, and 0 where a price is not positive."""

    strike: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        all_positive = jnp.all(x > 0)
        mean = jnp.exp(jnp.mean(jnp.log(jnp.where(all_positive, x, 1.0))))
        return jnp.where(all_positive, jnp.maximum(mean - self.strike, 0.0), 0.0)


@dataclass(frozen=True)
class _Basket:
    """The exact price.

    The logarithm of the geometric mean is normal. Its variance per unit of time is the variance
    of one asset times (1 + (d - 1) rho)/d.
    """

    correlation: float
    rate: float
    volatility: float
    strike: float
    horizon: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        tau, dim = time_to_go(t, self.horizon), x.shape[-1]
        variance = self.volatility**2 * (1 + (dim - 1) * self.correlation) / dim
        # The mean of the logarithms has the drift r - sigma^2/2 of one asset. Taking the
        # exponential adds half the variance of that mean.
        growth = self.rate + (variance - self.volatility**2) / 2
        all_positive = np.all(x > 0, axis=-1)
        mean = np.where(
            all_positive,
            np.exp(np.mean(np.log(np.where(all_positive[:, None], x, 1.0)), axis=-1)),
            0.0,
        )
        return np.exp(-self.rate * tau) * call(
            mean * np.exp(growth * tau), self.strike, np.sqrt(variance * tau)
        )


@zoo
def black_scholes_basket(
    dim: int = 100,
    correlation: float = 0.3,
    rate: float = 0.05,
    volatility: float = 0.2,
    strike: float = 100.0,
    horizon: float = 1.0,
) -> Problem:
    """Call on the geometric mean of correlated assets (Kemna & Vorst 1990), exact solution.

    u_t + r <x, grad u> + (sigma^2/2) sum_ij rho_ij x_i x_j d_ij u - r u = 0
    u(T, x) = ((x_1 ... x_d)^(1/d) - K)^+

    rho_ij is `correlation` for any two different assets, r is the interest rate `rate`, sigma is
    `volatility` and K is `strike`. x0 = (100, ..., 100).
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
            PRICE_ROUNDING * max(1.0, strike / SPOT),
            "exact, Black-Scholes for the geometric mean",
        ),
        x0=np.full(dim, SPOT),
    )
