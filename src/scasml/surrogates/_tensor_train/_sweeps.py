"""Alternating least squares: each core of a tensor train in turn, against Newton's linearisation of the residual."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._equations.generator import Generator
from ..._equations.problem import Problem
from ...execution.moments import Floats
from ..terminal import Base
from ..wrapping import wrap
from ._train_product import hermite, jet, legendre

TIME_DEGREE = 7
SPREAD = 0.3  # of the first guess of the cores
CHUNK = 256


class Rows(NamedTuple):
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
        u, z, moved = (
            a + b for a, b in zip((u[:, 0], z[:, 1:], moved[:, 0]), self.base, strict=True)
        )
        f, (by_u, by_z) = self.reaction(self.t, self.x, u, z)
        return moved + np.asarray(f), np.asarray(by_u), np.asarray(by_z)

    def loss(self, cores: Sequence[Floats]) -> float:
        """The root of the mean square of eps."""
        return float(np.sqrt(np.mean(np.square(self.residual(cores)[0]))))

    def swept(self, cores: Sequence[Floats], forward: bool, ridge: float) -> list[Floats]:
        """Every core in turn by least squares, eps being linearised at the cores as they were."""
        eps, by_u, by_z = self.residual(cores)
        velocity = np.concatenate([np.zeros((len(eps), 1)), by_z], 1)
        moved = [
            m + velocity[:, k, None] * s
            for k, (m, s) in enumerate(zip(self.moved, self.slopes, strict=True))
        ]
        if forward:
            return _swept(list(cores), self.values, moved, by_u, eps, ridge)
        return _flipped(_swept(_flipped(cores), self.values[::-1], moved[::-1], by_u, eps, ridge))


def _swept(
    cores: list[Floats],
    values: Sequence[Floats],
    moved: Sequence[Floats],
    by_u: Floats,
    eps: Floats,
    ridge: float,
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
        normal[np.diag_indices_from(normal)] += ridge * max(
            np.trace(normal) / len(normal), np.finfo(float).tiny
        )
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
        found.append(
            (_column(matrices, r), _column(matrices, r_moved) + _column(_matrices(move, core), r))
        )
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


def first_guess(dim: int, rank: int, degree: int, seed: int) -> list[Floats]:
    """A train that is 0, and whose matrices are near the identity: sums over the coordinates before their products."""
    p, q, random = degree + 1, TIME_DEGREE + 1, np.random.default_rng(seed)
    # No rank is larger than what lies on either side of it can span; in logarithms, since p^d overflows.
    spans = lambda k: min(math.log(q) + (k - 1) * math.log(p), (dim - k + 1) * math.log(p))
    ranks = [
        1,
        *(
            rank if math.log(rank) <= spans(k) else round(math.exp(spans(k)))
            for k in range(1, dim + 1)
        ),
        1,
    ]
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


def padded(core: Floats, rank: int) -> Floats:
    a, _, b = core.shape
    return np.pad(core, ((0, 0 if a == 1 else rank - a), (0, 0), (0, rank - b)))


class Features:
    """What the rows hold, compiled once for all sweeps."""

    def __init__(
        self,
        problem: Problem,
        frame: Floats | None,
        draws: Floats | None,
        centre: Floats,
        scale: Floats,
        degree: int,
    ):
        final, anchored = problem.horizon, draws is not None
        generator = (
            None
            if draws is None
            else Generator(problem, wrap(Base(problem, jnp.asarray(draws)), problem))
        )

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
            value, slope, curve = jet(lambda h: hermite((h - centre) / scale, degree + 1), h)
            clock, tick, _ = jet(lambda t: legendre(t, final, TIME_DEGREE + 1, anchored), t)
            moved = drift[:, None] * slope + 0.5 * sigma**2 * curve
            of_base = (
                (0 * t, 0 * x, 0 * t) if generator is None else generator(t, x, jax.random.key(0))
            )
            live = jnp.where(t < final, 1.0, 0.0)
            return of_base, (clock, live * tick), (value, live * sigma * slope, live * moved)

        self.reaction = jax.jit(jax.vmap(jax.value_and_grad(reaction, (2, 3))))
        self.features = jax.jit(jax.vmap(features))

    def rows(self, t: Floats, x: Floats) -> Rows:
        base, (clock, tick), of_x = in_chunks(self.features, t, x)
        value, slope, moved = (list(np.ascontiguousarray(a.transpose(1, 0, 2))) for a in of_x)
        return Rows(
            self.reaction,
            t,
            x,
            base,
            [clock, *value],
            [np.zeros_like(clock), *slope],
            [tick, *moved],
        )


def in_chunks(function: Callable[..., Any], *arrays: Any) -> Any:
    """One compilation, and no array larger than it need be: the last chunk is filled up from the beginning."""
    count = len(arrays[0])
    chunks = (np.arange(math.ceil(count / CHUNK) * CHUNK) % count).reshape(-1, CHUNK)
    outs = [jax.tree.map(np.asarray, function(*(a[chunk] for a in arrays))) for chunk in chunks]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *outs)
