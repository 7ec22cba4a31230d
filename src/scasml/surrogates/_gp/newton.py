"""Fit of a Gaussian process to a PDE: the function of least norm that satisfies constraints.

`fit` takes `Constraints` and returns a `Fit`, which holds the weights of the function. The norm is
that of the reproducing kernel Hilbert space of the kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ..._support.errors import ArgumentError, brief
from ..._support.types import Floats
from . import kernels, sparse
from .constraints import FREE_OBSERVATIONS, Constraints


@dataclass(frozen=True)
class Fit:
    """The result of `fit`."""

    weights: Floats  # (M + B, 4), as in `kernels.polynomial_coefficients`
    violations: list[float]  # root mean square of v_t - rate after each step, with the noise
    gradient: float  # norm of the gradient, together with v_t - rate, after the last step
    products: int  # products with the kernel matrix by the iterative solver; 0 for the dense one


def fit(
    constraints: Constraints,
    iterations: int,
    damping: float,
    tolerance: float,
    is_dense: bool,
    report: Callable[[int, float, float], object],
) -> Fit:
    """Run the Gauss-Newton method from v = 0, with at most `iterations` steps.

    It solves the problem

        minimise |v|^2  subject to  v_t = rate(v, Lap v, D v) at M interior points,  D = sum_i d_i
                                    v = terminal              at B terminal points

    Each step linearises the constraints at the last iterate, and minimises
    |v|^2 + damping |v - last v|^2 subject to them. They are then M + B linear equations A v = r,
    each in the four observations of v at one point. Let K be the covariance matrix of all
    observations. Without damping, the minimiser has the weights A^T l, where the multipliers l
    (M + B,) solve (A K A^T) l = r. At each point these are the four coefficients in A times the
    multiplier of the point. The nugget adds a diagonal matrix to K: the variance of the noise that
    is assumed in each observation.

    `is_dense` selects the Cholesky solver, otherwise conjugate gradients solve the systems. The
    method ends when the norm of the gradient, together with v_t - rate, is below `tolerance`. It
    calls `report` after each step with the number of the step, |v|^2, and the root mean square of
    v_t - rate. All these numbers are those of observations with the noise of the nugget.

    Raises `ArgumentError` if the iteration diverges, or if `nugget` is too small for the solver.
    """
    kernel, points, m = constraints.kernel, constraints.points, constraints.interior
    variances = kernel.variances(points.x.shape[1])
    system = (
        _DenseSystem(constraints, variances)
        if is_dense
        else _IterativeSystem(constraints, variances)
    )
    weights = np.zeros((len(points.t), 4))
    b = np.zeros_like(weights)  # the observations of v with noise, (K + noise) weights
    # The minimiser of a step has the weights pull * last weights + A^T l.
    pull, gradient, violations = damping / (1 + damping), np.inf, []
    a, right, _ = constraints.linearised(b[:m, FREE_OBSERVATIONS])
    while len(violations) < iterations:
        multipliers = system.solve(a, right - pull * np.sum(a * b, 1))
        weights = pull * weights + a * multipliers[:, None]
        b = (
            np.asarray(kernels.observations(kernel, points, points, weights))
            + constraints.nugget * variances * weights
        )
        a, right, value = constraints.linearised(b[:m, FREE_OBSERVATIONS])
        # The method of the SCaSML paper minimises b^T K^-1 b over 3 M free observations of v, where
        # b holds all 4 M + B observations. Both methods have the same stationary points. A step
        # here solves a system of size M + B. A step of the paper solves one of size 3 M and factors
        # a matrix of size 4 M + B.
        # Half the gradient of b^T K^-1 b in the free observations, where K includes the noise.
        # K^-1 b is `weights`. The constraint v_t = rate makes the observation v_t a function of the
        # free ones, whose derivative is -a / clock.
        half_gradient = (
            weights[:m, FREE_OBSERVATIONS]
            - a[:m, FREE_OBSERVATIONS] * weights[:m, [kernels.Observation.TIME]] / constraints.clock
        )
        violation = constraints.clock * b[:m, kernels.Observation.TIME] - value
        gradient = float(np.hypot(2 * np.linalg.norm(half_gradient), np.linalg.norm(violation)))
        if not np.isfinite(gradient):
            raise ArgumentError(
                f"damping is too small for this problem, got {brief(damping)} and a diverging fit: "
                "pass a larger one, such as 1."
            )
        violations.append(float(np.sqrt(np.mean(violation**2))))
        report(len(violations), float(np.sum(weights * b)), violations[-1])
        if gradient < tolerance:
            break
    return Fit(weights, violations, gradient, system.products)


class _DenseSystem:
    """Solves (A K A^T + noise) l = r by Cholesky factorisation of the stored matrix."""

    def __init__(self, constraints: Constraints, variances: Floats):
        self.constraints, self.variances, self.products = constraints, variances, 0

    def solve(self, a: Floats, right: Floats) -> Floats:
        """Return the multipliers l (n,) for coefficients `a` (n, 4) and right-hand side (n,)."""
        from scipy.linalg import LinAlgError, cho_factor, cho_solve

        k, n = self.constraints, len(a)
        matrix = np.array(kernels.covariance(k.kernel, k.points, k.points, a, a))
        matrix[np.diag_indices(n)] += k.nugget * (a**2 @ self.variances)
        try:
            # LAPACK stores matrices by columns. The transpose of a symmetric matrix avoids a copy.
            return cho_solve(
                cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False), right
            )
        except LinAlgError:
            raise ArgumentError(
                f"nugget is too small, got {brief(k.nugget)} and a singular matrix: "
                "pass a larger one."
            ) from None


class _IterativeSystem:
    """Solves (A K A^T + noise) l = r by preconditioned conjugate gradients, without the matrix.

    The preconditioner is reused in later Newton steps, although A has changed. If a solve takes
    more than twice the products of the first solve with this preconditioner, the next solve
    computes a new one.
    """

    def __init__(self, constraints: Constraints, variances: Floats):
        self.constraints, self.variances, self.products = constraints, variances, 0
        self.points = kernels.Points(*map(jnp.asarray, constraints.points))
        self.solution: Floats | None = None  # of the last solve; the next one begins from it
        self.preconditioner: Callable[[Floats], Floats] | None = None
        self.first_products = 0  # products of the first solve with the current preconditioner

    def solve(self, a: Floats, right: Floats) -> Floats:
        """Return the multipliers l (n,) for coefficients `a` (n, 4) and right-hand side (n,)."""
        k = self.constraints
        noise = k.nugget * (a**2 @ self.variances)
        is_new = self.preconditioner is None
        if self.preconditioner is None:
            self.preconditioner = sparse.nystrom_inverse(k.kernel, k.points, a, noise)

        def product(v: Floats) -> Floats:
            b = kernels.observations(k.kernel, self.points, self.points, a * v[:, None])
            return np.sum(a * np.asarray(b), 1) + noise * v

        self.solution, count = sparse.solve(product, self.preconditioner, right, self.solution)
        self.products += count
        self.first_products = count if is_new else self.first_products
        if count > 2 * self.first_products:
            self.preconditioner = None
        return self.solution
