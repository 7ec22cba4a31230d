"""The Gaussian process surrogate.

`gp` takes a problem and fits the most likely function that satisfies the PDE at interior points and
the terminal condition at terminal points. It returns a `GaussianProcess`, which evaluates that
function and its derivatives.
"""

import time
from typing import Any, ClassVar, Literal, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from ..._equations.domain import AbstractDomain, Queries, require_domain
from ..._equations.problem import Problem
from ..._io.progress import Training, TrainingReport, training_bar
from ..._support.errors import one_of, positive, whole
from ..._support.precision import use_dtype
from ...paths.coefficients import Coefficient
from ..collocation import domain_of
from ..terminal import choose_draws
from ..trained import AbstractTrained, Record, kind, require_shapes
from ..wrapping import ClosedForm, Derivatives
from . import kernels
from .checks import constant_coefficients, kernel_widths
from .constraints import Constraints, draw_points, rate_and_terminal
from .newton import fit

MAX_DENSE_POINTS = 15_000  # up to here factor="auto" stores the matrix, of at most 1.8 GB


class GaussianProcess(AbstractTrained):
    """The function u(t, x) = offset(t, x) + sum_j sum_b weights[j, b] K_b(y, y_j).

    Here y = (clock t, x), and y_j = (t[j], x[j]) is a point of the fit. K_b(y, y_j) is the
    covariance of the value at y and observation b at y_j. The four observations of a function v are
    v, Lap v, v_t and sum_i d_i v; see `kernels`. The kernel has the width `width` in x and
    `width / clock` in the time of the PDE.

    The `residual` of the record is shown as "constraint violation". It is the violation of the PDE
    by the observations with the noise of the nugget, and not the residual of the fitted function.
    """

    kind: ClassVar[str] = "gp"
    residual_name: ClassVar[str] = "constraint violation"
    problem: Problem
    t: Coefficient  # (n,), the times of the points, multiplied by `clock`
    x: Coefficient  # (n, d)
    weights: Coefficient  # (n, 4)
    draws: Coefficient | None  # of the offset, a SmoothedTerminal; None if there is no offset
    width: float = eqx.field(static=True)
    clock: float = eqx.field(static=True)  # the time of the kernel over that of the PDE
    record: Record = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        terms = self._terms(t, x)
        value = jnp.sum(terms.phi * terms.m)
        return self.add_offset(value, t, x)

    @property
    def terminal_function(self) -> None:
        """None, since the sum over the points is small at T but not zero."""
        return None

    @property
    def form(self) -> ClosedForm:
        return ClosedForm(self._derivatives, self.offset)

    def _terms(self, t: Array, x: Array) -> kernels.Terms:
        """Return the terms of the sum over the points at (t, x), in the dtype of `x`."""
        cast = lambda a: jnp.asarray(a, x.dtype)
        points = kernels.Points(cast(self.t), cast(self.x))
        kernel = kernels.Gaussian(self.width)
        return kernels.terms_at(kernel, points, cast(self.weights), self.clock * t, x)

    def _derivatives(self, t: Array, x: Array) -> Derivatives:
        """Return the derivatives at (t, x) of the sum over the points, without the offset.

        With delta = x - x_j and phi = exp(c (tau^2 + |delta|^2)), the term phi m of a point has

            d_i (phi m)  = slope delta_i + phi epsilon
            d_ii (phi m) = slope + square delta_i^2 + linear delta_i

        The sums over j are products of vectors over j with the matrix of points (n, d).
        """
        phi, m, beta, gamma, epsilon, tau = self._terms(t, x)
        centres, c = jnp.asarray(self.x, x.dtype), kernels.Gaussian(self.width).exponent
        slope = phi * (2 * c * m + 2 * beta)
        square, linear = phi * (4 * c**2 * m + 8 * c * beta), 4 * c * phi * epsilon
        # Sums over j of a coefficient times delta, and of `square` times delta^2.
        sum_delta = lambda coefficient: jnp.sum(coefficient) * x - coefficient @ centres
        sum_squares = jnp.sum(square) * x**2 - 2 * x * (square @ centres) + square @ centres**2
        return Derivatives(
            u=jnp.sum(phi * m),
            u_t=self.clock * jnp.sum(phi * (2 * c * tau * m + gamma)),
            gradient=sum_delta(slope) + jnp.sum(phi * epsilon),
            curvature=jnp.sum(slope) + sum_squares + sum_delta(linear),
        )

    def architecture(self) -> dict[str, Any]:
        return {"width": self.width, "clock": self.clock}

    def arrays(self) -> dict[str, Any]:
        named = {"t": self.t, "x": self.x, "weights": self.weights, "draws": self.draws}
        return {name: array for name, array in named.items() if array is not None}

    @classmethod
    def build(
        cls,
        problem: Problem,
        architecture: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        record: Record,
    ) -> Self:
        count = len(arrays["t"])
        width, clock = float(architecture["width"]), float(architecture["clock"])
        shapes = {"t": (count,), "x": (count, problem.dim), "weights": (count, 4)}
        require_shapes(arrays, shapes, problem.dim)
        return cls(
            problem=problem, **{"draws": None, **arrays}, width=width, clock=clock, record=record
        )


@kind(GaussianProcess)
def gp(
    problem: Problem,
    *,
    preset: Literal["default", "paper"] = "default",
    interior: int = 1000,
    boundary: int = 200,
    width: float | tuple[float, float] | None = None,
    nugget: float = 1e-4,
    domain: AbstractDomain | None = None,
    iterations: int = 20,
    damping: float = 1e-4,
    tolerance: float = 1e-5,
    factor: Literal["auto", "dense", "sparse"] = "auto",
    seed: int = 0,
    progress: bool | TrainingReport = False,
) -> GaussianProcess:
    """Fit a Gaussian process to the PDE at `interior` points and to g at `boundary` points.

    The method is that of Chen, Hosseini, Owhadi & Stuart (2021) and of the SCaSML paper.

    **Arguments:**

    - `problem`: a problem whose sigma is one number, whose mu is one number, constant in (t, x),
        and whose F uses z only through sum z.
    - `preset`: "paper" draws points uniformly in `domain`, has prior mean zero, and a kernel of
        width sigma sqrt(d) in t and in x. "default" draws half of the points along paths from the
        domain, or all of them if the domain is a list of points. Its prior mean is an offset that
        equals g at T, or zero if g may have kinks.
    - `interior`: the number of points at which the PDE is imposed.
    - `boundary`: the number of points at T at which u = g is imposed.
    - `width`: the widths of the kernel in t and in x, or one number for both. The default is T/2
        and sigma sqrt(d). With a width in t much larger than T, the fit satisfies the PDE by a
        change of the Laplacian instead of u_t.
    - `nugget`: the variance of the noise that is assumed in each observation, relative to the prior
        variance of that observation. The prior variances of values and Laplacians differ greatly.
    - `domain`: where points are drawn; by default the domain of the problem, or x0 at time 0.
    - `iterations`: the largest number of Newton steps.
    - `damping`: the factor of the squared distance to the last iterate, which each step adds to the
        squared norm that it minimises.
    - `tolerance`: Newton's method ends when the norm of the gradient, together with the violation
        of the PDE, is below this number.
    - `factor`: how each linear system, with one row per point, is solved. "dense" stores the matrix
        and uses Cholesky. "sparse" uses conjugate gradients, for more points than fit into memory,
        and gives the same answer to a relative residual of 1e-7. "auto" decides by the number of
        points.
    - `seed`: the seed of the points.
    - `progress`: True shows a bar; a function is called with a `Training` after every step.

    **Returns:** a `GaussianProcess`.

    **Raises:** `ArgumentError` for a problem that is not supported, an invalid argument, a fit that
    diverges, or a linear system that cannot be solved.
    """
    sigma, mu = constant_coefficients(problem)
    one_of("preset", preset, ("default", "paper"))
    interior = whole("interior", interior, 1, "pass the number of points inside")
    boundary = whole("boundary", boundary, 1, "pass the number of points at the final time")
    iterations = whole("iterations", iterations, 1, "pass how many steps of Newton to allow")
    seed = whole("seed", seed, 0, "pass the seed of the points")
    in_t, in_x = kernel_widths(width, preset, problem, sigma)
    nugget = positive(
        "nugget", nugget, "pass a small share of the variance, such as 1e-4", or_zero=True
    )
    damping = positive(
        "damping", damping, "pass a pull to the last iterate, such as 1e-4", or_zero=True
    )
    tolerance = positive(
        "tolerance", tolerance, "pass a norm of the gradient, such as 1e-5", or_zero=True
    )
    one_of("factor", factor, ("auto", "dense", "sparse"))
    domain = domain_of(problem) if domain is None else domain
    require_domain(domain, problem.dim)
    along_paths = 0.0 if preset == "paper" else 1.0 if isinstance(domain, Queries) else 0.5
    is_dense = factor == "dense" or (factor == "auto" and interior + boundary <= MAX_DENSE_POINTS)
    clock = in_x / in_t
    began, cpu_began = time.perf_counter(), time.process_time()
    with use_dtype(np.dtype(np.float64)), training_bar(progress) as report:

        def report_step(iteration: int, norm: float, violation: float) -> None:
            if report is not None:
                report(
                    Training(iteration, iterations, norm, violation, time.perf_counter() - began)
                )

        draws = None if preset == "paper" else choose_draws(problem, domain, seed)
        t, x = draw_points(problem, domain, interior, boundary, seed, along_paths)
        rate, terminal = rate_and_terminal(problem, sigma, mu, t, x, interior, draws)
        points = kernels.Points(clock * t, x)
        fitted = fit(
            Constraints(kernels.Gaussian(in_x), points, clock, rate, terminal, nugget),
            iterations,
            damping,
            tolerance,
            is_dense,
            report_step,
        )
    record = {
        "interior": interior,
        "boundary": boundary,
        "steps": len(fitted.violations),
        "residual": fitted.violations[-1],
        "gradient": fitted.gradient,
        "factor": "dense" if is_dense else "sparse",
        "products": fitted.products,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
        "residuals": fitted.violations,
    }
    return GaussianProcess(
        problem=problem,
        t=points.t,
        x=x,
        weights=fitted.weights,
        draws=draws,
        width=in_x,
        clock=clock,
        record=Record(record.items()),
    )
