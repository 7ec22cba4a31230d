"""The price of a call in the Heston model, as a one-dimensional integral.

`HestonCall` maps t (B,) and x = (S, v), (B, 2), to prices (B,).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._zoo import time_to_go
from .quadrature import double_exponential

Complex = NDArray[np.complex128]

# Bound on the error of a price, relative to S + K.
ACCURACY = 1e-12

# Elements of the largest temporary array: 8 MB of complex128.
BLOCK_ELEMENTS = 2**19


@dataclass(frozen=True)
class HestonCall:
    """The price u(t, (S, v)), and NaN where S or v is negative.

    Let tau = T - t and k = ln(S/K) + (r - q) tau, and let phi be the characteristic function of
    ln(S_T/S) - (r - q) tau. Then (Lewis 2001)

        u = S e^(-q tau) - sqrt(S K) e^(-(r + q) tau/2) I/pi
        I = Re int_0^inf e^(i w k) phi(w - i/2)/(w^2 + 1/4) dw

    `angle` is the angle between the ray of integration and the real axis; None stands for the
    default in `ray_angle`. `step` is the step of the quadrature divided by the angle. A smaller
    step changes prices by less than `ACCURACY`.
    """

    reversion: float
    mean_variance: float
    vol_of_variance: float
    correlation: float
    rate: float
    dividend: float
    horizon: float
    strike: float
    angle: float | None = None
    step: float = 0.13

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        tau = time_to_go(t, self.horizon)
        out = np.full(tau.shape, np.nan)
        known = np.flatnonzero(np.all(x >= 0, axis=-1))
        size = max(1, BLOCK_ELEMENTS // self.quadrature()[0].size)
        for start in range(0, known.size, size):
            i = known[start : start + size]
            out[i] = _price(self, tau[i], x[i, 0], x[i, 1])
        return out

    @property
    def ray_angle(self) -> float:
        """The angle of the ray.

        For large w, |phi| decays on rays at angles up to acos |rho|. For smaller w, where phi is
        nearly Gaussian, it decays at angles up to pi/4. The default is half of the smaller bound.
        """
        if self.angle is not None:
            return self.angle
        return min(math.pi / 8, math.acos(abs(self.correlation)) / 2)

    def quadrature(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return nodes |w| and weights of the integral along the ray.

        The accuracy of the rule depends on the step over the width of the strip of complex y in
        which the integrand is analytic. An imaginary shift of y turns the ray, and the ray may turn
        by its angle in both directions. The step of y is therefore proportional to the angle. The
        last node is so large that the factor 1/|w| alone is below rounding.
        """
        return double_exponential(-3.8, 37.0, self.step * self.ray_angle)


def _price(call: HestonCall, tau: NDArray[Any], s: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    random = (tau > 0) & (s > 0)
    spot, discount = (
        np.where(random, s, call.strike),
        np.exp(-0.5 * (call.rate + call.dividend) * tau),
    )
    integral = _integral(call, tau, spot, v)
    value = (
        spot * np.exp(-call.dividend * tau)
        - np.sqrt(spot * call.strike) * discount * integral / np.pi
    )
    # Far out of the money, rounding may make the difference of two larger numbers negative.
    return np.where(random, np.maximum(value, 0.0), np.maximum(s - call.strike, 0.0))


def _integral(
    call: HestonCall, tau: NDArray[Any], s: NDArray[Any], v: NDArray[Any]
) -> NDArray[Any]:
    """Return the integral I of `HestonCall`, (B,).

    phi is analytic off the imaginary axis, so w may run along a ray at an angle to the real axis
    (Andersen & Lake 2018). If the sign of the angle is that of k, e^(i w k) decays instead of
    oscillating. The integral is then accurate for all (t, S, v), also as tau tends to 0.
    """
    radius, weights = call.quadrature()
    k = np.log(s / call.strike) + (call.rate - call.dividend) * tau
    turn = np.exp(1j * call.ray_angle * np.where(k >= 0, 1.0, -1.0))[:, None]
    w = turn * radius
    exponent = 1j * w * k[:, None] + _log_characteristic(call, w - 0.5j, tau[:, None], v[:, None])
    # A matrix product is not used because its rounding at one point depends on the other points.
    return np.sum(np.real(turn * np.exp(exponent) * (1 / (w * w + 0.25))) * weights, axis=1)


def _log_characteristic(
    call: HestonCall, w: Complex, tau: NDArray[Any], v: NDArray[Any]
) -> Complex:
    """Return ln E exp(i w (ln(S_T/S) - (r - q) tau)).

    In the form of Albrecher et al. (2007), the logarithm stays on its main branch. Expressions that
    would cancel as xi tends to 0 are divided by xi^2 in closed form, so the limit is Black-Scholes.
    """
    square = call.vol_of_variance**2
    a = w * (w + 1j)
    b = call.reversion - 1j * call.correlation * call.vol_of_variance * w
    d = np.sqrt(b * b + square * a)
    root = -a / (b + d)  # (b - d)/xi^2
    g = square * root / (b + d)
    decayed = -np.expm1(-d * tau)  # 1 - e^(-d tau)
    log = _log1p(g * decayed / (1 - g))  # ln((1 - g e^(-d tau))/(1 - g))
    mean_term = call.reversion * call.mean_variance * (root * tau - 2 * log / square)
    return mean_term + v * root * decayed / (1 - g + g * decayed)


def _log1p(y: Complex) -> Complex:
    """Return ln(1 + y) to full accuracy for small complex y, which `np.log1p` does not."""
    re, im = np.real(y), np.imag(y)
    return 0.5 * np.log1p(re * (2 + re) + im * im) + 1j * np.arctan2(im, 1 + re)
