"""The Black-Scholes-Barenblatt equation with a quadratic payoff.

`black_scholes_barenblatt` builds the problem. Its solution is known in closed form.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from ..paths import GeometricBrownian
from ._zoo import dimension, time_to_go, zoo
from .references.black_scholes import PRICE_ROUNDING

HORIZON = 1.0
RATE, VOLATILITY = 0.05, 0.4


class _Financing(eqx.Module):
    """F = -r (u - sum z / sigma), which is -r (u - <x, grad u>)."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return -RATE * (u - jnp.sum(z) / VOLATILITY)


class _Terminal(eqx.Module):
    """g = |x|^2."""

    def __call__(self, x: Array) -> Array:
        return jnp.sum(jnp.square(x))


def _exact(t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    return np.exp((RATE + VOLATILITY**2) * time_to_go(t, HORIZON)) * np.sum(np.square(x), axis=-1)


@zoo
def black_scholes_barenblatt(dim: int = 100) -> Problem:
    """Black-Scholes-Barenblatt (Raissi 2018), exact solution u = exp((r + sigma^2)(T - t)) |x|^2.

    u_t + (sigma^2/2) sum_i x_i^2 d_ii u - r (u - <x, grad u>) = 0,    u(T, x) = |x|^2,    T = 1

    r = 0.05 and sigma = 0.4. The term r <x, grad u> belongs to F, and the paths have no drift.
    x0 = (1, 1/2, 1, 1/2, ...). The problem is from the paper on FBSNNs.
    """
    dim = dimension(dim)
    return Problem(
        dim=dim,
        horizon=HORIZON,
        dynamics=GeometricBrownian(0.0, VOLATILITY),
        nonlinearity=_Financing(),
        terminal=_Terminal(),
        name="black_scholes_barenblatt",
        reference=Reference(
            _exact, PRICE_ROUNDING, "exact, u = exp((r + sigma^2)(T - t)) |x|^2 (Raissi 2018)"
        ),
        x0=np.where(np.arange(dim) % 2, 0.5, 1.0),
    )
