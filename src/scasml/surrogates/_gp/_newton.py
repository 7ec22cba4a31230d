"""The function of least norm that satisfies a PDE at points: Gauss-Newton on constraints, one unknown for each.

    min |v|^2  over  v_t = rate(point, v, Lap v, D v) at M points, v = terminal at B points,    D = sum_i d_i

Linearised at the last iterate, the constraints are M + B linear measurements A of v, and v = K A^T l with
(A K A^T) l = right-hand side: a system of M + B, where Newton's method for the 3 M free measurements of v has one of 3 M and a
factor of 4 M + B. Both stop at the same points: where the gradient of b^T K^-1 b in the free measurements is 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ..._support.errors import ArgumentError, brief
from ...execution.moments import Floats
from . import _kernels as kernels
from . import _sparse as sparse

FREE = [kernels.VALUE, kernels.LAPLACIAN, kernels.SUM]
Rate = Callable[[Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class Fit:
    weights: Floats  # (M + B, 4)
    violations: list[
        float
    ]  # how far the constraints were from being met, after each iteration; root mean squares
    gradient: float
    products: int  # with the whole kernel matrix, by the iterative solver


@dataclass(frozen=True)
class Constraints:
    """The first M points are interior; `rate` takes (M, 3) free measurements to its value (M,) and derivatives (M, 3)."""

    kernel: kernels.Gaussian
    points: kernels.Points
    clock: float  # the kernel's time runs this much faster
    rate: Rate
    terminal: Floats
    nugget: float

    @property
    def interior(self) -> int:
        return len(self.points.t) - len(self.terminal)

    def linearised(self, free: Floats) -> tuple[Floats, Floats, Floats]:
        """A as (M + B, 4), its right-hand side, and the rate."""
        value, slope = self.rate(free)
        a = np.zeros((len(self.points.t), 4))
        a[: self.interior, FREE] = -slope
        a[: self.interior, kernels.TIME] = self.clock
        a[self.interior :, kernels.VALUE] = 1.0
        return a, np.concatenate([value - np.sum(slope * free, 1), self.terminal]), value


def fit(
    constraints: Constraints,
    iterations: int,
    damping: float,
    tolerance: float,
    is_dense: bool,
    report: Callable[[int, float, float], object],
) -> Fit:
    """`damping` d pulls each step towards the last iterate: min |v|^2 + d |v - v_last|^2.

    `report` is told the iteration, |v|^2, and how far the constraints are from being met.
    """
    k, m = constraints, constraints.interior
    variances = k.kernel.variances(k.points.x.shape[1])
    system = _Dense(k, variances) if is_dense else _Sparse(k, variances)
    weights = np.zeros((len(k.points.t), 4))
    b = np.zeros_like(weights)
    pull, gradient, violations = damping / (1 + damping), np.inf, []
    a, right, _ = k.linearised(b[:m, FREE])
    while len(violations) < iterations:
        multipliers = system.solve(a, right - pull * np.sum(a * b, 1))
        weights = pull * weights + a * multipliers[:, None]
        b = (
            np.asarray(kernels.measured(k.kernel, k.points, k.points, weights))
            + k.nugget * variances * weights
        )
        a, right, value = k.linearised(b[:m, FREE])
        # K^-1 b = weights, and the measurement u_t follows the free ones at the rate -a.
        along = weights[:m, FREE] - a[:m, FREE] * weights[:m, [kernels.TIME]] / k.clock
        violation = k.clock * b[:m, kernels.TIME] - value
        gradient = float(np.hypot(2 * np.linalg.norm(along), np.linalg.norm(violation)))
        if not np.isfinite(gradient):
            raise ArgumentError(
                f"damping is too small for this problem, got {brief(damping)} and a diverging fit: pass a larger one, such as 1."
            )
        violations.append(float(np.sqrt(np.mean(violation**2))))
        report(len(violations), float(np.sum(weights * b)), violations[-1])
        if gradient < tolerance:
            break
    return Fit(weights, violations, gradient, system.products)


class _Dense:
    """(A K A^T) by Cholesky."""

    def __init__(self, k: Constraints, variances: Floats):
        self.k, self.variances, self.products = k, variances, 0

    def solve(self, a: Floats, right: Floats) -> Floats:
        from scipy.linalg import LinAlgError, cho_factor, cho_solve

        k, n = self.k, len(a)
        matrix = np.array(kernels.covariance(k.kernel, k.points, k.points, a, a))
        matrix[np.diag_indices(n)] += k.nugget * (a**2 @ self.variances)
        try:
            # LAPACK thinks in columns: the transpose of a symmetric matrix spares a copy.
            return cho_solve(
                cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False), right
            )
        except LinAlgError:
            raise ArgumentError(
                f"nugget is too small, got {brief(k.nugget)} and a singular matrix: pass a larger one."
            ) from None


class _Sparse:
    """(A K A^T) by conjugate gradients. A factor serves the next steps too, until it takes twice as many products as it did."""

    def __init__(self, k: Constraints, variances: Floats):
        self.k, self.variances, self.products = k, variances, 0
        self.points = kernels.Points(*map(jnp.asarray, k.points))
        self.last: Floats | None = None
        self.factor: Callable[[Floats], Floats] | None = None
        self.at_first = 0

    def solve(self, a: Floats, right: Floats) -> Floats:
        noise = self.k.nugget * (a**2 @ self.variances)
        is_new = self.factor is None
        if self.factor is None:
            self.factor = sparse.low_rank(self.k.kernel, self.k.points, a, noise)

        def product(v: Floats) -> Floats:
            measured = kernels.measured(self.k.kernel, self.points, self.points, a * v[:, None])
            return np.sum(a * np.asarray(measured), 1) + noise * v

        self.last, count = sparse.solve(product, self.factor, right, self.last)
        self.products += count
        self.at_first = count if is_new else self.at_first
        if count > 2 * self.at_first:
            self.factor = None
        return self.last
