"""Multilevel Picard iteration, full history or quadrature in time.

U_0 = 0 and, with fresh independent draws for every level, sample and inner call,

    U_n(s, x) = 1/M^n sum_{i <= M^n} g(X_T^i)
              + sum_{l < n} 1/M^(n-l) sum_{i <= M^(n-l)} w_i [F(U_l) - 1{l >= 1} F(U_{l-1})](R_i, X_{R_i}^i)

z is the second half of U = (u, z). By path derivative it is sigma^T times the derivative of a term,
same draws, in x. By weights, the paper's, the term is multiplied by the Bismut-Elworthy-Li weight of
its path. Both estimate the same z, so each term may go its own way.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from ..coefficients import diffuse_transposed, undiffuse_transposed
from ..errors import ArgumentError, brief, one_of, positive, whole
from ..paths import AbstractPathLaw, Stepped
from ..problem import AbstractLaw, Solution
from ..times import AbstractTimeLaw, FullHistory, GaussLegendre
from .base import FIRST_HALF, HALF_THE_STEPS, NOISE, ORDINARY, AbstractEstimator, Evaluations, Replicate

# Samples evaluated side by side: enough to fill the vector units, few enough to stay in cache.
TILE = 128
# Steps of a discretised path while steps="auto" is undecided.
STEPS = 16


class Picard(AbstractEstimator):
    """Multilevel Picard of `levels` levels with `samples` as the base of the sample numbers.

    - `time`: "full-history" draws one random time per sample, from density (1 - a) r^-a with
      a = `time_exponent` (0 for path derivatives, 1/2 for weights); "quadrature" takes the `nodes`
      Gauss-Legendre nodes.
    - `gradient`: "pathwise" differentiates every term along its paths, which needs a Lipschitz g;
      and where F depends on z, levels >= 3, or a reported gradient at levels >= 2, differentiate z
      again and need a g with Lipschitz first derivatives. "weights", the paper's, needs nothing of g;
      "centred" is the same less the mean over the other samples, and much less noisy. "mixed" has path
      derivatives of g and of F(t, x, 0, 0), and centred weights for the differences of F, where z is
      inside: enough for a g with kinks. "auto" takes the first of pathwise, mixed and centred that is right.
    - `threshold`: clips every component of every U_l to [-threshold, threshold], as the paper does.
    - `steps`: how many steps of `scheme`, "euler" or "milstein", make a path. "auto" draws paths exactly
      where their law is known, and elsewhere takes as many as bring the bias below the statistical error.
    """

    levels: int = eqx.field(static=True)
    samples: int = eqx.field(static=True)
    time: str = eqx.field(static=True)
    nodes: int | None = eqx.field(static=True)
    time_exponent: float | None = eqx.field(static=True)
    gradient: str = eqx.field(static=True)
    threshold: float | None = eqx.field(static=True)
    scheme: Literal["euler", "milstein"] = eqx.field(static=True)
    steps: int | Literal["auto"] = eqx.field(static=True)
    halved: bool | Array
    inside: int | Array  # which version stands inside F

    def __init__(
        self,
        levels: int = 2,
        samples: int = 10,
        time: Literal["full-history", "quadrature"] = "full-history",
        nodes: int | None = None,
        time_exponent: float | None = None,
        gradient: Literal["auto", "pathwise", "mixed", "centred", "weights"] = "auto",
        threshold: float | None = None,
        scheme: Literal["euler", "milstein"] = "euler",
        steps: int | Literal["auto"] = "auto",
    ):
        self.levels = whole("levels", levels, 1, "pass the number of Picard levels")
        self.samples = whole("samples", samples, 1, "pass the base of the sample numbers")
        self.gradient = one_of("gradient", gradient, ("auto", "pathwise", "mixed", "centred", "weights"))
        self.time = one_of("time", time, ("full-history", "quadrature"))
        self.scheme = one_of("scheme", scheme, ("euler", "milstein"))
        self.threshold = None if threshold is None else positive("threshold", threshold, "pass where to clip")
        self.nodes = self.time_exponent = None
        if time == "full-history":
            if nodes is not None:
                raise ArgumentError(
                    f'nodes applies to time="quadrature" only, got nodes={brief(nodes)}: leave it out, or change time.'
                )
            if time_exponent is not None:
                remedy = "pass a in the density r^-a of the random times, 0 <= a < 1"
                self.time_exponent = positive("time_exponent", time_exponent, remedy, or_zero=True)
                if self.time_exponent >= 1:
                    raise ArgumentError(f"time_exponent must be below 1, got {brief(time_exponent)}: {remedy}.")
        else:
            if time_exponent is not None:
                raise ArgumentError(
                    f'time_exponent applies to time="full-history" only, got {brief(time_exponent)}: leave it out, or change time.'
                )
            self.nodes = whole("nodes", 3 if nodes is None else nodes, 1, "pass the number of quadrature nodes")
        # Streams are told apart by a 31-bit index of level and sample.
        too_many = self.levels * math.log2(self.samples) > 31  # said before the power is formed: it may fill the memory
        if too_many or 4 * (self.levels + 1) * self.samples**self.levels * (self.nodes or 1) >= 2**31:
            raise ArgumentError(
                f"samples must satisfy samples**levels <= about 1e8, got {samples}**{levels}: take fewer, and more replicates instead."
            )
        self.steps = "auto"
        if not (isinstance(steps, str) and steps == "auto"):
            remedy = 'pass an even number of steps for a path, or "auto"'
            self.steps = whole("steps", steps, 2, remedy)
            if self.steps % 2:
                # The bias of the steps is told by taking half of them.
                raise ArgumentError(f"steps must be even, got {steps}: {remedy}.")
        self.halved, self.inside = False, ORDINARY

    def settle(self, *, gradient: str | None = None, steps: int | None = None) -> Self:
        return self._but(gradient=gradient or self.gradient, steps=steps or self.steps)

    def vary(self, law: AbstractLaw, version: Array) -> Self:
        other = self
        if self.discretises(law):
            other = other._but(halved=version == HALF_THE_STEPS)
        if self.jackknifes(law):
            other = other._but(inside=jnp.where(version >= FIRST_HALF, version, ORDINARY))
        return other

    def _but(self, **changes: Any) -> Self:
        other = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(other, name, value)  # a module is frozen for everybody else
        return other

    def discretises(self, law: AbstractLaw) -> bool:
        return self.steps != "auto" or law.dynamics.exact is None

    def jackknifes(self, law: AbstractLaw) -> bool:
        return self.levels >= 2 and self.samples >= 2 and not law.is_linear and self.threshold is None

    def derivatives(self, law: AbstractLaw, gradient: bool) -> int:
        inner = self.levels - 1 if law.uses_z else 0
        return inner + gradient

    def paths(self, law: AbstractLaw) -> AbstractPathLaw:
        exact = law.dynamics.exact
        if self.steps == "auto" and exact is not None:
            return exact
        steps = STEPS if self.steps == "auto" else self.steps
        return Stepped(dynamics=law.dynamics, scheme=self.scheme, steps=steps, halved=self.halved)

    def time_law(self, weighted: bool) -> AbstractTimeLaw:
        if self.nodes is not None:
            return GaussLegendre(nodes=self.nodes)
        default = 0.5 if weighted or self.gradient in ("weights", "centred") else 0.0
        return FullHistory(exponent=default if self.time_exponent is None else self.time_exponent)

    def weighs(self, law: AbstractLaw, l: int | None) -> bool:
        """Whether z of level l (None: of the terminal term) comes by weights."""
        if self.gradient == "mixed":
            return l is not None and l >= 1 and law.uses_z
        return self.gradient in ("weights", "centred")

    @property
    def increments(self) -> int:
        return self.levels + 1

    def replicate(self, law: AbstractLaw, key: PRNGKeyArray, t: Array, x: Array, gradient: bool) -> Replicate:
        terms = self._terms(law, self.levels, key, t, x, gradient, outermost=True)
        increments, sizes = (jnp.stack([getattr(term, name) for term in terms]) for name in ("u", "size"))
        # The F(U_l) that level l adds, and the one that level l + 1 takes off: the same in the mean.
        pairs = list(itertools.pairwise(terms[2:]))
        telescoping = jnp.stack([a.new - b.old for a, b in pairs]) if pairs else jnp.zeros(0, x.dtype)
        solution = self._solution(law, t, x, _sum(terms))
        if not gradient:
            return Replicate(solution.u, None, increments, None, sizes, telescoping)
        # A slope is reported itself, and not as sigma^-T sigma^T of it, which loses digits if sigma is ill-conditioned.
        slopes = jnp.stack([term.slope for term in terms])
        unweigh = lambda z: undiffuse_transposed(law.diffusion(t, x), z)
        if any(self.weighs(law, l) for l in (None, *self._levels(law, self.levels))):
            slopes = slopes + jax.vmap(unweigh)(jnp.stack([term.z for term in terms]))
        total = jnp.sum(slopes, 0) if self.threshold is None else unweigh(solution.z)
        return Replicate(solution.u, total, increments, slopes, sizes, telescoping)

    def iterate(
        self, law: AbstractLaw, n: int, key: PRNGKeyArray, s: Array, x: Array, z: bool, version: int | Array = ORDINARY
    ) -> Solution:
        """U_n(s, x), or that version of it; its z is zero unless asked for."""
        if n == 0:
            return Solution(jnp.zeros_like(s), jnp.zeros_like(x))
        return self._solution(law, s, x, _sum(self._terms(law, n, key, s, x, z, version)))

    def _solution(self, law: AbstractLaw, s: Array, x: Array, total: "_Term") -> Solution:
        """(u, z) from the sum of terms, clipped if asked for."""
        z = total.z + diffuse_transposed(law.diffusion(s, x), total.slope)
        if (c := self.threshold) is None:
            return Solution(total.u, z)
        return Solution(jnp.clip(total.u, -c, c), jnp.clip(z, -c, c))

    def _terms(
        self,
        law: AbstractLaw,
        n: int,
        key: PRNGKeyArray,
        s: Array,
        x: Array,
        z: bool,
        version: int | Array = ORDINARY,
        outermost: bool = False,
    ) -> list["_Term"]:
        """The terminal term of U_n, then its levels l = 0, ..., n - 1."""
        paths = self.paths(law)
        zero = _Term(*(jnp.zeros_like(a) for a in (s, x, x, s, s, s)))

        def terminal(weighted: bool, i: Array, x: Array) -> _Sample:
            (key_path,) = _streams(key, n, 0, i, 1)
            jump = paths.jump(key_path, s, x, law.horizon - s, weighted)
            return _Sample(law.terminal(jump.x), jnp.ones_like(s), jump.weight, None)

        def level(l: int, weighted: bool, i: Array, x: Array) -> _Sample:
            key_path, key_time, key_new, key_old = _streams(key, n, l + 1, i, 4)
            time_law = self.time_law(weighted)
            duration, w = time_law.draw(key_time, i % time_law.nodes, s, law.horizon)
            jump, r = paths.jump(key_path, s, x, duration, weighted), s + duration
            part = None
            if l == 0:
                f = law.source(r, jump.x, key_new)
            else:
                inside = self.inside if outermost and l == n - 1 else ORDINARY
                new = self.iterate(law, l, key_new, r, jump.x, law.uses_z, inside)
                old = self.iterate(law, l - 1, key_old, r, jump.x, law.uses_z)
                nothing = Solution(jnp.zeros_like(r), jnp.zeros_like(x))
                if not isinstance(inside, int):
                    old = jax.tree.map(lambda a, zero: jnp.where(inside >= NOISE, zero, a), old, nothing)
                f = law.difference(r, jump.x, new, old)
                if outermost and n > 2:
                    part = f if l == 1 else law.difference(r, jump.x, new, nothing)
            return _Sample(f, w, jump.weight, part)

        def mean(l: int | None, *arguments: Any) -> _Term:
            take = lambda: self._mean(*arguments, version=version)
            if not outermost or l == n - 1 or isinstance(self.inside, int):
                return take()
            return jax.lax.cond(self.inside == ORDINARY, take, lambda: zero)

        weighted = z and self.weighs(law, None)
        centre = law.terminal(x) if weighted else None
        f = lambda i, x, weighted=weighted: terminal(weighted, i, x)
        terms = [mean(None, f, x, self.samples**n, 1, 1, z, weighted, centre)]
        for l in self._levels(law, n):
            weighted = z and self.weighs(law, l)
            f = lambda i, x, l=l, weighted=weighted: level(l, weighted, i, x)
            terms.append(mean(l, f, x, self.samples ** (n - l), self.nodes or 1, self._width(l), z, weighted, None))
        return terms + [zero] * (n + 1 - len(terms))

    def _mean(
        self,
        f: Callable[[Array, Array], "_Sample"],
        x: Array,
        samples: int,
        nodes: int,
        width: int,
        z: bool,
        weighted: bool,
        centre: Array | None,
        version: int | Array,
    ) -> "_Term":
        """The mean over samples of the sum over nodes of w f(i, x), a tile of samples at a time.

        Its halves are the means over every other sample.
        """
        count = samples * nodes
        tile = _tile(count, max(1, TILE // width))

        def block(start: Array) -> tuple[_Sums, Array | None]:
            """The sums over a tile of u and what goes with it, and of its z or slope."""
            indices = start + jnp.arange(tile)
            counted = jnp.ones(tile, x.dtype)
            if not isinstance(version, int):
                counted = _counted(version, indices // nodes, samples).astype(x.dtype)
            here = (indices < count) & (counted != 0)

            def total(x: Array) -> tuple[Array, tuple[_Sums, Array | None]]:
                value, w, weight, part = jax.vmap(f, (0, None))(indices, x)
                value, w = (jnp.where(here, a, 0) for a in (value, w * counted))
                new = jnp.zeros((), x.dtype) if part is None else jnp.sum(w * part)
                sums = _Sums(jnp.sum(w * value), jnp.sum(jnp.abs(w * value)), new)
                if weight is None:
                    return sums.u, (sums, None)
                # The mean of a weight is 0, so whatever does not depend on its path may be taken off.
                if self.gradient == "weights":
                    deviation = value if centre is None else value - centre
                else:
                    deviation = value - _mean_of_others(value, here)
                return sums.u, (sums, jnp.einsum("i,id->d", w * deviation, weight))

            if z and not weighted:
                (_, (sums, _)), slope = jax.value_and_grad(total, has_aux=True)(x)
                return sums, slope
            return total(x)[1]

        if tile >= count:
            sums = block(jnp.asarray(0))
        else:
            # The gradient is taken inside each tile, so nothing of a tile outlives it; `checkpoint`
            # keeps that true when an outer level differentiates through this loop.
            step = jax.checkpoint(lambda acc, start: (jax.tree.map(jnp.add, acc, block(start)), None))
            nothing = _Sums(*(jnp.zeros((), x.dtype) for _ in _Sums._fields)), jnp.zeros_like(x) if z else None
            sums, _ = jax.lax.scan(step, nothing, jnp.arange(0, count, tile))
        (u, size, new), part = jax.tree.map(lambda a: a / samples, sums)
        zero = jnp.zeros_like(x)
        return _Term(u, part if z and not weighted else zero, part if weighted else zero, size, new, new - u)

    def _levels(self, law: AbstractLaw, n: int) -> range:
        """The levels of U_n that are not identically zero: for F(t, x) alone every difference is."""
        return range(1 if law.is_linear else n)

    def _width(self, l: int) -> int:
        """How many samples U_l holds side by side."""
        if l == 0:
            return 1
        inner = [self.samples ** (l - k) * (self.nodes or 1) * self._width(k) for k in range(l)]
        return min(TILE, max(self.samples**l, *inner))

    def costs(self, law: AbstractLaw) -> list[Evaluations]:
        return self._costs(law, self.levels)

    def _costs(self, law: AbstractLaw, n: int) -> list[Evaluations]:
        """The recursions FE, RV and RN of the paper; a linear law stops at its first level."""
        normals, uniforms, nodes = law.dim * self.paths(law).steps, 1 if self.nodes is None else 0, self.nodes or 1
        total = [Evaluations(terminal=1, normals=normals).times(self.samples**n)]
        for l in self._levels(law, n):
            one = Evaluations(nonlinearity=1 if l == 0 else 2, normals=normals, uniforms=uniforms)
            inner = sum([c for k in (l, l - 1) if k >= 1 for c in self._costs(law, k)], Evaluations())
            total.append((one + inner).times(self.samples ** (n - l) * nodes))
        return total + [Evaluations()] * (n + 1 - len(total))

    def bias(self, law: AbstractLaw, increments: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
        """What the levels not taken would add, from those taken.

        The last increment estimates E U_n - E U_{n-1}. If the one before it is larger by 1/q, what is left out is
        about q/(1-q) of the last; with q > 1/2 all of it is reported. With two levels, q is the size of the
        samples of the last over that of the samples of U_1, whose means may cancel, and q of the last is reported.
        """
        # Neither the error of a quadrature in time nor that of a clip shows in the increments.
        if self.threshold is not None or self.time == "quadrature":
            return np.full(increments.shape[:-1], np.nan)
        if law.is_linear:
            return np.zeros(increments.shape[:-1])
        # One level says nothing of the next; one sample inside F has no halves to tell what its noise does there.
        if self.levels == 1 or self.samples == 1:
            return np.full(increments.shape[:-1], np.nan)
        last = np.abs(increments[..., -1])
        earlier = slice(0, 2) if self.levels == 2 else slice(-2, -1)
        before = np.abs(np.sum(increments[..., earlier], -1))
        if self.levels == 2:
            first = np.sum(sizes[..., earlier], -1)
            q = np.minimum(np.divide(sizes[..., 2], first, out=np.ones_like(first), where=first > 0), 1)
        else:
            q = np.divide(last, before, out=np.full_like(last, 0.5), where=before > 2 * last)
            q = q / (1 - q)
        return last * q


def _streams(key: PRNGKeyArray, n: int, level: int, i: Array, count: int) -> Iterator[PRNGKeyArray]:
    """`count` <= 4 streams of one sample of one level of U_n: one hash each, all of them in one call."""
    first = (i * (n + 1) + level) * 4
    return iter(jax.vmap(jax.random.fold_in, (None, 0))(key, (first + jnp.arange(count)).astype(jnp.uint32)))


def _counted(version: Array, sample: Array, samples: int) -> Array:
    """How many times a sample counts in a version of the mean of all."""
    first = sample % 2 == 0
    half = samples / jnp.where(first, (samples + 1) // 2, samples // 2)
    sign = jnp.where(first == (version == NOISE), 0.5, -0.5)
    return jnp.select(
        [version == ORDINARY, version >= NOISE],
        [jnp.ones_like(half), sign * half],
        jnp.where(first == (version == FIRST_HALF), half, 0),
    )


class _Sample(NamedTuple):
    """One sample of a term: f, the weight w of its time, the gradient weight of its path if wanted, and what F(U_l) is of f."""

    value: Array
    w: Array
    weight: Array | None
    new: Array | None


class _Sums(NamedTuple):
    u: Array
    size: Array
    new: Array


def _mean_of_others(values: Array, present: Array) -> Array:
    """For each value the mean of those of the others that are present; 0 if it is alone."""
    values = jnp.where(present, values, 0)
    others = jnp.sum(present) - 1
    return (jnp.sum(values) - values) / jnp.maximum(others, 1)


class _Term(NamedTuple):
    """A term of U: u, its slope in x if that came by path derivative, and its z if that came by weights. One of the two is zero."""

    u: Array
    slope: Array
    z: Array
    size: Array  # the mean absolute value of its samples
    new: Array  # of a level, the F(U_l) it adds
    old: Array  # and the F(U_{l-1}) it takes off


def _sum(terms: list[_Term]) -> _Term:
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *terms)


def _tile(count: int, most: int) -> int:
    """A tile of at most about `most` samples that divides `count`, or nearly: a last tile that is not full is masked."""
    if count <= most:
        return count
    divisors = [k for k in range(1, most + 1) if count % k == 0]
    return divisors[-1] if 4 * divisors[-1] >= most else math.ceil(count / math.ceil(count / most))
