"""The iterates U_n of multilevel Picard, as the formula of `picard` has them: terms, levels, and what stands inside F."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._equations.problem import AbstractEquation, Solution
from .._sampling.designs import Draw, design, in_halves
from ..paths.coefficients import diffuse_transposed
from . import _means as means
from ._means import Plan, Sample, Term, mean, sum_of
from .base import FIRST_HALF, NOISE, ORDINARY, jackknifed

if TYPE_CHECKING:
    from .picard import Picard


class _Part(NamedTuple):
    """One of so many equal parts of an iterate: of the samples of these of its levels, and of its terminal term."""

    number: Array
    of: int
    levels: range
    has_terminal: bool


class Iterates(eqx.Module):
    """Of one method, for one law."""

    method: "Picard"
    equation: AbstractEquation

    def at(
        self,
        n: int,
        key: PRNGKeyArray,
        s: Array,
        x: Array,
        z: bool,
        version: int | Array = ORDINARY,
        part: _Part | None = None,
    ) -> Solution:
        """U_n(s, x), that version of it, or that part of it; its z is zero unless asked for."""
        if n == 0:
            return _nothing(s, x)
        return self.solution(s, x, sum_of(self.terms(n, key, s, x, z, version, part)))

    def solution(self, s: Array, x: Array, total: Term) -> Solution:
        """(u, z) from the sum of terms, clipped if asked for."""
        z = total.z + diffuse_transposed(self.equation.diffusion(s, x), total.slope)
        if (c := self.method.threshold) is None:
            return Solution(total.u, z)
        return Solution(jnp.clip(total.u, -c, c), jnp.clip(z, -c, c))

    def terms(
        self,
        n: int,
        key: PRNGKeyArray,
        s: Array,
        x: Array,
        z: bool,
        version: int | Array = ORDINARY,
        part: _Part | None = None,
        outermost: bool = False,
    ) -> list[Term]:
        """The terminal term of U_n, then its levels l = 0, ..., n - 1."""
        method, equation = self.method, self.equation
        paths, nodes = method.paths(equation), method.nodes or 1
        heading = equation.heading(s, x) if method.sampling == "rqmc" else None
        keys = lambda term, i, first: _streams(key, n, term, i, first)

        def drawn(term: int, samples: Any) -> Callable[[Array], Draw]:
            """What sample i of a term is drawn from. Inside F its halves must be independent."""
            of = design if outermost else in_halves
            streams = lambda i: keys(term, i, 0)
            return of(method.sampling, streams, samples, (paths.steps, len(x)), x, heading)

        def terminal(draw: Callable[[Array], Draw], weighted: bool, i: Array, x: Array) -> Sample:
            jump = paths.move(draw(i).noise, s, x, equation.horizon - s, weighted)
            return Sample(equation.terminal(jump.x), jnp.ones_like(s), jump.weight, None)

        def level(
            l: int, draw: Callable[[Array], Draw], weighted: bool, i: Array, x: Array
        ) -> Sample:
            uniform, noise = draw(i)
            key_new, key_old = keys(l + 1, i, 2)
            time_law = method.time_law(weighted)
            duration, w = time_law.draw(uniform, i % time_law.nodes, s, equation.horizon)
            jump, r = paths.move(noise, s, x, duration, weighted), s + duration
            f, new = self._inside(n, l, key_new, key_old, r, jump.x, outermost)
            return Sample(f, w, jump.weight, new)

        def taken(l: int | None, f: Any, plan: Plan) -> Term:
            counted = (
                None
                if isinstance(version, int)
                else functools.partial(_counted, version, samples=plan.samples)
            )
            if part is not None:
                whole_f, plan = f, plan._replace(samples=plan.samples // part.of)
                number = lambda k, part=part: part.of * k + part.number
                f = lambda i, x: whole_f(number(i // plan.nodes) * plan.nodes + i % plan.nodes, x)
            take = lambda: mean(f, x, plan, counted)
            if not outermost or l == n - 1 or isinstance(method.inside, int):
                return take()
            return jax.lax.cond(method.inside == ORDINARY, take, lambda: Term.zero(x))

        # The mean of the others is free of a sample's own path only where samples are independent; pairs and nets cancel a constant by themselves.
        uncentred = method.gradient == "weights" or method.sampling != "mc"
        numbers = (
            method.numbers(n)
            if method.counts is None or not outermost
            else jnp.asarray(method.counts)
        )
        weighted, samples = z and method.weighs(equation, None), numbers[0]
        centre = equation.terminal(x) if weighted else None
        draw = drawn(0, samples)
        f = lambda i, x: terminal(draw, weighted, i, x)
        terms = []
        if part is None or part.has_terminal:
            terms = [taken(None, f, Plan(samples, 1, 1, z, weighted, centre, uncentred))]
        for l in method.levels_of(equation, n) if part is None else part.levels:
            weighted, samples = z and method.weighs(equation, l), numbers[l + 1]
            draw = drawn(l + 1, samples)
            f = lambda i, x, l=l, draw=draw, weighted=weighted: level(l, draw, weighted, i, x)
            terms.append(
                taken(l, f, Plan(samples, nodes, _width(method, l), z, weighted, None, uncentred))
            )
        return terms + [Term.zero(x)] * (n + 1 - len(terms))

    def _inside(
        self,
        n: int,
        l: int,
        key_new: PRNGKeyArray,
        key_old: PRNGKeyArray,
        r: Array,
        x: Array,
        outermost: bool,
    ) -> tuple[Array, Array | None]:
        """F(U_l) - F(U_{l-1}) at (r, x); and, where it is of use, F(U_l) - F(0)."""
        method, equation = self.method, self.equation
        if l == 0:
            return equation.source(r, x, key_new), None
        if method.pairs:
            if l > 1 and method.sampling == "mc":
                return self._coupled(l, key_new, r, x)
            new = self._of_pairs(l, key_new, r, x)
            return new - self._of_pairs(l - 1, key_old, r, x), new
        inside = method.inside if outermost and l == n - 1 else ORDINARY
        new = self.at(l, key_new, r, x, equation.uses_z, inside)
        old = self.at(l - 1, key_old, r, x, equation.uses_z)
        nothing = _nothing(r, x)
        if not isinstance(inside, int):
            old = jax.tree.map(lambda a, zero: jnp.where(inside >= NOISE, zero, a), old, nothing)
        f = equation.difference(r, x, new, old)
        if not (outermost and n > 2):
            return f, None
        return f, f if l == 1 else equation.difference(r, x, new, nothing)

    def _of_pairs(self, l: int, key: PRNGKeyArray, r: Array, x: Array) -> Array:
        """J(U_l) - F(0)."""
        if l == 0:
            return jnp.zeros_like(r)
        return _jackknifed(self.equation, r, x, self._parts(l, key, r, x, 2, range(l)))

    def _coupled(self, l: int, key: PRNGKeyArray, r: Array, x: Array) -> tuple[Array, Array]:
        """J(U_l) less the mean of J(U_{l-1}) over the M iterates that U_l is the mean of, but for its last level; and J(U_l) - F(0)."""
        equation, count = self.equation, self.method.samples
        inner = self._parts(l, key, r, x, 2 * count, range(l - 1))
        inner = jax.tree.map(lambda a: a.reshape(count, 2, *a.shape[1:]), inner)
        last = self._parts(l, key, r, x, 2, range(l - 1, l), has_terminal=False)
        whole = jax.tree.map(lambda of_each, last: jnp.mean(of_each, 0) + last, inner, last)
        new = _jackknifed(equation, r, x, whole)
        return new - jnp.mean(
            jax.vmap(lambda halves: _jackknifed(equation, r, x, halves))(inner)
        ), new

    def _parts(
        self,
        l: int,
        key: PRNGKeyArray,
        r: Array,
        x: Array,
        of: int,
        levels: range,
        has_terminal: bool = True,
    ) -> Solution:
        """U_l in so many independent parts, each with its share of the samples of these of its levels."""
        part = lambda k: _Part(k, of, levels, has_terminal)
        return jax.vmap(lambda k: self.at(l, key, r, x, self.equation.uses_z, part=part(k)))(
            jnp.arange(of)
        )


def _width(method: "Picard", l: int) -> int:
    """How many samples U_l holds side by side."""
    if l == 0:
        return 1
    inner = [method.samples ** (l - k) * (method.nodes or 1) * _width(method, k) for k in range(l)]
    return min(means.TILE, max(method.samples**l, *inner))


def _jackknifed(equation: AbstractEquation, r: Array, x: Array, halves: Solution) -> Array:
    """J - F(0), of the two halves of an iterate."""
    return jackknifed(lambda new: equation.difference(r, x, new, _nothing(r, x)), halves)


def _nothing(s: Array, x: Array) -> Solution:
    return Solution(jnp.zeros_like(s), jnp.zeros_like(x))


def _streams(
    key: PRNGKeyArray, n: int, level: int, i: Array, first: int
) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Two of the four streams of one sample of one level of U_n: one hash each, both of them in one call."""
    numbers = (i * (n + 1) + level) * 4 + first + jnp.arange(2)
    one, other = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers.astype(jnp.uint32))
    return one, other


def _counted(version: Array, sample: Array, samples: int | Array) -> Array:
    """How many times a sample counts in a version of the mean of all."""
    first = sample % 2 == 0
    half = samples / jnp.where(first, (samples + 1) // 2, samples // 2)
    sign = jnp.where(first == (version == NOISE), 0.5, -0.5)
    return jnp.select(
        [version == ORDINARY, version >= NOISE],
        [jnp.ones_like(half), sign * half],
        jnp.where(first == (version == FIRST_HALF), half, 0),
    )
