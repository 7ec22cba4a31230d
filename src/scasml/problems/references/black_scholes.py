"""The Black-Scholes price of a call, as references use it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

# Prices are hundreds and their logarithms are of order 1: this allows for the rounding of both.
ROUNDING = 1e-10


def call(forward: NDArray[Any], strike: float, deviation: NDArray[Any]) -> NDArray[Any]:
    """E (Y - K)^+ for ln Y normal with that standard deviation and E Y = `forward`; 0 where the forward is not positive."""
    positive, random = forward > 0, deviation > 0
    with_noise = positive & random
    y, s = np.where(with_noise, forward, strike), np.where(with_noise, deviation, 1.0)
    above = np.log(y / strike) / s + s / 2
    return np.where(
        with_noise, y * ndtr(above) - strike * ndtr(above - s), np.maximum(forward - strike, 0.0)
    )
