"""Means over paths of the linearised equation, with their slopes in x.

`PathMeans` draws paths of the linearised equation from one point (s, x). It returns the `PathMean`
of each increment of `Linearised`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._equations.base import AbstractEquation, Solution
from .._equations.linearised import LinearisedEquation
from .._sampling.designs import Draw, design
from .._sampling.times import FullHistory
from .._support.tracing import prevent_fusion
from ..paths import AbstractPathLaw, Jump
from ..paths.coefficients import diffuse_transposed, undiffuse_transposed
from ._means import mean_of_others
from .base import jackknifed

if TYPE_CHECKING:
    from .linearised import Linearised

# Paths of a tile, which are computed side by side. The first number applies to the terminal and the
# source increment. The second applies to the remainder, if its slope is centred.
PATHS_PER_TILE, REMAINDERS_PER_TILE = 32, 4

# Indices of the increments.
TERMINAL, SOURCE, REMAINDER = range(3)


class PathMean(NamedTuple):
    """A mean or a sum over paths, or several of them stacked along the first axis."""

    u: Array  # a scalar
    slope: Array  # its derivative in x, (d,); zero if not requested
    size: Array  # mean absolute value of the samples

    @classmethod
    def zero(cls, x: Array, *leading: int) -> "PathMean":
        return cls(*(jnp.zeros((*leading, *shape), x.dtype) for shape in ((), x.shape, ())))


class PathMeans(eqx.Module):
    """Means over paths that start at time `s`.

    `LinearisedEquation` defines a = F_u and b = F_z at u = 0 and z = 0, and the remainder R of F
    beyond first order. The first-order equation, which has no R, has the solution

        V(s, x) = E[ exp(A_T) g(X_T) + int_s^T exp(A_r) F(r, X_r, 0, 0) dr ]
        A_r = int_s^r a(q, X_q) dq,    dX = (mu + sigma b) dt + sigma dW,    X_s = x

    One replicate is an estimate of

        V(s, x) + E int_s^T exp(A_r) R(r, X_r, V(r, X_r), sigma^T grad V(r, X_r)) dr

    as a sum of three means over independent paths. With a random time r for each path and its time
    weight w, these are means of

        terminal:   exp(A_T) g(X_T)
        source:     w exp(A_r) F(r, X_r, 0, 0)
        remainder:  w exp(A_r) R(r, X_r, V(r, X_r), sigma^T grad V(r, X_r))

    At the end of a path of the remainder, V(r, X_r) and grad V(r, X_r) are estimated from inner
    paths that start from (r, X_r), as the sum of a terminal and a source mean. The jackknife
    removes the leading bias of R.

    In the methods, `kind` is the index of an increment: the int `REMAINDER`, or an array that is
    `TERMINAL` or `SOURCE`.
    """

    estimator: "Linearised"
    equation: AbstractEquation
    paths: AbstractPathLaw
    gradient: str = eqx.field(static=True)  # gradient method: "pathwise" or "centred"
    s: Array  # a scalar
    true: Array  # true, but unknown to the compiler: see `prevent_fusion`

    def first_order(self, key: PRNGKeyArray, x: Array, samples: Array, slopes: bool) -> PathMean:
        """Return the means of the terminal and of the source increment, stacked.

        `samples` has the number of paths of each increment, (3,). `slopes` says whether the slopes
        are computed. No path goes to the horizon if g is zero by construction.
        """
        # One loop serves both increments, so paths are compiled once. The slope is taken inside
        # each tile, so that no intermediate result of a tile outlives it.
        keys, size = jax.random.split(key), min(PATHS_PER_TILE, self.estimator.samples)
        first = self._first_order[0]
        draws = [self._draws(keys[kind], x, samples[kind]) for kind in self._first_order]
        tiles = ((samples[:2] + size - 1) // size).at[:first].set(0)

        def tile(i: Array, sums: PathMean) -> PathMean:
            kind = (i >= tiles[TERMINAL]).astype(jnp.int32)
            indices = (i - jnp.where(kind == SOURCE, tiles[TERMINAL], 0)) * size + jnp.arange(size)
            drawn = jax.lax.switch(kind - first, draws, indices)
            valid = indices < samples[kind]
            part = self._tile(kind, _end_keys(keys[kind], indices), drawn, valid, x, slopes)
            return jax.tree.map(lambda total, one: total.at[kind].add(one), sums, part)

        count = tiles[TERMINAL] + tiles[SOURCE]
        sums = jax.lax.fori_loop(0, count, tile, PathMean.zero(x, 2))
        divisors = jnp.maximum(samples[:2], 1)
        return jax.tree.map(lambda a: jax.vmap(jnp.divide)(a, divisors.astype(a.dtype)), sums)

    def remainder(self, key: PRNGKeyArray, x: Array, count: Array, slopes: bool) -> PathMean:
        """Return the mean of the remainder over `count` paths.

        Its slope always uses gradient weights, so that inner paths are not differentiated twice. R
        is small, and so is the variance that the weights add.
        """
        draw = self._draws(key, x, count)
        # Independent samples are centred at the mean of the others in their tile, so a tile has
        # several of them.
        is_centred = slopes and self.estimator.sampling == "mc"
        size = REMAINDERS_PER_TILE if is_centred else 1

        def tile(i: Array, sums: PathMean) -> PathMean:
            indices = i * size + jnp.arange(size)
            drawn = draw(indices)
            values, jumps = self._ends(REMAINDER, _end_keys(key, indices), drawn, x, slopes)
            part = self._sums(values, jumps, indices < count, x)
            return jax.tree.map(jnp.add, sums, part)

        sums = jax.lax.fori_loop(0, (count + size - 1) // size, tile, PathMean.zero(x))
        return jax.tree.map(lambda a: a / jnp.maximum(count, 1), sums)

    def _tile(
        self, kind: Array, keys: PRNGKeyArray, drawn: Draw, valid: Array, x: Array, slopes: bool
    ) -> PathMean:
        """Return the sums over one tile of paths of the terminal or the source increment."""
        if slopes and self.gradient == "centred":
            values, jumps = self._ends(kind, keys, drawn, x, True)
            return self._sums(values, jumps, valid, x)

        def total(x: Array) -> tuple[Array, Array]:
            values = jnp.where(valid, self._ends(kind, keys, drawn, x, False)[0], 0)
            return jnp.sum(values), jnp.sum(jnp.abs(values))

        if not slopes:
            u, size = total(x)
            return PathMean(u, jnp.zeros_like(x), size)
        (u, size), slope = jax.value_and_grad(total, has_aux=True)(x)
        return PathMean(u, slope, size)

    def _sums(self, values: Array, jumps: Jump, valid: Array, x: Array) -> PathMean:
        """Return the sums over the valid paths, with a slope by gradient weights.

        The slope is zero if `jumps` has no weights.
        """
        values, slope = jnp.where(valid, values, 0), jnp.zeros_like(x)
        if jumps.weight is not None:
            z = self._weighted_sum(values, jumps, valid)
            slope = undiffuse_transposed(self.equation.diffusion(self.s, x), z)
        return PathMean(jnp.sum(values), slope, jnp.sum(jnp.abs(values)))

    def _ends(
        self, kind: int | Array, keys: PRNGKeyArray, drawn: Draw, x: Array, weighted: bool
    ) -> tuple[Array, Jump]:
        """Return w exp(A_r) f(r, X_r) for a batch of paths, (paths,), and their `Jump`s.

        f is g, F(r, x, 0, 0) or R, as `kind` says: the int REMAINDER, or an array that is TERMINAL
        or SOURCE. `keys` are for what f draws. `weighted` requests gradient weights; times then
        have the exponent 1/2.
        """
        to_horizon = jnp.broadcast_to(jnp.asarray(kind == TERMINAL), drawn.uniform.shape)
        jumps, r, w = self._move(drawn, to_horizon, x, weighted)
        ends = (keys, r, jumps.x)
        if isinstance(kind, int):
            integrand = jax.vmap(self._remainder)(*ends)
        else:
            branches = [self._integrands[k] for k in self._first_order]
            integrand = jax.lax.switch(kind - self._first_order[0], branches, *ends)
        return jax.vmap(Jump.carry)(jumps, w * integrand), jumps

    def _move(
        self, drawn: Draw, to_horizon: Array, x: Array, weighted: bool
    ) -> tuple[Jump, Array, Array]:
        """Return the `Jump`s of a batch of paths from x, the times r of their ends, and w.

        Where `to_horizon` (paths,) is true, r is T and w is 1. Elsewhere r is random.
        """
        equation, s = self.equation, self.s
        # The gradient weight of a short path is large. The exponent 1/2 makes the variance of the
        # weighted samples finite.
        times = FullHistory(exponent=0.5 if weighted else 0.0)
        duration, w = times.draw(drawn.uniform, jnp.asarray(0), s, equation.horizon)
        duration = jnp.where(to_horizon, equation.horizon - s, duration)
        w = jnp.where(to_horizon, 1, w)
        move = lambda noise, duration: self.paths.move(noise, s, x, duration, weighted)
        return jax.vmap(move)(drawn.noise, duration), s + duration, w

    @property
    def _first_order(self) -> tuple[int, ...]:
        """The kinds, TERMINAL and SOURCE, that are not zero by construction."""
        return (SOURCE,) if self.equation.zero_terminal else (TERMINAL, SOURCE)

    @property
    def _integrands(self) -> tuple[Callable[..., Array], ...]:
        """The functions f of TERMINAL and SOURCE, for a batch of ends (keys, times, states)."""
        terminal = lambda key, r, x: self.equation.terminal(x)
        source = lambda key, r, x: self.equation.source(r, x, key)
        batched = jax.vmap(terminal), jax.vmap(source)
        return prevent_fusion(batched[0], self.true), prevent_fusion(batched[1], self.true)

    def _remainder(self, key: PRNGKeyArray, r: Array, x: Array) -> Array:
        """Return R(r, x, V, sigma^T grad V), jackknifed over two independent estimates of V."""
        linearised = LinearisedEquation(self.equation)
        inner = PathMeans(self.estimator, self.equation, self.paths, self.gradient, r, self.true)
        half = lambda key: inner.solution(key, x, self.estimator.remainder // 2)
        halves = jax.vmap(half)(jax.random.split(key))
        zero = Solution.zero(r, x)
        return jackknifed(lambda new: linearised.difference(r, x, new, zero), halves)

    def solution(self, key: PRNGKeyArray, x: Array, count: int) -> Solution:
        """Estimate V(s, x), and sigma^T grad V if F depends on z, from `count` paths of each kind.

        The z of the result is zero if F does not depend on z.
        """
        equation, s = self.equation, self.s
        keys, indices = jax.random.split(key), jnp.arange(count)
        draws = [self._draws(keys[kind], x, count)(indices) for kind in self._first_order]
        drawn = jax.tree.map(lambda *a: jnp.concatenate(a), *draws)
        weighted = equation.uses_z and self.gradient == "centred"
        kinds = np.repeat(self._first_order, count)

        def mean(x: Array) -> tuple[Array, Array]:
            jumps, r, w = self._move(drawn, kinds == TERMINAL, x, weighted)
            ends = lambda kind: (
                _end_keys(keys[kind], indices),
                r[kinds == kind],
                jumps.x[kinds == kind],
            )
            integrands = [self._integrands[kind](*ends(kind)) for kind in self._first_order]
            values = jax.vmap(Jump.carry)(jumps, w * jnp.concatenate(integrands))
            if jumps.weight is None:
                return jnp.sum(values) / count, jnp.zeros_like(x)
            sums = (self._weighted_sum(values, jumps, kinds == kind) for kind in self._first_order)
            z = sum(sums) / count
            return jnp.sum(values) / count, jnp.asarray(z)

        if not equation.uses_z or weighted:
            return Solution(*mean(x))
        (u, _), slope = jax.value_and_grad(mean, has_aux=True)(x)
        return Solution(u, diffuse_transposed(equation.diffusion(s, x), slope))

    def _weighted_sum(self, values: Array, jumps: Jump, valid: Array) -> Array:
        """Return the sum over the valid paths of z by gradient weights, (d,).

        A path adds (value - c) weight + value lift. c is the mean of the other valid values if the
        samples are independent, and 0 otherwise; see `Jump`.
        """
        values = deviation = jnp.where(valid, values, 0)
        if self.estimator.sampling == "mc":
            # The mean of the other samples is independent of a sample's own path, so it may be
            # subtracted. In antithetic pairs and in nets, a constant cancels without subtraction.
            deviation = jnp.where(valid, values - mean_of_others(values, valid), 0)
        z = deviation @ jnp.asarray(jumps.weight)
        return z if jumps.lift is None else z + values @ jumps.lift

    def _draws(self, key: PRNGKeyArray, x: Array, count: int | Array) -> Callable[[Array], Draw]:
        """Return the function from a batch of sample indices (k,) to the `Draw`s of their paths."""
        sampling = self.estimator.sampling
        heading = self.equation.heading(self.s, x) if sampling == "rqmc" else None
        streams = lambda k: (jax.random.fold_in(key, 3 * k), jax.random.fold_in(key, 3 * k + 1))
        one = design(sampling, streams, count, (self.paths.steps, len(x)), x, heading)
        return prevent_fusion(jax.vmap(one), self.true)


def _end_keys(key: PRNGKeyArray, indices: Array) -> PRNGKeyArray:
    """Return the keys for what is drawn at the ends of the paths with these indices."""
    return jax.vmap(lambda k: jax.random.fold_in(key, 3 * k + 2))(indices)
