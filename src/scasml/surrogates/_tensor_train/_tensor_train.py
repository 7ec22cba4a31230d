"""A functional tensor train, fitted to the PDE itself by alternating least squares.

    uh(t, x) = base(t, x) + C_0[psi(t)] C_1[phi(y_1)] ... C_d[phi(y_d)],    C_k[phi] = sum_m phi_m C_k[m]

Hermite polynomials phi in each coordinate y, Legendre polynomials psi in time, r x r matrices C_k[m]. As in Richter, Sallandt
& Nuesken (ICML 2021) the cores are found one after the other, there and back, on states of simulated paths. Unlike there the
rows of the least squares are not noisy steps of a BSDE but Newton's linearisation of the residual

    eps = uh_t + <mu, grad uh> + 1/2 Tr(sigma sigma^T Hess uh) + F(t, x, uh, zh)

at those states: linear in each core, without noise, and without a step in time. It is what the simulation of the defect
integrates along the same paths.

The base is g at T, and the train is then 0 there. Where g may have kinks there is no base, since the residual would miss them, and
uh(T, x) = g(x) is fitted in further rows.
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
from ...execution.moments import Floats
from ...paths.coefficients import Coefficient
from ..collocation import domain_of, paths_of
from ..terminal import built_in
from ..trained import AbstractTrained, Record
from ..wrapping import ClosedForm, Derivatives
from ._sweeps import Features, first_guess, in_chunks, padded
from ._train_product import REACH, jet, lefts, matrices, rights

RIDGE = (
    1e-4  # of the first sweep, in units of the mean eigenvalue; relative to the cores as they are
)
WORTH = 0.99  # a smaller residual is not always a smaller error: of a sweep that hardly makes a difference nothing is kept


class TensorTrain(AbstractTrained):
    """uh(t, x) from its cores; zeros fill up the ranks that are smaller than the largest."""

    kind: ClassVar[str] = "tensor_train"
    problem: Problem
    clock: Coefficient  # C_0, (q, r)
    cores: Coefficient  # C_1 ... C_d, (d, p, r, r)
    centre: Coefficient  # y = (P x - centre)/scale
    scale: Coefficient
    frame: Coefficient | None  # P; None: the identity
    draws: Coefficient | None  # of the base; None: no base
    record: Record = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        here = lambda a: jnp.asarray(a, x.dtype)
        y = ((x if self.frame is None else here(self.frame) @ x) - here(self.centre)) / here(
            self.scale
        )
        value = lefts(self._matrices(self._joined(t, y)))[1][0]
        return self.on_base(value, t, x)

    @property
    def terminal_function(self) -> Terminal | None:
        return None if self.draws is None else self.problem.terminal_fn

    @property
    def form(self) -> ClosedForm | None:
        """The coordinates of a frame are not those of x."""
        if self.frame is not None:
            return None
        return ClosedForm(self._derivatives, self.base)

    def _derivatives(self, t: Array, x: Array) -> Derivatives:
        """Of the product: each matrix in turn gives way to its derivative."""
        scale = jnp.asarray(self.scale, x.dtype)
        y = (x - jnp.asarray(self.centre, x.dtype)) / scale
        values, slopes, curves = jet(self._matrices, self._joined(t, y))
        (left, end), right = lefts(values), rights(values)
        slope, curve = (jnp.einsum("ka,kab,kb->k", left, each, right) for each in (slopes, curves))
        return Derivatives(end[0], slope[0], slope[1:] / scale, curve[1:] / scale**2)

    def _joined(self, t: Array, y: Array) -> Array:
        return jnp.concatenate([t.astype(y.dtype)[None], y])

    def _matrices(self, v: Array) -> Array:
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
        shapes |= {"draws": (len(arrays["draws"]), d)} if "draws" in arrays else {}
        wrong = {
            name: arrays[name].shape
            for name, shape in shapes.items()
            if arrays[name].shape != shape
        }
        if wrong or d != problem.dim or arrays.keys() != shapes.keys():
            raise ValueError(
                f"arrays do not fit the architecture {architecture} of {problem.dim} dimensions: {wrong}"
            )
        return cls(problem=problem, **{"frame": None, "draws": None, **arrays}, record=record)


def tensor_train(
    problem: Problem,
    *,
    rank: int = 3,
    degree: int = 2,
    steps: int = 6,
    paths: int = 6000,
    domain: AbstractDomain | None = None,
    seed: int = 0,
    progress: bool | TrainingReport = False,
) -> TensorTrain:
    """Train a tensor train of `rank` in polynomials of `degree` on the residual of the PDE.

    Each of `steps` sweeps over the cores, there and back in turn, sees `paths` fresh states of paths that start in `domain`,
    by default the problem's, or x0 at time 0. It is kept if the residual at states set aside is smaller for it.
    """
    require_problem(problem)
    rank = whole("rank", rank, 1, "pass the size of the cores, such as 3")
    degree = whole(
        "degree", degree, 1, "pass the degree of the polynomials in each coordinate, such as 2"
    )
    steps = whole("steps", steps, 1, "pass the number of sweeps over the cores")
    paths = whole("paths", paths, 1, "pass the number of simulated paths in each sweep")
    seed = whole("seed", seed, 0, "pass the seed of the paths")
    domain = domain_of(problem) if domain is None else domain
    require_domain(domain, problem.dim)
    began, cpu_began = time.perf_counter(), time.process_time()
    with use_dtype(np.dtype(np.float64)):
        frame = _frame(problem)
        draws = built_in(problem, domain, seed)
        t, x = _states(
            problem, domain, jax.random.key(seed), (steps + 1) * paths, draws is not None
        )
        centre, scale = _units(x if frame is None else x @ frame.T)
        features = Features(problem, frame, draws, centre, scale, degree)
        batches = zip(t.reshape(steps + 1, paths), x.reshape(steps + 1, paths, -1), strict=True)
        held_out = features.rows(*next(batches))
        cores = first_guess(problem.dim, rank, degree, seed)
        loss, ridge, forward, residuals = held_out.loss(cores), RIDGE, True, []
        if not math.isfinite(loss):
            raise ArgumentError(
                f"problem must have a finite g and F where paths go, got a residual of {loss}: pass another domain."
            )
        with training_bar(progress) as report:
            for sweep, at in enumerate(batches, 1):
                new = features.rows(*at).swept(cores, forward, ridge)
                new_loss = held_out.loss(new)
                if new_loss < WORTH * loss:
                    ridge *= min(
                        0.5, (new_loss / loss) ** 2
                    )  # as Levenberg and Marquardt have it near a root
                    cores, loss, forward = new, new_loss, not forward
                else:
                    ridge *= 10
                residuals.append(loss)
                if report is not None:
                    report(Training(sweep, steps, loss**2, loss, time.perf_counter() - began))
    record = {
        "rank": rank,
        "degree": degree,
        "steps": steps,
        "residual": loss,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
        "residuals": residuals,
    }
    return TensorTrain(
        problem=problem,
        clock=padded(cores[0], rank)[0],
        cores=np.stack([padded(core, rank).transpose(1, 0, 2) for core in cores[1:]]),
        centre=centre,
        scale=scale,
        frame=frame,
        draws=draws,
        record=Record(record.items()),
    )


def _frame(problem: Problem) -> Floats | None:
    """Coordinates whose noises are independent: sigma^-1 for a constant matrix sigma."""
    sigma = problem.dynamics.constant_diffusion
    if sigma is not None:
        return (
            np.linalg.inv(np.asarray(sigma, np.float64)).astype(np.float64)
            if np.ndim(sigma) == 2
            else None
        )
    t, x = (jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in ((), (problem.dim,)))
    shape = jax.eval_shape(problem.diffusion, t, x).shape
    if len(shape) == 2:
        raise ArgumentError(
            f"problem must have a diffusion that is diagonal or constant, got a matrix {shape} that depends on (t, x): "
            "train another surrogate."
        )
    return None


def _states(
    problem: Problem, domain: AbstractDomain, key: PRNGKeyArray, count: int, anchored: bool
) -> tuple[Floats, Floats]:
    """Paths from the domain, each at one later time, uniform up to T; without a base a quarter of them at T."""
    final, equation = problem.horizon, paths_of(problem)

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        key_start, key_time, key_path = jax.random.split(key, 3)
        t, x = (a.astype(float) for a in domain.draw(key_start, problem.dim, final))
        part = jax.random.uniform(key_time, minval=1e-6) * (1 if anchored else 4 / 3)
        duration = jnp.minimum(part, 1.0) * (final - t)
        return jnp.where(part < 1, t + duration, final), equation.jump(
            key_path, t, x, duration, False
        ).x

    return in_chunks(jax.jit(jax.vmap(one)), jax.random.split(key, count))


def _units(h: Floats) -> tuple[Floats, Floats]:
    centre = np.mean(h, 0)
    return centre, np.max(np.abs(h - centre), 0) / REACH
