"""The tensor-train surrogate.

`tensor_train` takes a problem and fits a functional tensor train to the PDE by alternating least
squares. It returns a `TensorTrain`, a function of (t, x).
"""

import math
import time
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from ..._equations.domain import AbstractDomain, require_domain
from ..._equations.problem import Problem, Terminal, require_problem
from ..._io.progress import Training, TrainingReport, training_bar
from ..._support.errors import ArgumentError, whole
from ..._support.precision import use_dtype
from ..._support.tracing import abstract_point
from ..._support.types import Floats
from ...paths.coefficients import Coefficient
from ..collocation import domain_of, paths_of
from ..terminal import choose_draws
from ..trained import AbstractTrained, Record, kind, require_shapes
from ..wrapping import ClosedForm, Derivatives
from .features import FeatureMap, in_chunks
from .products import POLYNOMIAL_RANGE, jet, left_products, matrices, right_products
from .sweeps import initial_cores, pad_rank, residual_rms, sweep

INITIAL_RIDGE = 1e-4  # of the first sweep, relative to the mean eigenvalue of the normal equations
# The cores of a sweep are kept if the residual at the held-out states is below this fraction of the
# residual before. A slightly smaller residual does not imply a smaller error.
KEPT_RESIDUAL_RATIO = 0.99


class TensorTrain(AbstractTrained):
    """A function u(t, x) that is an offset plus a tensor train.

        u(t, x) = offset(t, x) + C_0[psi(t)] C_1[phi(y_1)] ... C_d[phi(y_d)]
        C_k[phi] = sum_m phi_m C_k[m]

    with Hermite polynomials phi in each coordinate y_k and Legendre polynomials psi in time. The
    product of matrices is called the train. The core C_k of variable k holds one r x r matrix
    C_k[m] for each of its polynomials, where r is the rank. The matrices of C_0 have only one row,
    and those of C_d only one column, so the product is a number.

    All cores have the same rank r; cores of smaller rank are filled up with zeros. There are p
    polynomials in each coordinate and q polynomials in time.
    """

    kind: ClassVar[str] = "tensor_train"
    problem: Problem
    clock: Coefficient  # C_0, the core of time, (q, r)
    cores: Coefficient  # C_1 ... C_d, (d, p, r, r)
    centre: Coefficient  # (d,); y = (frame @ x - centre) / scale
    scale: Coefficient  # (d,)
    frame: Coefficient | None  # (d, d); None means the identity
    draws: Coefficient | None  # of the offset, a SmoothedTerminal; None if there is no offset
    record: Record = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        cast = lambda a: jnp.asarray(a, x.dtype)
        h = x if self.frame is None else cast(self.frame) @ x
        y = (h - cast(self.centre)) / cast(self.scale)
        value = left_products(self._matrices(self._joined(t, y)))[1][0]
        return self.add_offset(value, t, x)

    @property
    def terminal_function(self) -> Terminal | None:
        """g if there is an offset, because the train is then zero at T; otherwise None."""
        return None if self.draws is None else self.problem.terminal_fn

    @property
    def form(self) -> ClosedForm | None:
        """The derivatives in closed form, or None with a frame, since y_k then depends on all x."""
        if self.frame is not None:
            return None
        return ClosedForm(self._derivatives, self.offset)

    def _derivatives(self, t: Array, x: Array) -> Derivatives:
        """Return the derivatives of the train in t and in each coordinate, without the offset.

        Each variable enters one matrix of the product. The derivative in a variable is the product
        of the row to the left of its matrix, the derivative of the matrix, and the column to the
        right.
        """
        scale = jnp.asarray(self.scale, x.dtype)
        y = (x - jnp.asarray(self.centre, x.dtype)) / scale
        values, slopes, curvatures = jet(self._matrices, self._joined(t, y))
        (left, last), right = left_products(values), right_products(values)
        slope, curvature = (
            jnp.einsum("ka,kab,kb->k", left, each, right) for each in (slopes, curvatures)
        )
        return Derivatives(last[0], slope[0], slope[1:] / scale, curvature[1:] / scale**2)

    def _joined(self, t: Array, y: Array) -> Array:
        """Join t and y into one vector (d + 1,)."""
        return jnp.concatenate([t.astype(y.dtype)[None], y])

    def _matrices(self, v: Array) -> Array:
        """Return the matrices of the train at v = (t, y), shape (d + 1, r, r)."""
        clock, cores = (jnp.asarray(a, v.dtype) for a in (self.clock, self.cores))
        return matrices(v, clock, cores, self.problem.horizon, self.draws is not None)

    def architecture(self) -> dict[str, Any]:
        (d, p, r, _), (q, _) = self.cores.shape, self.clock.shape
        return {"dim": d, "rank": r, "degree": p - 1, "time_degree": q - 1}

    def arrays(self) -> dict[str, Any]:
        names = ("clock", "cores", "centre", "scale", "draws", "frame")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @classmethod
    def build(
        cls,
        problem: Problem,
        architecture: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        record: Record,
    ) -> Self:
        d, r = architecture["dim"], architecture["rank"]
        p, q = architecture["degree"] + 1, architecture["time_degree"] + 1
        shapes = {"clock": (q, r), "cores": (d, p, r, r), "centre": (d,), "scale": (d,)}
        shapes |= {"frame": (d, d)} if "frame" in arrays else {}
        require_shapes(arrays, shapes, d)
        if d != problem.dim:
            raise ValueError(f"a train in {d} dimensions")
        return cls(problem=problem, **{"frame": None, "draws": None, **arrays}, record=record)


@kind(TensorTrain)
def tensor_train(
    problem: Problem,
    *,
    rank: int = 3,
    degree: int = 2,
    iterations: int = 6,
    paths: int = 6000,
    domain: AbstractDomain | None = None,
    seed: int = 0,
    progress: bool | TrainingReport = False,
) -> TensorTrain:
    """Fit a tensor train to the PDE by alternating least squares on its residual.

    As in Richter, Sallandt & Nuesken (ICML 2021), the cores are fitted one after the other, forward
    and backward in turn, at states of simulated paths. The fit minimises the mean square of the
    residual

        eps = u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) + F(t, x, u, z)

    at those states, linearised by Newton's method. A correction integrates the same residual along
    the same paths. A sweep solves for all cores once, at states of new paths. Its cores are kept if
    the residual at held-out states, which no sweep uses, falls by more than 1 %.

    If g is smooth, the offset equals g at T and the train is zero there. If g may have kinks, there
    is no offset: a kink adds a measure to the Laplacian, which the residual at a state does not
    contain. A quarter of the states then lie at T, where u(T, x) = g(x) is fitted.

    **Arguments:**

    - `problem`: a problem whose sigma is diagonal or a constant matrix.
    - `rank`: the number of rows and columns of the matrices of the train.
    - `degree`: the largest degree of the polynomials in each coordinate.
    - `iterations`: the number of sweeps.
    - `paths`: the number of states in each sweep, each from a path of its own.
    - `domain`: where the paths begin; by default the domain of the problem, or x0 at time 0.
    - `seed`: the seed of the paths and of the initial cores.
    - `progress`: True shows a bar; a function is called with a `Training` after every sweep.

    **Returns:** a `TensorTrain`.

    **Raises:** `ArgumentError` for a problem that is not supported, an invalid argument, or a
    residual that is not finite.
    """
    require_problem(problem)
    rank = whole("rank", rank, 1, "pass the size of the cores, such as 3")
    degree = whole(
        "degree", degree, 1, "pass the degree of the polynomials in each coordinate, such as 2"
    )
    iterations = whole("iterations", iterations, 1, "pass the number of sweeps over the cores")
    paths = whole("paths", paths, 1, "pass the number of simulated paths in each sweep")
    seed = whole("seed", seed, 0, "pass the seed of the paths")
    domain = domain_of(problem) if domain is None else domain
    require_domain(domain, problem.dim)
    began, cpu_began = time.perf_counter(), time.process_time()
    with use_dtype(np.dtype(np.float64)):
        frame = _independent_frame(problem)
        draws = choose_draws(problem, domain, seed)
        t, x = _draw_states(
            problem, domain, jax.random.key(seed), (iterations + 1) * paths, draws is not None
        )
        centre, scale = _centre_and_scale(x if frame is None else x @ frame.T)
        features = FeatureMap(problem, frame, draws, centre, scale, degree)
        states = zip(
            t.reshape(iterations + 1, paths), x.reshape(iterations + 1, paths, -1), strict=True
        )
        held_out = features.batch(*next(states))
        cores = initial_cores(problem.dim, rank, degree, seed)
        loss, ridge, forward, residuals = residual_rms(held_out, cores), INITIAL_RIDGE, True, []
        if not math.isfinite(loss):
            raise ArgumentError(
                "problem must have a finite g and F where paths go, "
                f"got a residual of {loss}: pass another domain."
            )
        with training_bar(progress) as report:
            for step, (t, x) in enumerate(states, 1):
                new_cores = sweep(features.batch(t, x), cores, forward, ridge)
                new_loss = residual_rms(held_out, new_cores)
                # The rule of Levenberg and Marquardt: damp less after a success, more otherwise.
                if new_loss < KEPT_RESIDUAL_RATIO * loss:
                    ridge *= min(0.5, (new_loss / loss) ** 2)
                    cores, loss, forward = new_cores, new_loss, not forward
                else:
                    ridge *= 10
                residuals.append(loss)
                if report is not None:
                    report(Training(step, iterations, loss**2, loss, time.perf_counter() - began))
    record = {
        "rank": rank,
        "degree": degree,
        "steps": iterations,
        "residual": loss,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
        "residuals": residuals,
    }
    return TensorTrain(
        problem=problem,
        clock=pad_rank(cores[0], rank)[0],
        cores=np.stack([pad_rank(core, rank).transpose(1, 0, 2) for core in cores[1:]]),
        centre=centre,
        scale=scale,
        frame=frame,
        draws=draws,
        record=Record(record.items()),
    )


def _independent_frame(problem: Problem) -> Floats | None:
    """Return a matrix P (d, d) such that independent Brownian motions drive the entries of P X.

    This is sigma^-1 for a constant matrix sigma, and None, which means the identity, for a diagonal
    sigma. Raises `ArgumentError` for a matrix that depends on (t, x).
    """
    sigma = problem.dynamics.constant_diffusion
    if sigma is not None:
        return (
            np.linalg.inv(np.asarray(sigma, np.float64)).astype(np.float64)
            if np.ndim(sigma) == 2
            else None
        )
    shape = jax.eval_shape(problem.diffusion, *abstract_point(problem.dim)).shape
    if len(shape) == 2:
        raise ArgumentError(
            "problem must have a diffusion that is diagonal or constant, "
            f"got a matrix {shape} that depends on (t, x): train another surrogate."
        )
    return None


def _draw_states(
    problem: Problem, domain: AbstractDomain, key: PRNGKeyArray, count: int, has_offset: bool
) -> tuple[Floats, Floats]:
    """Draw times (count,) and states (count, d), each from a path of its own.

    A path begins at a point of the domain. Its state is taken at a time that is uniform between the
    time of that point and T. Without an offset a quarter of the states are taken at T instead.
    """
    horizon, path_law = problem.horizon, paths_of(problem)

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        key_start, key_time, key_path = jax.random.split(key, 3)
        t, x = (a.astype(float) for a in domain.draw(key_start, problem.dim, horizon))
        fraction = jax.random.uniform(key_time, minval=1e-6) * (1 if has_offset else 4 / 3)
        duration = jnp.minimum(fraction, 1.0) * (horizon - t)
        state_time = jnp.where(fraction < 1, t + duration, horizon)
        return state_time, path_law.jump(key_path, t, x, duration, False).x

    return in_chunks(jax.jit(jax.vmap(one)), jax.random.split(key, count))


def _centre_and_scale(h: Floats) -> tuple[Floats, Floats]:
    """Return centre (d,) and scale (d,), such that |h - centre| <= POLYNOMIAL_RANGE * scale.

    `h` (n, d) holds the states in the coordinates of the frame.
    """
    centre = np.mean(h, 0)
    return centre, np.max(np.abs(h - centre), 0) / POLYNOMIAL_RANGE
