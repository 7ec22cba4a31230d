"""The PDE-constrained Gaussian process: the most likely function that satisfies the PDE at points inside and g at the end."""

import math
import time
from typing import Any, ClassVar, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from ..._equations.domain import AbstractDomain, Queries, require_domain
from ..._equations.generator import Generator
from ..._equations.problem import Problem, require_problem
from ..._io.progress import Training, TrainingReport, training_bar
from ..._support.errors import ArgumentError, brief, one_of, positive, whole
from ..._support.precision import use_dtype
from ...execution.moments import Floats
from ...paths import Gaussian
from ...paths.coefficients import Coefficient
from ..collocation import collocation_points, domain_of
from ..terminal import Base, built_in
from ..trained import AbstractTrained, Record
from ..wrapping import ClosedForm, Derivatives, wrap
from . import _kernels as kernels
from ._newton import Constraints, Rate, fit

DENSE = 15_000  # points: a matrix of 1.8 GB
CHUNK = 64


class GaussianProcess(AbstractTrained):
    """u(t, x) = base(t, x) + K((t, x), phi) w for measurements phi at the points (t, x): u, Lap u, u_t, sum_i d_i u.

    The kernel has `width` in x and `width / clock` in t; `t` holds times by that clock.
    """

    kind: ClassVar[str] = "gp"
    problem: Problem
    t: Coefficient  # (n,)
    x: Coefficient  # (n, d)
    weights: Coefficient  # (n, 4)
    draws: Coefficient | None  # of the base; None: no base
    width: float = eqx.field(static=True)
    clock: float = eqx.field(static=True)
    record: Record = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        terms = self._terms(t, x)
        value = jnp.sum(terms.phi * terms.m)
        return self.on_base(value, t, x)

    @property
    def terminal_function(self) -> None:
        """What was learned is small at T, not 0."""
        return None

    @property
    def form(self) -> ClosedForm:
        return ClosedForm(self._derivatives, self.base)

    def _terms(self, t: Array, x: Array) -> kernels.Terms:
        here = lambda a: jnp.asarray(a, x.dtype)
        points = kernels.Points(here(self.t), here(self.x))
        return kernels.terms(self.width, points, here(self.weights), self.clock * t, x)

    def _derivatives(self, t: Array, x: Array) -> Derivatives:
        """Three products with the points, for any d."""
        phi, m, beta, gamma, epsilon, tau = self._terms(t, x)
        centres, rate = jnp.asarray(self.x, x.dtype), -0.5 / self.width**2
        along = phi * (2 * rate * m + 2 * beta)
        # d_ii (phi m) = phi (2 rate m + 2 beta) + square delta_i^2 + linear delta_i, delta = x - centre
        square, linear = phi * (4 * rate**2 * m + 8 * rate * beta), 4 * rate * phi * epsilon
        total = lambda weight: jnp.sum(weight) * x - weight @ centres
        squares = jnp.sum(square) * x**2 - 2 * x * (square @ centres) + square @ centres**2
        return Derivatives(
            u=jnp.sum(phi * m),
            u_t=self.clock * jnp.sum(phi * (2 * rate * tau * m + gamma)),
            gradient=total(along) + jnp.sum(phi * epsilon),
            curvature=jnp.sum(along) + squares + total(linear),
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
        count, width, clock = (
            len(arrays["t"]),
            float(architecture["width"]),
            float(architecture["clock"]),
        )
        shapes = {"t": (count,), "x": (count, problem.dim), "weights": (count, 4)}
        shapes |= {"draws": (len(arrays["draws"]), problem.dim)} if "draws" in arrays else {}
        wrong = {
            name: arrays[name].shape
            for name, shape in shapes.items()
            if arrays[name].shape != shape
        }
        if wrong or arrays.keys() != shapes.keys():
            raise ValueError(
                f"these are not the arrays of a gp in {problem.dim} dimensions: {wrong}"
            )
        return cls(
            problem=problem, **{"draws": None, **arrays}, width=width, clock=clock, record=record
        )


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
    """Fit a Gaussian process to the PDE at `interior` points and to g at `boundary` points (Chen et al. 2021; SCaSML paper).

    For problems with sigma a number, all entries of mu one number, and F of z through sum z only.

    - `preset`: "paper" has points uniform in `domain`, mean 0, and a kernel of width sigma sqrt(d) in t as in x. By default half of the
      points lie along paths from there, and the process is about a base that is g at the end (see `pinn`).
    - `width`: of the kernel in t and in x, by default T/2 and sigma sqrt(d): a kernel much wider than T meets the PDE by a
      Laplacian of no consequence instead of u_t. One number is for both.
    - `nugget`: relative to the variance of each measurement, or that of Laplacians would drown that of values.
    - `iterations`, `damping`, `tolerance`: of Newton's method; it ends when the norm of the gradient is below the last.
    - `factor`: of a matrix with a row per point, "dense" by Cholesky; "sparse" for more points than fit into memory so, by
      conjugate gradients behind a sparse approximation, to the same answer; "auto" goes by the number of points.
    """
    sigma, mu = _coefficients(problem)
    one_of("preset", preset, ("default", "paper"))
    interior = whole("interior", interior, 1, "pass the number of points inside")
    boundary = whole("boundary", boundary, 1, "pass the number of points at the final time")
    iterations = whole("iterations", iterations, 1, "pass how many steps of Newton to allow")
    seed = whole("seed", seed, 0, "pass the seed of the points")
    in_t, in_x = _widths(width, preset, problem, sigma)
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
    is_dense = factor == "dense" or (factor == "auto" and interior + boundary <= DENSE)
    clock = in_x / in_t
    began, cpu = time.perf_counter(), time.process_time()
    with use_dtype(np.dtype(np.float64)), training_bar(progress) as report:

        def tell(iteration: int, norm: float, violation: float) -> None:
            if report is not None:
                report(
                    Training(iteration, iterations, norm, violation, time.perf_counter() - began)
                )

        draws = None if preset == "paper" else built_in(problem, domain, seed)
        t, x = _points(problem, domain, interior, boundary, seed, along_paths)
        rate, terminal = _equations(problem, sigma, mu, t, x, interior, draws)
        points = kernels.Points(clock * t, x)
        fitted = fit(
            Constraints(kernels.Gaussian(in_x), points, clock, rate, terminal, nugget),
            iterations,
            damping,
            tolerance,
            is_dense,
            tell,
        )
    facts = {
        "interior": interior,
        "boundary": boundary,
        "steps": len(fitted.violations),
        "residual": fitted.violations[-1],
        "gradient": fitted.gradient,
        "factor": "dense" if is_dense else "sparse",
        "products": fitted.products,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
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
        record=Record(facts.items()),
    )


def _points(
    problem: Problem,
    domain: AbstractDomain,
    interior: int,
    boundary: int,
    seed: int,
    along_paths: float,
) -> tuple[Floats, Floats]:
    """Points inside, then points at the final time."""
    key, count = jax.random.key(seed), interior + boundary
    t, x = jax.jit(lambda key: collocation_points(problem, domain, key, count, along_paths))(key)
    # The first are those along paths.
    order = np.random.default_rng([seed, 3]).permutation(count)
    t, x = (np.asarray(a, np.float64)[order] for a in (t, x))
    t[interior:] = problem.horizon
    return t, x


def _equations(
    problem: Problem,
    sigma: float,
    mu: float,
    t: Floats,
    x: Floats,
    interior: int,
    draws: Floats | None,
) -> tuple[Rate, Floats]:
    """v_t, for u = base + v, as a function of v, Lap v and sum_i d_i v, with its derivatives; and the values of v at the end."""
    inside = t[:interior], x[:interior]
    if draws is None:
        base = np.zeros(interior), np.zeros((interior, problem.dim)), np.zeros(interior)
        terminal = np.asarray(jax.jit(jax.vmap(problem.terminal))(x[interior:]))
    else:
        generator = Generator(problem, wrap(Base(problem, jnp.asarray(draws)), problem))
        at = lambda point: generator(point[0], point[1], jax.random.key(0))
        base = jax.jit(lambda t, x: jax.lax.map(at, (t, x), batch_size=CHUNK))(*inside)
        terminal = np.zeros(len(t) - interior)

    def rate(free: Array, t: Array, x: Array, base: tuple[Array, Array, Array]) -> Array:
        (v, laplacian, total), (u, z, moved) = free, base
        f = problem.nonlinearity(
            t, x, u + v, z + jnp.full(problem.dim, sigma / problem.dim) * total
        )
        return -(moved + mu * total + 0.5 * sigma**2 * laplacian + f)

    batched = jax.jit(jax.vmap(jax.value_and_grad(rate)))

    def at_points(free: Floats) -> tuple[Floats, Floats]:
        value, slope = batched(free, *inside, base)
        return np.asarray(value), np.asarray(slope)

    return at_points, terminal


def _coefficients(problem: Any) -> tuple[float, float]:
    """sigma and mu, both one number, of a problem that this Gaussian process can take."""
    require_problem(problem)
    refusal = "gp takes problems with one number for sigma, one for mu, and F of sum z: train another surrogate"
    dynamics = problem.dynamics
    if not isinstance(dynamics, Gaussian):
        raise ArgumentError(
            f"problem {problem.name!r} has coefficients that vary, {type(dynamics).__name__}: {refusal}."
        )
    sigma, mu = np.asarray(dynamics.sigma), np.asarray(dynamics.mu)
    number = float(sigma.flat[0])
    if not np.array_equal(
        sigma, number * np.eye(problem.dim) if sigma.ndim == 2 else np.full(sigma.shape, number)
    ):
        raise ArgumentError(
            f"problem {problem.name!r} has a sigma of many numbers, {brief(sigma)}: {refusal}."
        )
    if np.ptp(mu) > 0:
        raise ArgumentError(
            f"problem {problem.name!r} has a mu of many numbers, {brief(mu)}: {refusal}."
        )
    if problem.uses_z and not _of_sum(problem):
        raise ArgumentError(
            f"problem {problem.name!r} has an F of more than the sum of z: {refusal}."
        )
    return number, float(mu.flat[0])


def _of_sum(problem: Problem, tries: int = 8) -> bool:
    """Whether F is the same at z and at its mean, at random points."""
    rng = np.random.default_rng(0)
    t, u = problem.horizon * rng.uniform(size=tries), rng.normal(size=tries)
    x, z = problem.x0 + rng.normal(size=(tries, problem.dim)), rng.normal(size=(tries, problem.dim))
    means = np.broadcast_to(z.mean(1, keepdims=True), z.shape)
    with use_dtype(np.dtype(np.float64)):
        here, there = (
            np.asarray(jax.jit(jax.vmap(problem.nonlinearity))(t, x, u, y)) for y in (z, means)
        )
    return bool(np.allclose(here, there, rtol=1e-9, atol=1e-9, equal_nan=True))


def _widths(width: Any, preset: str, problem: Problem, sigma: float) -> tuple[float, float]:
    if width is None:
        in_x = abs(sigma) * math.sqrt(problem.dim)
        return (in_x, in_x) if preset == "paper" else (problem.horizon / 2, in_x)
    remedy = "pass the width of the kernel, or one in t and one in x"
    if not isinstance(width, tuple | list):
        one = positive("width", width, remedy)
        return one, one
    if len(width) != 2:
        raise ArgumentError(f"width must be one number or two, got {brief(width)}: {remedy}.")
    return positive("width", width[0], remedy), positive("width", width[1], remedy)
