"""The Black-Scholes price of a call, before discounting.

`call` maps forward prices and standard deviations to prices.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

# Error of a price by rounding. Prices are hundreds, and their logarithms are of order 1.
PRICE_ROUNDING = 1e-10


def call(forward: NDArray[Any], strike: float, deviation: NDArray[Any]) -> NDArray[Any]:
    """Return E (Y - K)^+, where ln Y is normal with E Y = `forward` and K is `strike`.

    `forward` and `deviation`, the standard deviation of ln Y, have shape (B,). The result is 0
    where `forward` is not positive.
    """
    positive, random = forward > 0, deviation > 0
    with_noise = positive & random
    y, s = np.where(with_noise, forward, strike), np.where(with_noise, deviation, 1.0)
    above = np.log(y / strike) / s + s / 2
    return np.where(
        with_noise, y * ndtr(above) - strike * ndtr(above - s), np.maximum(forward - strike, 0.0)
    )
