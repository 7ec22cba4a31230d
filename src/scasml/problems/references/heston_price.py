"""The price of a call in the Heston model, at every (t, S, v), as one integral.

With tau = T - t, k = ln(S/K) + (r - q) tau and phi the characteristic function of ln(S_T/S) - (r - q) tau (Lewis 2001),

    u = S e^(-q tau) - sqrt(S K) e^(-(r + q) tau/2)/pi  Re int_0^inf e^(i w k) phi(w - i/2)/(w^2 + 1/4) dw

phi is analytic off the imaginary axis, so the path of w may be a ray at an angle (Andersen & Lake 2018). Turned towards the
side of k, e^(i w k) decays instead of oscillating: no point of (t, S, v) needs special care, not even tau -> 0.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._zoo import time_to_go

Complex = NDArray[np.complex128]

# So far the price may be off, relative to S + K.
ACCURACY = 1e-12

# Elements of the largest temporary array: 8 MB of complex128.
_BLOCK = 2**19

# Halving the step changes nothing above ACCURACY, see the tests.
_STEP = 0.13


@dataclass(frozen=True)
class HestonCall:
    """u(t, (S, v)); NaN where S or v is negative."""

    reversion: float
    mean_variance: float
    vol_of_variance: float
    correlation: float
    rate: float
    dividend: float
    horizon: float
    strike: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        return _in_blocks(_price, self, time_to_go(t, self.horizon), x)

    @property
    def angle(self) -> float:
        """Of the ray. Far out |phi| decays on rays up to acos |rho|, and up to pi/4 where it is Gaussian still: half of both."""
        return min(math.pi / 8, math.acos(abs(self.correlation)) / 2)


def delta(call: HestonCall, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """du/dS at points (B,) and (B, 2)."""
    return _in_blocks(_delta, call, time_to_go(t, call.horizon), x)


def _in_blocks(
    function: Callable[..., Any], call: HestonCall, tau: NDArray[Any], x: NDArray[Any]
) -> NDArray[Any]:
    out = np.full(tau.shape, np.nan)
    known = np.flatnonzero(np.all(x >= 0, axis=-1))
    size = max(1, _BLOCK // _rule(call.angle)[0].size)
    for start in range(0, known.size, size):
        i = known[start : start + size]
        out[i] = function(call, tau[i], x[i, 0], x[i, 1])
    return out


def _price(call: HestonCall, tau: NDArray[Any], s: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    random = (tau > 0) & (s > 0)
    spot, discount = (
        np.where(random, s, call.strike),
        np.exp(-0.5 * (call.rate + call.dividend) * tau),
    )
    integral = _integral(call, tau, spot, v, lambda w: 1 / (w * w + 0.25))
    value = (
        spot * np.exp(-call.dividend * tau)
        - np.sqrt(spot * call.strike) * discount * integral / np.pi
    )
    # Far out of the money the difference of two larger numbers may round below 0.
    return np.where(random, np.maximum(value, 0.0), np.maximum(s - call.strike, 0.0))


def _delta(call: HestonCall, tau: NDArray[Any], s: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    random = (tau > 0) & (s > 0)
    spot, discount = (
        np.where(random, s, call.strike),
        np.exp(-0.5 * (call.rate + call.dividend) * tau),
    )
    # d/dS of sqrt S e^(i w ln S) brings down (1/2 + i w)/S.
    integral = _integral(call, tau, spot, v, lambda w: 1 / (0.5 - 1j * w))
    value = np.exp(-call.dividend * tau) - np.sqrt(call.strike / spot) * discount * integral / np.pi
    return np.where(random, value, np.heaviside(s - call.strike, 0.5))


def _integral(
    call: HestonCall,
    tau: NDArray[Any],
    s: NDArray[Any],
    v: NDArray[Any],
    payoff: Callable[[Complex], Complex],
) -> NDArray[Any]:
    radius, weights = _rule(call.angle)
    k = np.log(s / call.strike) + (call.rate - call.dividend) * tau
    turn = np.exp(1j * call.angle * np.where(k >= 0, 1.0, -1.0))[:, None]
    w = turn * radius
    exponent = 1j * w * k[:, None] + _log_characteristic(call, w - 0.5j, tau[:, None], v[:, None])
    # Not by @, whose rounding depends on the other points.
    return np.sum(np.real(turn * np.exp(exponent) * payoff(w)) * weights, axis=1)


@functools.lru_cache(maxsize=16)
def _rule(angle: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """The trapezoidal rule in y for |w| = exp(y - exp(-y)), on to where 1/|w| alone falls below rounding.

    A shift of y into the complex plane turns the ray, which is allowed by `angle` either way: hence the step.
    """
    step = _STEP * angle
    y = np.arange(-3.8, 37.0, step)
    radius = np.exp(y - np.exp(-y))
    return radius, step * radius * (1 + np.exp(-y))


def _log_characteristic(
    call: HestonCall, w: Complex, tau: NDArray[Any], v: NDArray[Any]
) -> Complex:
    """ln E exp(i w (ln(S_T/S) - (r - q) tau)), in the form of Albrecher et al. (2007) that never leaves the main branch.

    xi^2 is divided out beforehand where it would cancel: the model tends to Black-Scholes smoothly as xi -> 0.
    """
    square = call.vol_of_variance**2
    a = w * (w + 1j)
    b = call.reversion - 1j * call.correlation * call.vol_of_variance * w
    d = np.sqrt(b * b + square * a)
    root = -a / (b + d)  # (b - d)/xi^2
    g = square * root / (b + d)
    gone = -np.expm1(-d * tau)
    log = _log1p(g * gone / (1 - g))  # ln((1 - g e^(-d tau))/(1 - g))
    of_mean = call.reversion * call.mean_variance * (root * tau - 2 * log / square)
    return of_mean + v * root * gone / (1 - g + g * gone)


def _log1p(y: Complex) -> Complex:
    """ln(1 + y) with every digit for small complex y, which NumPy's does not give."""
    re, im = np.real(y), np.imag(y)
    return 0.5 * np.log1p(re * (2 + re) + im * im) + 1j * np.arctan2(im, 1 + re)
