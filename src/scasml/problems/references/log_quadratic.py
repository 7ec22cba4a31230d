"""The exact solution of u_t + Lap u - |grad u|^2 = 0 with u(T, x) = ln((1 + x^T A x)/2).

`LogQuadratic` maps t (B,) and x (B, d) to u (B,). A is a `QuadraticForm`: `Identity` or `Chain`.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from .._zoo import time_to_go
from .quadrature import double_exponential

# Bound on the absolute error.
ACCURACY = 1e-12

SOURCE = (
    "Hopf-Cole and 1/(1+q) = int_0^inf exp(-s(1+q)) ds: a one-dimensional integral, "
    "double-exponential rule"
)

# Elements of the largest temporary array: 16 MB of float64.
BLOCK_ELEMENTS = 2**21


class Spectrum(NamedTuple):
    """The distinct eigenvalues of A, and the multiplicity of each."""

    eigenvalues: NDArray[np.float64]
    multiplicities: NDArray[np.float64]


class QuadraticForm(Protocol):
    """The quadratic form x^T A x, diagonalised.

    A form is hashable by its parameters, so that equal problems have equal references.
    """

    def spectrum(self) -> Spectrum: ...

    def components(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the squared length of x (B, d) in each of the k eigenspaces, (B, k)."""
        ...


@dataclass(frozen=True)
class Identity:
    """The form |x|^2, with A = I."""

    dim: int

    def spectrum(self) -> Spectrum:
        return Spectrum(np.ones(1), np.full(1, float(self.dim)))

    def components(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.sum(np.square(x), axis=-1, keepdims=True)


@dataclass(frozen=True)
class Chain:
    """The form sum_{i<d} [c1_i (x_i - x_{i+1})^2 + c2_i x_{i+1}^2], with a tridiagonal A."""

    dim: int
    seed: int

    def spectrum(self) -> Spectrum:
        return Spectrum(_chain_eigensystem(self.dim, self.seed)[0], np.ones(self.dim))

    def components(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.square(x @ _chain_eigensystem(self.dim, self.seed)[1])


def chain_coefficients(dim: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return c1 and c2, each one draw from U[1/2, 3/2]^(d-1)."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 1.5, dim - 1), rng.uniform(0.5, 1.5, dim - 1)


@functools.lru_cache(maxsize=8)
def _chain_eigensystem(dim: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the eigenvalues (d,) and the eigenvectors (d, d) of the matrix of `Chain`."""
    c1, c2 = chain_coefficients(dim, seed)
    diagonal = np.zeros(dim)
    diagonal[:-1] += c1
    diagonal[1:] += c1 + c2
    eigenvalues, eigenvectors = eigh_tridiagonal(diagonal, -c1)
    return eigenvalues, eigenvectors


@dataclass(frozen=True)
class LogQuadratic:
    """u(t, x) by a one-dimensional integral.

    The Hopf-Cole transform gives exp(-u) = E exp(-g(x + sqrt 2 W_tau)) with tau = T - t. We write
    1/(1 + q) = int_0^inf exp(-s (1 + q)) ds, and take the Gaussian expectation of exp(-s q) inside:

        exp(-u) = 2 int_0^inf exp(-s) det(M_s)^(-1/2) exp(-s x^T A M_s^-1 x) ds,
        M_s = I + 4 s tau A

    `quadrature` holds the first and last y and the step of `double_exponential`, applied to s in
    units of s0 (see `_integral`). As a function of y the integrand decays double exponentially on
    both sides, on the right because of exp(-s). A smaller step changes u by less than `ACCURACY`.
    """

    form: QuadraticForm
    horizon: float
    quadrature: tuple[float, float, float] = (-3.75, 28.0, 0.2)

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        tau = time_to_go(t, self.horizon)
        spectrum = self.form.spectrum()
        nodes, weights = double_exponential(*self.quadrature)
        points = max(1, BLOCK_ELEMENTS // (nodes.size * spectrum.eigenvalues.size))
        blocks = [slice(start, start + points) for start in range(0, tau.size, points)]
        return np.concatenate(
            [
                np.empty(0),
                *(
                    _integral(spectrum, tau[i], self.form.components(x[i]), nodes, weights)
                    for i in blocks
                ),
            ]
        )


def _integral(
    spectrum: Spectrum,
    tau: NDArray[Any],
    components: NDArray[Any],
    nodes: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[Any]:
    """Return u (B,) for times to go (B,) and components (B, k)."""
    eigenvalues, multiplicities = spectrum
    # By Jensen's inequality the integrand is at least exp(-s/s0). In units of s0 the integral is
    # therefore at least 1, and the sum cannot underflow.
    s0 = 1 / (1 + 2 * tau * (eigenvalues @ multiplicities) + components @ eigenvalues)
    s = s0[:, None] * nodes
    growth = (4 * tau[:, None] * s)[:, :, None] * eigenvalues
    log_determinant = np.log1p(growth) @ multiplicities
    energy = s * np.einsum("bjk,bk->bj", 1 / (1 + growth), eigenvalues * components)
    return -np.log(2 * s0 * (np.exp(-s - 0.5 * log_determinant - energy) @ weights))
