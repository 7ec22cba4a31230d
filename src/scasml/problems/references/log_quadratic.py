"""The exact solution of u_t + Lap u - |grad u|^2 = 0, u(T, x) = ln((1 + x^T A x)/2), as a one-dimensional integral.

By Hopf-Cole exp(-u) = E exp(-g(x + sqrt 2 W_tau)), tau = T - t. Write 1/(1 + q) = int_0^inf exp(-s (1 + q)) ds and take
the Gaussian expectation of exp(-s q) inside:

    exp(-u) = 2 int_0^inf exp(-s) det(I + 4 s tau A)^(-1/2) exp(-s x^T A (I + 4 s tau A)^-1 x) ds
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from .._zoo import time_to_go

ACCURACY = 1e-12

# The trapezoidal rule in y for s = s0 exp(y - exp(-y)), whose integrand falls double exponentially on the left and, thanks to
# exp(-s), on the right. Halving the step changes no digit.
_STEP = 0.2
_Y = np.arange(-3.75, 28.0, _STEP)
_NODES = np.exp(_Y - np.exp(-_Y))
_WEIGHTS = _STEP * _NODES * (1 + np.exp(-_Y))

# Elements of the largest temporary array: 16 MB of float64.
_BLOCK = 2**21


class Spectrum(NamedTuple):
    """The distinct eigenvalues of A and how often each occurs."""

    eigenvalues: NDArray[np.float64]
    multiplicities: NDArray[np.float64]


class QuadraticForm(Protocol):
    """x^T A x, diagonalised. Hashable by its parameters, so that equal problems have equal references."""

    def spectrum(self) -> Spectrum: ...

    def components(self, x: NDArray[Any]) -> NDArray[Any]:
        """(B, k): the squared length of x in each eigenspace."""
        ...


@dataclass(frozen=True)
class Identity:
    """|x|^2."""

    dim: int

    def spectrum(self) -> Spectrum:
        return Spectrum(np.ones(1), np.full(1, float(self.dim)))

    def components(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.sum(np.square(x), axis=-1, keepdims=True)


@dataclass(frozen=True)
class Chain:
    """sum_{i<d} [c1_i (x_i - x_{i+1})^2 + c2_i x_{i+1}^2], a tridiagonal A."""

    dim: int
    seed: int

    def spectrum(self) -> Spectrum:
        return Spectrum(_chain_eigensystem(self.dim, self.seed)[0], np.ones(self.dim))

    def components(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.square(x @ _chain_eigensystem(self.dim, self.seed)[1])


def chain_coefficients(dim: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """c1 and c2, one draw from U[1/2, 3/2]^(d-1) each."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 1.5, dim - 1), rng.uniform(0.5, 1.5, dim - 1)


@functools.lru_cache(maxsize=8)
def _chain_eigensystem(dim: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    c1, c2 = chain_coefficients(dim, seed)
    diagonal = np.zeros(dim)
    diagonal[:-1] += c1
    diagonal[1:] += c1 + c2
    eigenvalues, eigenvectors = eigh_tridiagonal(diagonal, -c1)
    return eigenvalues, eigenvectors


@dataclass(frozen=True)
class LogQuadratic:
    """u(t, x) by the integral above."""

    form: QuadraticForm
    horizon: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        tau = time_to_go(t, self.horizon)
        spectrum = self.form.spectrum()
        points = max(1, _BLOCK // (_NODES.size * spectrum.eigenvalues.size))
        chunks = [slice(start, start + points) for start in range(0, tau.size, points)]
        return np.concatenate(
            [
                np.empty(0),
                *(_integral(spectrum, tau[c], self.form.components(x[c])) for c in chunks),
            ]
        )


def _integral(spectrum: Spectrum, tau: NDArray[Any], components: NDArray[Any]) -> NDArray[Any]:
    eigenvalues, multiplicities = spectrum
    # Jensen: the integrand is at least exp(-s/s0). So the integral in units of s0 is at least 1, and nothing underflows.
    s0 = 1 / (1 + 2 * tau * (eigenvalues @ multiplicities) + components @ eigenvalues)
    s = s0[:, None] * _NODES
    growth = (4 * tau[:, None] * s)[:, :, None] * eigenvalues
    log_determinant = np.log1p(growth) @ multiplicities
    energy = s * np.einsum("bjk,bk->bj", 1 / (1 + growth), eigenvalues * components)
    return -np.log(2 * s0 * (np.exp(-s - 0.5 * log_determinant - energy) @ _WEIGHTS))
