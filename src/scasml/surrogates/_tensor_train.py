"""A functional tensor train, fitted to the PDE itself by alternating least squares.

    uh(t, x) = base(t, x) + C_0[psi(t)] C_1[phi(y_1)] ... C_d[phi(y_d)],    C_k[phi] = sum_m phi_m C_k[m]

Hermite polynomials phi in each coordinate y, Legendre polynomials psi in time, r x r matrices C_k[m]. As in Richter, Sallandt
& Nuesken (ICML 2021) the cores are found one after the other, there and back, on states of simulated paths. Unlike there the
rows of the least squares are not noisy steps of a BSDE but Newton's linearisation of the residual

    eps = uh_t + <mu, grad uh> + 1/2 Tr(sigma sigma^T Hess uh) + F(t, x, uh, zh)

at those states: linear in each core, without noise, and without a step in time. It is what the simulation of the defect
integrates along the same paths.

The base is the mean of g over a few antithetic draws of Euler's step to T, which is g itself at T; the train is then 0 there.
Where g may have kinks there is no base, since the residual would miss them, and uh(T, x) = g(x) is fitted in further rows.
"""

import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from ..coefficients import Coefficient
from ..domain import AbstractDomain, require_domain
from ..errors import ArgumentError, whole
from ..generator import Generator
from ..precision import precision
from ..problem import Problem, require_problem
from ..progress import Training, TrainingReport, training_bar
from ..roughness import terminal_may_be_rough
from ..surrogate import wrap
from .collocation import domain_of, paths_of
from .own import AbstractTrained, Record
from .terminal import Base, directions

DIRECTIONS = 4  # of the base
REACH = 3.5  # of y where the paths go: phi is a polynomial there, and levels off beyond
TIME_DEGREE = 7
SPREAD = 0.3  # of the first guess of the cores
RIDGE = 1e-4  # of the first sweep, in units of the mean eigenvalue; relative to the cores as they are
CHUNK = 256
WORTH = (
    0.99  # a smaller residual is not always a smaller error: of a sweep that hardly makes a difference nothing is kept
)

Floats = NDArray[Any]


class TensorTrain(AbstractTrained):
    """uh(t, x) from its cores; zeros fill up the ranks that are smaller than the largest."""

    kind: ClassVar[str] = "tensor_train"
    problem: Problem
    clock: Coefficient  # C_0, (q, r)
    cores: Coefficient  # C_1 ... C_d, (d, p, r, r)
    centre: Coefficient  # y = (P x - centre)/scale
    scale: Coefficient
    frame: Coefficient | None  # P; None: the identity
    draws: Coefficient  # of the base, (K, d); K = 0: no base
    record: Record = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        here = lambda a: jnp.asarray(a, x.dtype)
        y = ((x if self.frame is None else here(self.frame) @ x) - here(self.centre)) / here(self.scale)
        anchored = len(self.draws) > 0
        train = _train(
            jnp.concatenate([t.astype(x.dtype)[None], y]),
            here(self.clock),
            here(self.cores),
            self.problem.horizon,
            anchored,
        )
        return train + Base(self.problem, self.draws)(t, x) if anchored else train

    @property
    def form(self) -> None:
        return None

    def architecture(self) -> dict[str, Any]:
        (d, p, r, _), (q, _) = self.cores.shape, self.clock.shape
        return {"dim": d, "rank": r, "degree": p - 1, "time_degree": q - 1, "draws": len(self.draws)}

    def arrays(self) -> dict[str, Array]:
        names = ("clock", "cores", "centre", "scale", "draws", *(() if self.frame is None else ("frame",)))
        return {name: getattr(self, name) for name in names}

    @classmethod
    def build(
        cls, problem: Problem, architecture: dict[str, Any], arrays: dict[str, NDArray[Any]], record: Record
    ) -> Self:
        d, r, k = (architecture[name] for name in ("dim", "rank", "draws"))
        p, q = architecture["degree"] + 1, architecture["time_degree"] + 1
        shapes = {"clock": (q, r), "cores": (d, p, r, r), "centre": (d,), "scale": (d,), "draws": (k, d)}
        shapes |= {"frame": (d, d)} if "frame" in arrays else {}
        wrong = {name: arrays[name].shape for name, shape in shapes.items() if arrays[name].shape != shape}
        if wrong or d != problem.dim or arrays.keys() != shapes.keys():
            raise ValueError(f"arrays do not fit the architecture {architecture} of {problem.dim} dimensions: {wrong}")
        return cls(problem=problem, **{"frame": None, **arrays}, record=record)


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
    degree = whole("degree", degree, 1, "pass the degree of the polynomials in each coordinate, such as 2")
    steps = whole("steps", steps, 1, "pass the number of sweeps over the cores")
    paths = whole("paths", paths, 1, "pass the number of simulated paths in each sweep")
    seed = whole("seed", seed, 0, "pass the seed of the paths")
    domain = domain_of(problem) if domain is None else domain
    require_domain(domain, problem.dim)
    began, cpu_began = time.perf_counter(), time.process_time()
    with precision(np.dtype(np.float64)):
        frame = _frame(problem)
        draws = directions(problem.dim, 0 if terminal_may_be_rough(problem) else DIRECTIONS, seed)
        t, x = _states(problem, domain, jax.random.key(seed), (steps + 1) * paths, len(draws) > 0)
        centre, scale = _units(x if frame is None else x @ frame.T)
        features = _Features(problem, frame, draws, centre, scale, degree)
        batches = zip(t.reshape(steps + 1, paths), x.reshape(steps + 1, paths, -1), strict=True)
        held_out = features.rows(*next(batches))
        cores = _first_guess(problem.dim, rank, degree, seed)
        loss, ridge, forward = held_out.loss(cores), RIDGE, True
        if not math.isfinite(loss):
            raise ArgumentError(
                f"problem must have a finite g and F where paths go, got a residual of {loss}: pass another domain."
            )
        with training_bar(progress) as report:
            for sweep, at in enumerate(batches, 1):
                new = features.rows(*at).swept(cores, forward, ridge)
                new_loss = held_out.loss(new)
                if new_loss < WORTH * loss:
                    ridge *= min(0.5, (new_loss / loss) ** 2)  # as Levenberg and Marquardt have it near a root
                    cores, loss, forward = new, new_loss, not forward
                else:
                    ridge *= 10
                if report is not None:
                    report(Training(sweep, steps, loss**2, loss, time.perf_counter() - began))
    record = {
        "rank": rank,
        "degree": degree,
        "sweeps": steps,
        "loss": loss,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
    }
    return TensorTrain(
        problem=problem,
        clock=_padded(cores[0], rank)[0],
        cores=np.stack([_padded(core, rank).transpose(1, 0, 2) for core in cores[1:]]),
        centre=centre,
        scale=scale,
        frame=frame,
        draws=draws,
        record=Record(record.items()),
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _train(v: Array, clock: Array, cores: Array, final: float, anchored: bool) -> Array:
    """The product of the matrices at v = (t, y). The cores are held: its derivatives are those in v.

    They are written out. The residual engine knows nothing of the train, and would carry d directions through each product;
    with the Hessian at hand, which costs d^2 r^2, a direction is one row of a matrix product.
    """
    return _lefts(_at(v, clock, cores, final, anchored))[1][0]


@_train.defjvp
def _train_jvp(final: float, anchored: bool, at: tuple[Array, ...], along: tuple[Array, ...]) -> tuple[Array, Array]:
    v, clock, cores = at
    return _train(v, clock, cores, final, anchored), _gradient(v, clock, cores, final, anchored) @ along[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _gradient(v: Array, clock: Array, cores: Array, final: float, anchored: bool) -> Array:
    matrices, slopes, _ = _jet(lambda v: _at(v, clock, cores, final, anchored), v)
    return jnp.einsum("ka,kab,kb->k", _lefts(matrices)[0], slopes, _rights(matrices))


@_gradient.defjvp
def _gradient_jvp(final: float, anchored: bool, at: tuple[Array, ...], along: tuple[Array, ...]) -> tuple[Array, Array]:
    v, clock, cores = at
    return _gradient(v, clock, cores, final, anchored), _hessian(v, clock, cores, final, anchored) @ along[0]


def _hessian(v: Array, clock: Array, cores: Array, final: float, anchored: bool) -> Array:
    """Between coordinates i < j: (left_i C_i') C_i+1 ... C_j-1 (C_j' right_j), all i of one j at a time."""
    matrices, slopes, curves = _jet(lambda v: _at(v, clock, cores, final, anchored), v)
    left, right = _lefts(matrices)[0], _rights(matrices)
    begin = jnp.einsum("ka,kab->kb", left, slopes)
    end = jnp.einsum("kab,kb->ka", slopes, right)

    def step(open_: Array, at: tuple[Array, ...]) -> tuple[Array, Array]:
        matrix, first, last, unit = at
        mixed = jnp.sum(open_ * last[:, None], 0)
        moved = jnp.sum(matrix[:, :, None] * open_[:, None, :], 0)
        return moved + first[:, None] * unit[None, :], mixed

    start = jnp.zeros((len(matrices[0]), len(v)), v.dtype)
    mixed = jax.lax.scan(step, start, (matrices, begin, end, jnp.eye(len(v), dtype=v.dtype)))[1]
    return mixed + mixed.T + jnp.diag(jnp.einsum("ka,kab,kb->k", left, curves, right))


def _at(v: Array, clock: Array, cores: Array, final: float, anchored: bool) -> Array:
    """The d + 1 matrices; that of time has one row that is not 0."""
    first = _legendre(v[0], final, len(clock), anchored) @ clock
    rest = jnp.einsum("im,imab->iab", _hermite(v[1:], cores.shape[1]), cores)
    return jnp.concatenate([jnp.pad(first[None], ((0, len(first) - 1), (0, 0)))[None], rest])


def _lefts(matrices: Array) -> tuple[Array, Array]:
    """What stands left of each matrix, and the whole product: rows that begin at (1, 0, ..., 0)."""
    begin = jnp.eye(1, matrices.shape[1], dtype=matrices.dtype)[0]
    end, rows = jax.lax.scan(lambda row, m: (jnp.sum(row[:, None] * m, 0), row), begin, matrices)
    return rows, end


def _rights(matrices: Array) -> Array:
    begin = jnp.eye(1, matrices.shape[1], dtype=matrices.dtype)[0]
    step = lambda column, m: (jnp.sum(m * column[None, :], 1), column)
    return jax.lax.scan(step, begin, matrices, reverse=True)[1]


class _Rows(NamedTuple):
    """States of paths, and there the base and, for time and every coordinate, phi, its part of z, and its part of u_t + L u."""

    reaction: Callable[..., Any]
    t: Floats
    x: Floats
    base: tuple[Floats, Floats, Floats]  # u, z, u_t + L u
    values: Sequence[Floats]  # (n, q), then (n, p) for each coordinate
    slopes: Sequence[Floats]
    moved: Sequence[Floats]

    def residual(self, cores: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
        """eps, and the derivatives of F by u and by z."""
        right = _from_the_right(self.values, self.values, cores)
        u, moved = _edges(len(self.t))
        z = np.empty((len(self.t), len(cores)))
        for k, core in enumerate(cores):
            value = _matrices(self.values[k], core)
            z[:, k] = np.sum(_row(u, _matrices(self.slopes[k], core)) * right[k][0], 1)
            moved = _row(moved, value) + _row(u, _matrices(self.moved[k], core))
            u = _row(u, value)
        u, z, moved = (a + b for a, b in zip((u[:, 0], z[:, 1:], moved[:, 0]), self.base, strict=True))
        f, (by_u, by_z) = self.reaction(self.t, self.x, u, z)
        return moved + np.asarray(f), np.asarray(by_u), np.asarray(by_z)

    def loss(self, cores: Sequence[Floats]) -> float:
        """The root of the mean square of eps."""
        return float(np.sqrt(np.mean(np.square(self.residual(cores)[0]))))

    def swept(self, cores: Sequence[Floats], forward: bool, ridge: float) -> list[Floats]:
        """Every core in turn by least squares, eps being linearised at the cores as they were."""
        eps, by_u, by_z = self.residual(cores)
        velocity = np.concatenate([np.zeros((len(eps), 1)), by_z], 1)
        moved = [m + velocity[:, k, None] * s for k, (m, s) in enumerate(zip(self.moved, self.slopes, strict=True))]
        if forward:
            return _swept(list(cores), self.values, moved, by_u, eps, ridge)
        return _flipped(_swept(_flipped(cores), self.values[::-1], moved[::-1], by_u, eps, ridge))


def _swept(
    cores: list[Floats], values: Sequence[Floats], moved: Sequence[Floats], by_u: Floats, eps: Floats, ridge: float
) -> list[Floats]:
    """From the first core to the last.

    With l and r the products of the matrices left and right of a core, and l', r' the same with the generator applied to
    them, eps changes by l' phi r + l phi' r + l phi r' + F_u l phi r when the core changes.
    """
    right = _from_the_right(values, moved, cores)
    left, left_moved = _edges(len(eps))
    for k, (value, move) in enumerate(zip(values, moved, strict=True)):
        r, r_moved = right[k]
        rows = _outer(_outer(left_moved + by_u[:, None] * left, value) + _outer(left, move), r)
        rows += _outer(_outer(left, value), r_moved)
        normal = rows.T @ rows
        normal[np.diag_indices_from(normal)] += ridge * max(np.trace(normal) / len(normal), np.finfo(float).tiny)
        change = np.linalg.solve(normal, -(rows.T @ eps))
        eps = eps + rows @ change
        core = cores[k] + change.reshape(cores[k].shape)
        if k + 1 < len(cores):
            basis, rest = np.linalg.qr(core.reshape(-1, core.shape[2]))
            core = basis.reshape(core.shape)
            cores[k + 1] = np.einsum("ab,bmc->amc", rest, cores[k + 1])
        cores[k] = core
        matrices = _matrices(value, core)
        left_moved = _row(left_moved, matrices) + _row(left, _matrices(move, core))
        left = _row(left, matrices)
    return cores


def _from_the_right(
    values: Sequence[Floats], moved: Sequence[Floats], cores: Sequence[Floats]
) -> list[tuple[Floats, Floats]]:
    """For every core the product of the matrices to its right, and the same with the generator applied."""
    found = [_edges(len(values[0]))]
    for value, move, core in zip(values[:0:-1], moved[:0:-1], cores[:0:-1], strict=True):
        r, r_moved = found[-1]
        matrices = _matrices(value, core)
        found.append((_column(matrices, r), _column(matrices, r_moved) + _column(_matrices(move, core), r)))
    return found[::-1]


def _edges(count: int) -> tuple[Floats, Floats]:
    return np.ones((count, 1)), np.zeros((count, 1))


def _matrices(features: Floats, core: Floats) -> Floats:
    """C[phi] at every state."""
    a, m, b = core.shape
    return (features @ core.transpose(1, 0, 2).reshape(m, -1)).reshape(-1, a, b)


def _row(left: Floats, matrices: Floats) -> Floats:
    return np.einsum("na,nab->nb", left, matrices)


def _column(matrices: Floats, right: Floats) -> Floats:
    return np.einsum("nab,nb->na", matrices, right)


def _outer(a: Floats, b: Floats) -> Floats:
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


def _flipped(cores: Sequence[Floats]) -> list[Floats]:
    """The same train read from its other end."""
    return [core.transpose(2, 1, 0) for core in reversed(cores)]


def _first_guess(dim: int, rank: int, degree: int, seed: int) -> list[Floats]:
    """A train that is 0, and whose matrices are near the identity: sums over the coordinates before their products."""
    p, q, random = degree + 1, TIME_DEGREE + 1, np.random.default_rng(seed)
    # No rank is larger than what lies on either side of it can span; in logarithms, since p^d overflows.
    spans = lambda k: min(math.log(q) + (k - 1) * math.log(p), (dim - k + 1) * math.log(p))
    ranks = [1, *(rank if math.log(rank) <= spans(k) else round(math.exp(spans(k))) for k in range(1, dim + 1)), 1]
    cores = [np.zeros((1, q, ranks[1]))]
    for a, b in itertools.pairwise(ranks[1:]):
        core = random.standard_normal((a, p, b))
        if b > 1 or a == 1:
            core *= SPREAD / math.sqrt(dim * rank)
            core[:, 0] = np.eye(a, b)
        cores.append(core)
    return _flipped(_orthogonal(_flipped(cores)))


def _orthogonal(cores: list[Floats]) -> list[Floats]:
    for k in range(len(cores) - 1):
        basis, rest = np.linalg.qr(cores[k].reshape(-1, cores[k].shape[2]))
        cores[k] = basis.reshape(cores[k].shape)
        cores[k + 1] = np.einsum("ab,bmc->amc", rest, cores[k + 1])
    return cores


def _padded(core: Floats, rank: int) -> Floats:
    a, _, b = core.shape
    return np.pad(core, ((0, 0 if a == 1 else rank - a), (0, 0), (0, rank - b)))


class _Features:
    """What the rows hold, compiled once for all sweeps."""

    def __init__(
        self,
        problem: Problem,
        frame: Floats | None,
        draws: Floats,
        centre: Floats,
        scale: Floats,
        degree: int,
    ):
        final, anchored = problem.horizon, len(draws) > 0
        base = wrap(Base(problem, jnp.asarray(draws)), problem) if anchored else None
        generator = None if base is None else Generator(problem, base)

        def reaction(t: Array, x: Array, u: Array, z: Array) -> Array:
            f = problem.nonlinearity(t, x, u, z)
            return f if anchored else jnp.where(t < final, f, (u - problem.terminal(x)) / final)

        def features(t: Array, x: Array) -> Any:
            drift, sigma = problem.drift(t, x), problem.diffusion(t, x)
            h, drift, sigma = (
                (x, drift, sigma)
                if frame is None
                else (jnp.asarray(frame) @ x, jnp.asarray(frame) @ drift, jnp.ones(()))
            )
            sigma = jnp.broadcast_to(sigma, x.shape)[:, None]
            value, slope, curve = _jet(lambda h: _hermite((h - centre) / scale, degree + 1), h)
            clock, tick, _ = _jet(lambda t: _legendre(t, final, TIME_DEGREE + 1, anchored), t)
            moved = drift[:, None] * slope + 0.5 * sigma**2 * curve
            of_base = (0 * t, 0 * x, 0 * t) if generator is None else generator(t, x, jax.random.key(0))
            live = jnp.where(t < final, 1.0, 0.0)
            return of_base, (clock, live * tick), (value, live * sigma * slope, live * moved)

        self.reaction = jax.jit(jax.vmap(jax.value_and_grad(reaction, (2, 3))))
        self.features = jax.jit(jax.vmap(features))

    def rows(self, t: Floats, x: Floats) -> _Rows:
        base, (clock, tick), of_x = _in_chunks(self.features, t, x)
        value, slope, moved = (list(np.ascontiguousarray(a.transpose(1, 0, 2))) for a in of_x)
        return _Rows(self.reaction, t, x, base, [clock, *value], [np.zeros_like(clock), *slope], [tick, *moved])


def _jet(f: Callable[[Array], Array], y: Array) -> tuple[Array, Array, Array]:
    """f and its first two derivatives, entry by entry."""
    one = jnp.ones_like(y)
    (value, slope), (_, curve) = jax.jvp(lambda y: jax.jvp(f, (y,), (one,)), (y,), (one,))
    return value, slope, curve


def _hermite(y: Array, count: int) -> Array:
    """The first Hermite polynomials, orthonormal for the normal law, of y held within REACH + 1 by a C^2 function."""
    inside = jnp.clip(y, -REACH, REACH)
    beyond = y - inside
    y = inside + beyond / jnp.sqrt(1 + jnp.square(beyond))
    h = [jnp.ones_like(y), y]
    for n in range(1, count - 1):
        h.append((y * h[n] - math.sqrt(n) * h[n - 1]) / math.sqrt(n + 1))
    return jnp.stack(h[:count], -1)


def _legendre(t: Array, final: float, count: int, anchored: bool) -> Array:
    """The first Legendre polynomials, orthonormal on [0, T]; times (T - t)/T if they are to end at 0."""
    s = 2 * t / final - 1
    p = [jnp.ones_like(s), s]
    for n in range(1, count - 1):
        p.append(((2 * n + 1) * s * p[n] - n * p[n - 1]) / (n + 1))
    psi = jnp.stack([math.sqrt(2 * n + 1) * f for n, f in enumerate(p[:count])])
    return psi * ((jnp.asarray(final, t.dtype) - t) / final) if anchored else psi


def _frame(problem: Problem) -> Floats | None:
    """Coordinates whose noises are independent: sigma^-1 for a constant matrix sigma."""
    sigma = problem.dynamics.constant_diffusion
    if sigma is not None:
        return np.linalg.inv(np.asarray(sigma, np.float64)) if np.ndim(sigma) == 2 else None
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
    final, law = problem.horizon, paths_of(problem)

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        key_start, key_time, key_path = jax.random.split(key, 3)
        t, x = (a.astype(float) for a in domain.draw(key_start, problem.dim, final))
        part = jax.random.uniform(key_time, minval=1e-6) * (1 if anchored else 4 / 3)
        duration = jnp.minimum(part, 1.0) * (final - t)
        return jnp.where(part < 1, t + duration, final), law.jump(key_path, t, x, duration, False).x

    return _in_chunks(jax.jit(jax.vmap(one)), jax.random.split(key, count))


def _in_chunks(function: Callable[..., Any], *arrays: Any) -> Any:
    """One compilation, and no array larger than it need be: the last chunk is filled up from the beginning."""
    count = len(arrays[0])
    chunks = (np.arange(math.ceil(count / CHUNK) * CHUNK) % count).reshape(-1, CHUNK)
    outs = [jax.tree.map(np.asarray, function(*(a[chunk] for a in arrays))) for chunk in chunks]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *outs)


def _units(h: Floats) -> tuple[Floats, Floats]:
    centre = np.mean(h, 0)
    return centre, np.max(np.abs(h - centre), 0) / REACH
