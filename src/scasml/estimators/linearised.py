"""The law of first order solved by one level of sampling, and its remainder put back by a second.

    V(s, x) = E[ e^A g(X_T) + int_s^T e^A F(r, X_r, 0, 0) dr ],             A = int a,  dX = (mu + sigma b) dt + sigma dW
    u(s, x) = V(s, x) + E int_s^T e^A R(r, X_r, V, sigma^T grad V) dr

with a, b and R of `linearisation`. On a law of defect V alone leaves an error of the second order in that of the surrogate, both of the third.
V inside R is the mean of two independent halves, whose noise the jackknife takes off. Each mean is that of paths to the end (of g) and of
paths to a random time (of F and R).
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.linearised import LinearisedEquation, is_affine
from .._equations.problem import AbstractEquation, Solution
from .._equations.smoothness import may_have_kinks
from .._sampling.designs import SAMPLINGS, Draw, Sampling, check_samples, design
from .._sampling.times import FullHistory
from .._support.errors import ArgumentError, brief, one_of, whole
from .._support.operation_counts import NORMAL_WORK, REVERSE_FACTOR, count_operations, equation_work
from .._support.tracing import apart, cached_by_structure
from ..paths import AbstractPathLaw, Jump, Stepped, Tilted
from ..paths.coefficients import diffuse_transposed, undiffuse_transposed
from ._means import mean_of_others
from .base import (
    HALF_THE_STEPS,
    AbstractEstimator,
    Evaluations,
    Floats,
    Replicate,
    even,
    jackknifed,
)

# Steps of a path while steps="auto" is undecided.
STEPS = 2
# Paths side by side: of g and F, and of R.
TILE, FEW = 32, 4
# A path inside R takes so much longer than one of a tile: there are only a few of them side by side.
ALONE = 3.0
# Of so many paths of g and of F(t, x, 0, 0) one of R, which holds many inside.
SHARE = 64

# An int a of this size: of uniform times only one in so many would see anything.
STEEP = 20.0

TERMINAL, SOURCE, REMAINDER = range(3)


class Linearised(AbstractEstimator):
    """F in first order about the surrogate moved into the drift and a potential, exactly, and what remains of it put back.

    - `samples`: paths to the end, and as many to a random time.
    - `remainder`: how many of each estimate V inside R, in two halves; 0 leaves R out, which is no loss where F is affine in u and z.
    - `steps`: of a path. "auto" takes as many as bring the bias below the statistical error.
    - `gradient`: "pathwise" differentiates V along its paths, which needs a Lipschitz g, and weighs those of R; "centred" weighs all of them.
    - `sampling`, `scheme`: as of `Picard`; exact jumps stay exact between the steps.
    """

    samples: int = eqx.field(static=True)
    remainder: int = eqx.field(static=True)
    steps: int | Literal["auto"] = eqx.field(static=True)
    gradient: str = eqx.field(static=True)
    sampling: Sampling = eqx.field(static=True)
    scheme: Literal["euler", "milstein"] = eqx.field(static=True)
    counts: Any  # of the paths of g, of F(t, x, 0, 0) and of R: data
    halved: bool | Array

    def __init__(
        self,
        steps: int | Literal["auto"] = "auto",
        samples: int = 128,
        remainder: int = 8,
        gradient: Literal["auto", "pathwise", "centred"] = "auto",
        sampling: Sampling = "rqmc",
        scheme: Literal["euler", "milstein"] = "euler",
    ):
        self.steps = even("steps", steps)
        self.samples = _below_2_24(
            "samples", whole("samples", samples, 1, "pass how many paths a replicate has")
        )
        remedy = "pass how many paths stand inside the remainder, or 0"
        self.remainder = _below_2_24("remainder", whole("remainder", remainder, 0, remedy))
        if self.remainder % 2:
            raise ArgumentError(
                f"remainder must be even, got {brief(remainder)}: pass {self.remainder + 1}, or 0."
            )
        self.gradient = one_of("gradient", gradient, ("auto", "pathwise", "centred"))
        self.sampling = one_of("sampling", sampling, SAMPLINGS)
        check_samples("samples", self.sampling, self.samples)
        if self.remainder:
            check_samples("remainder", self.sampling, self.remainder)
        self.scheme = one_of("scheme", scheme, ("euler", "milstein"))
        self.counts = np.array(
            [self.samples, self.samples, max(2, self.samples // SHARE)], np.int32
        )
        self.halved = False

    def settle(self, *, gradient: str | None = None, steps: int | None = None) -> Self:
        return self.but(gradient=gradient or self.gradient, steps=steps or self.steps)

    @property
    def is_allotted(self) -> bool:
        return True

    def allot(self, counts: Any) -> Self:
        """With so many paths of g, of F(t, x, 0, 0) and of R in a replicate; powers of 2, for rqmc."""
        return self.but(counts=counts)

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        return np.array([32.0, 32.0, 2.0]), np.array([8192.0, 8192.0, 1024.0])

    def work(self, equation: AbstractEquation, gradient: bool) -> Floats:
        paths = self.paths(equation)
        drawn, along = paths.steps * NORMAL_WORK * equation.dim, 0.0
        if isinstance(paths, Tilted):
            along = (paths.steps + 1) * _of_tilt(equation)
        # A number is drawn once, whatever is differentiated.
        path = lambda times, of: drawn + times * (along + of)
        once, inside = (
            REVERSE_FACTOR if gradient else 1.0,
            ALONE * (REVERSE_FACTOR if equation.uses_z else 1.0),
        )
        ends = equation_work(equation)[equation.zero_terminal :]
        remainder = path(once, 0.0) + self.remainder * sum(path(inside, of) for of in ends)
        first = [path(once, of) for of in ends]
        return np.array([*([0.0] * equation.zero_terminal), *first, remainder])

    def vary(self, equation: AbstractEquation, version: Array) -> Self:
        if not self.discretises(equation):
            return self
        halved = version == HALF_THE_STEPS
        return self.but(
            halved=halved, counts=jnp.where(halved, jnp.asarray([1, 1, 0]), 1) * self.counts
        )

    @property
    def fewest_steps(self) -> int:
        return STEPS

    def discretises(self, equation: AbstractEquation) -> bool:
        return not equation.is_linear or equation.dynamics.exact is None

    def order(self, equation: AbstractEquation) -> int:
        return 1 if equation.dynamics.exact is None else 2

    def thinned(self) -> tuple[Self, Floats]:
        pair = 2 if self.sampling == "antithetic" else 1
        few = np.minimum(self.counts, [TILE, TILE, pair]).astype(np.int32)
        return self.but(counts=few), few / np.maximum(self.counts, 1)

    def jackknifes(self, equation: AbstractEquation) -> bool:
        """No: it is done in every replicate."""
        return False

    def derivatives(self, equation: AbstractEquation, gradient: bool) -> int:
        return int(gradient or (equation.uses_z and self._has_remainder(equation)))

    def differentiates(self, equation: AbstractEquation, gradient: bool) -> bool:
        """Whether paths are differentiated, and with them the slopes of F."""
        return not equation.is_linear and (
            gradient or (equation.uses_z and self._has_remainder(equation))
        )

    @property
    def names(self) -> tuple[str, ...]:
        return ("terminal", "source", "remainder")

    @property
    def steps_tell(self) -> int:
        """Not R: it is dear, and as a rule the smallest."""
        return REMAINDER

    def is_lost(self, of_u: Floats, of_z: Floats) -> NDArray[np.bool_]:
        return of_u > STEEP

    def _has_remainder(self, equation: AbstractEquation) -> bool:
        return self.remainder > 0 and not equation.is_linear and not is_affine(equation)

    def paths(self, equation: AbstractEquation) -> AbstractPathLaw:
        options: dict[str, Any] = {
            "dynamics": equation.dynamics,
            "scheme": self.scheme,
            "halved": self.halved,
        }
        options["steps"] = STEPS if self.steps == "auto" else self.steps
        if not equation.is_linear:
            return Tilted(tilt=LinearisedEquation(equation).tilt, **options)
        return equation.dynamics.exact or Stepped(**options)

    def replicate(
        self, equation: AbstractEquation, key: PRNGKeyArray, t: Array, x: Array, gradient: bool
    ) -> Replicate:
        counts = jnp.asarray(self.counts)
        paths = _Paths(self, equation, t, jnp.all(counts >= 0))
        key_first, key_remainder = jax.random.split(key)
        parts = paths.first_order(key_first, x, counts, gradient)
        rest = _Mean.zero(x)
        if self._has_remainder(equation):
            rest = paths.remainder(key_remainder, x, counts[REMAINDER], gradient)
        u, slope, size = (jnp.append(a, b[None], 0) for a, b in zip(parts, rest, strict=True))
        none = jnp.zeros(0, x.dtype)
        if not gradient:
            return Replicate(jnp.sum(u), None, u, None, size, none)
        return Replicate(jnp.sum(u), jnp.sum(slope, 0), u, slope, size, none)

    def costs(self, equation: AbstractEquation) -> list[Evaluations]:
        paths = self.paths(equation)
        along = paths.steps + 1 if isinstance(paths, Tilted) else 0
        path = Evaluations(nonlinearity=along, normals=equation.dim * paths.steps)
        to_end = Evaluations() if equation.zero_terminal else path + Evaluations(terminal=1)
        to_time = path + Evaluations(nonlinearity=1, uniforms=1)
        inside = (to_end + to_time).times(self.remainder) + Evaluations(nonlinearity=2)
        counts = [int(count) for count in self.counts]
        of_r = (
            (to_time + inside).times(counts[REMAINDER])
            if self._has_remainder(equation)
            else Evaluations()
        )
        return [to_end.times(counts[TERMINAL]), to_time.times(counts[SOURCE]), of_r]

    def bias(
        self, equation: AbstractEquation, increments: NDArray[Any], sizes: NDArray[Any]
    ) -> NDArray[Any]:
        """R is of second order, so u inside it in the place of V changes it by 2 (u - V)/V of itself. With kinks it is Lipschitz only: there
        by as large a part of u - V as R is of V."""
        if equation.is_linear or is_affine(equation):
            return np.zeros(increments.shape[:-1])
        if not self.remainder:
            return np.full(increments.shape[:-1], np.nan)
        last, before = np.abs(increments[..., REMAINDER]), np.sum(sizes[..., :REMAINDER], -1)
        change = (
            np.maximum(2 * last, sizes[..., REMAINDER]) if may_have_kinks(equation) else 2 * last
        )
        return last * np.minimum(
            np.divide(change, before, out=np.ones_like(last), where=before > 0), 1
        )


class _Mean(NamedTuple):
    u: Array
    slope: Array
    size: Array  # the mean absolute value

    @classmethod
    def zero(cls, x: Array, *kinds: int) -> "_Mean":
        return cls(*(jnp.zeros((*kinds, *shape), x.dtype) for shape in ((), x.shape, ())))


class _Paths(eqx.Module):
    """Means over paths from (s, x)."""

    method: Linearised
    equation: AbstractEquation
    s: Array
    yes: Array  # true, which the compiler does not know: see `apart`

    def first_order(self, key: PRNGKeyArray, x: Array, counts: Array, slopes: bool) -> _Mean:
        """The means of g and of F(t, x, 0, 0), of as many paths as `counts` says, a tile after the other; none of a g that is nothing.

        One loop for both, so that the paths are compiled once. A slope is taken inside each tile: nothing of a tile outlives it.
        """
        keys, size = jax.random.split(key), min(TILE, self.method.samples)
        first = self._kinds[0]
        draws = [self._draws(keys[kind], x, counts[kind]) for kind in self._kinds]
        tiles = ((counts[:2] + size - 1) // size).at[:first].set(0)

        def tile(i: Array, sums: _Mean) -> _Mean:
            kind = (i >= tiles[TERMINAL]).astype(jnp.int32)
            indices = (i - jnp.where(kind == SOURCE, tiles[TERMINAL], 0)) * size + jnp.arange(size)
            drawn = jax.lax.switch(kind - first, draws, indices)
            part = self._tile(
                kind, _keys(keys[kind], indices), drawn, indices < counts[kind], x, slopes
            )
            return jax.tree.map(lambda total, one: total.at[kind].add(one), sums, part)

        sums = jax.lax.fori_loop(0, tiles[TERMINAL] + tiles[SOURCE], tile, _Mean.zero(x, 2))
        return jax.tree.map(
            lambda a: jax.vmap(jnp.divide)(a, jnp.maximum(counts[:2], 1).astype(a.dtype)), sums
        )

    def remainder(self, key: PRNGKeyArray, x: Array, count: Array, slopes: bool) -> _Mean:
        """The mean of R. Its slope is weighed: R is small, and the paths inside it are not differentiated again."""
        draw = self._draws(key, x, count)
        few = FEW if slopes and self.method.sampling == "mc" else 1  # enough to be centred

        def tile(i: Array, sums: _Mean) -> _Mean:
            indices = i * few + jnp.arange(few)
            values, jumps = self._ends(REMAINDER, _keys(key, indices), draw(indices), x, slopes)
            part = self._sums(values, jumps, indices < count, x)
            return jax.tree.map(jnp.add, sums, part)

        sums = jax.lax.fori_loop(0, (count + few - 1) // few, tile, _Mean.zero(x))
        return jax.tree.map(lambda a: a / jnp.maximum(count, 1), sums)

    def _tile(
        self, kind: Array, keys: PRNGKeyArray, drawn: Draw, here: Array, x: Array, slopes: bool
    ) -> _Mean:
        if slopes and self.method.gradient == "centred":
            values, jumps = self._ends(kind, keys, drawn, x, True)
            return self._sums(values, jumps, here, x)

        def total(x: Array) -> tuple[Array, Array]:
            values = jnp.where(here, self._ends(kind, keys, drawn, x, False)[0], 0)
            return jnp.sum(values), jnp.sum(jnp.abs(values))

        if not slopes:
            u, size = total(x)
            return _Mean(u, jnp.zeros_like(x), size)
        (u, size), slope = jax.value_and_grad(total, has_aux=True)(x)
        return _Mean(u, slope, size)

    def _sums(self, values: Array, jumps: Jump, here: Array, x: Array) -> _Mean:
        """With slopes by weights, if the paths have them."""
        values, slope = jnp.where(here, values, 0), jnp.zeros_like(x)
        if jumps.weight is not None:
            slope = undiffuse_transposed(
                self.equation.diffusion(self.s, x), self._weighed(values, jumps, here)
            )
        return _Mean(jnp.sum(values), slope, jnp.sum(jnp.abs(values)))

    def _ends(
        self, kind: int | Array, keys: PRNGKeyArray, drawn: Draw, x: Array, weigh: bool
    ) -> tuple[Array, Jump]:
        """What a batch of paths carries from where they end, and the paths."""
        to_end = jnp.broadcast_to(jnp.asarray(kind == TERMINAL), drawn.uniform.shape)
        jumps, r, w = self._move(drawn, to_end, x, weigh)
        at = (keys, r, jumps.x)
        carried = (
            jax.vmap(self._remainder)(*at)
            if isinstance(kind, int)
            else jax.lax.switch(kind - self._kinds[0], [self._carried[k] for k in self._kinds], *at)
        )
        return jax.vmap(Jump.carry)(jumps, w * carried), jumps

    def _move(self, drawn: Draw, to_end: Array, x: Array, weigh: bool) -> tuple[Jump, Array, Array]:
        """Where paths go from x, when they are there, and the weight of that time."""
        equation, s = self.equation, self.s
        times = FullHistory(
            exponent=0.5 if weigh else 0.0
        )  # a gradient weight grows as its path gets short
        duration, w = times.draw(drawn.uniform, jnp.asarray(0), s, equation.horizon)
        duration, w = jnp.where(to_end, equation.horizon - s, duration), jnp.where(to_end, 1, w)
        move = lambda noise, duration: self.method.paths(equation).move(
            noise, s, x, duration, weigh
        )
        return jax.vmap(move)(drawn.noise, duration), s + duration, w

    @property
    def _kinds(self) -> tuple[int, ...]:
        """Of paths of first order."""
        return (SOURCE,) if self.equation.zero_terminal else (TERMINAL, SOURCE)

    @property
    def _carried(self) -> tuple[Callable[..., Array], ...]:
        """By kind, of a batch of ends."""
        terminal = lambda key, r, x: self.equation.terminal(x)
        source = lambda key, r, x: self.equation.source(r, x, key)
        return apart(self.yes, jax.vmap(terminal)), apart(self.yes, jax.vmap(source))

    def _remainder(self, key: PRNGKeyArray, r: Array, x: Array) -> Array:
        """R(r, x, V, sigma^T grad V), from two independent halves of V."""
        equation, there = (
            LinearisedEquation(self.equation),
            _Paths(self.method, self.equation, r, self.yes),
        )
        halves = jax.vmap(lambda key: there.solution(key, x, self.method.remainder // 2))(
            jax.random.split(key)
        )
        nothing = Solution(jnp.zeros_like(r), jnp.zeros_like(x))
        return jackknifed(lambda new: equation.difference(r, x, new, nothing), halves)

    def solution(self, key: PRNGKeyArray, x: Array, count: int) -> Solution:
        """V and sigma^T grad V, if F depends on it, from `count` paths of every kind side by side."""
        equation, s = self.equation, self.s
        keys, each = jax.random.split(key), jnp.arange(count)
        draws = [self._draws(keys[kind], x, count)(each) for kind in self._kinds]
        drawn = jax.tree.map(lambda *a: jnp.concatenate(a), *draws)
        weigh = equation.uses_z and self.method.gradient == "centred"
        kinds = np.repeat(self._kinds, count)

        def mean(x: Array) -> tuple[Array, Array]:
            jumps, r, w = self._move(drawn, kinds == TERMINAL, x, weigh)
            at = lambda kind: (_keys(keys[kind], each), r[kinds == kind], jumps.x[kinds == kind])
            carried = [self._carried[kind](*at(kind)) for kind in self._kinds]
            values = jax.vmap(Jump.carry)(jumps, w * jnp.concatenate(carried))
            if jumps.weight is None:
                return jnp.sum(values) / count, jnp.zeros_like(x)
            z = sum(self._weighed(values, jumps, kinds == kind) for kind in self._kinds) / count
            return jnp.sum(values) / count, jnp.asarray(z)

        if not equation.uses_z or weigh:
            return Solution(*mean(x))
        (u, _), slope = jax.value_and_grad(mean, has_aux=True)(x)
        return Solution(u, diffuse_transposed(equation.diffusion(s, x), slope))

    def _weighed(self, values: Array, jumps: Jump, here: Array) -> Array:
        """The sum of z by weights over the paths that are here."""
        values = deviation = jnp.where(here, values, 0)
        if self.method.sampling == "mc":
            # Less what does not depend on its own path; pairs and nets, whose samples do depend on one another, cancel a constant by themselves.
            deviation = jnp.where(here, values - mean_of_others(values, here), 0)
        z = deviation @ jnp.asarray(jumps.weight)
        return z if jumps.lift is None else z + values @ jumps.lift

    def _draws(self, key: PRNGKeyArray, x: Array, count: int | Array) -> Callable[[Array], Draw]:
        """Of a batch of samples, by their indices."""
        method = self.method
        heading = self.equation.heading(self.s, x) if method.sampling == "rqmc" else None
        streams = lambda k: (jax.random.fold_in(key, 3 * k), jax.random.fold_in(key, 3 * k + 1))
        one = design(
            method.sampling, streams, count, (method.paths(self.equation).steps, len(x)), x, heading
        )
        return apart(self.yes, jax.vmap(one))


@cached_by_structure
def _of_tilt(equation: AbstractEquation) -> float:
    """The operations of a and b."""
    return count_operations(
        LinearisedEquation(equation).tilt, jnp.zeros(()), jnp.zeros(equation.dim)
    )


def _keys(key: PRNGKeyArray, indices: Array) -> PRNGKeyArray:
    """Of what is drawn at the ends of paths."""
    return jax.vmap(lambda k: jax.random.fold_in(key, 3 * k + 2))(indices)


def _below_2_24(argument: str, value: int) -> int:
    if value >= 2**24:
        raise ArgumentError(
            f"{argument} must be below 2^24, got {value}: take more replicates instead."
        )
    return value
