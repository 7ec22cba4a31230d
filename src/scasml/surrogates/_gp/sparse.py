"""Linear systems with a kernel matrix that is too large to store.

`solve` runs conjugate gradients with a function that computes products with the matrix.
`nystrom_inverse` returns a preconditioner: the inverse of a low-rank approximation plus a diagonal.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._support.errors import ArgumentError
from ..._support.types import Floats
from . import kernels

LANDMARKS = 2000  # number of points s in `nystrom_inverse`
# Conjugate gradients end when the residual of the system is below this fraction of the norm of the
# right-hand side.
RELATIVE_RESIDUAL = 1e-7
MAX_PRODUCTS = 1000  # iterations of conjugate gradients, each with one product


def nystrom_inverse(
    kernel: kernels.Gaussian, points: kernels.Points, a: Floats, noise: Floats
) -> Callable[[Floats], Floats]:
    """Return a function that multiplies a vector (n,) by the inverse of the approximation.

    The approximation is of low rank plus a diagonal:

        K ~ K_:s K_ss^-1 K_s: + diagonal

    K is the covariance matrix (n, n) of one linear combination of observations per point, with the
    coefficients `a` (n, 4), plus the diagonal `noise` (n,). s is a random set of points, called
    landmarks. The diagonal is chosen such that the approximation has the same diagonal as K.
    """
    from scipy.linalg import cho_factor, cho_solve, solve_triangular

    n = len(a)
    s = np.random.default_rng(0).permutation(n)[:LANDMARKS]
    landmark_points = kernels.Points(points.t[s], points.x[s])
    to_landmarks = np.asarray(kernels.covariance(kernel, points, landmark_points, a, a[s]))
    cholesky = np.linalg.cholesky(to_landmarks[s] + np.diag(noise[s]))
    # root.T @ root is the low-rank part.
    root = solve_triangular(cholesky, to_landmarks.T, lower=True, overwrite_b=True)
    variance = (a**2) @ kernel.variances(points.x.shape[1]) + 2 * _cross_terms(kernel, points, a)
    diagonal = np.maximum(variance - np.sum(root * root, 0), 0.0) + noise
    core = cho_factor(np.eye(len(s)) + (root / diagonal) @ root.T)

    def apply(r: Floats) -> Floats:
        # The Woodbury identity for the inverse of root.T @ root + diagonal.
        scaled = r / diagonal
        return scaled - root.T @ cho_solve(core, root @ scaled) / diagonal

    return apply


def _cross_terms(kernel: kernels.Gaussian, points: kernels.Points, a: Floats) -> Floats:
    """Return (n,), the covariance of the terms in v and Lap v of the combination at each point.

    No other two of the four observations at one point are correlated.
    """
    table = kernels.products_at_zero(kernel, points.x.shape[1])
    return (
        a[:, kernels.Observation.VALUE]
        * a[:, kernels.Observation.LAPLACIAN]
        * table[kernels.Observation.VALUE][kernels.Observation.LAPLACIAN]
    )


def solve(
    product: Callable[[Floats], Floats],
    preconditioner: Callable[[Floats], Floats],
    right: Floats,
    initial: Floats | None,
) -> tuple[Floats, int]:
    """Return the solution (n,) of a positive definite system, and the number of products used.

    `product` multiplies by the matrix, and `preconditioner` by an approximation of its inverse.
    `right` (n,) is the right-hand side, and `initial` is the first guess, or None for zero. Raises
    `ArgumentError` if `MAX_PRODUCTS` iterations are not enough.
    """
    from scipy.sparse.linalg import LinearOperator, cg

    n, count = len(right), 0

    def counted_product(v: Floats) -> Floats:
        nonlocal count
        count += 1
        return product(v)

    as_operator: Any = lambda matvec: LinearOperator((n, n), matvec=matvec, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    solution, failed = cg(
        as_operator(counted_product),
        right,
        x0=initial,
        rtol=RELATIVE_RESIDUAL,
        atol=0.0,
        maxiter=MAX_PRODUCTS,
        M=as_operator(preconditioner),
    )
    if failed:
        raise ArgumentError(
            "nugget is too small for factor='sparse', "
            f"which gave up after {MAX_PRODUCTS} products: pass a larger nugget."
        )
    return solution, count
