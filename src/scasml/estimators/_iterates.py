"""The iterates U_n of multilevel Picard iteration, by the formula in `Iterates`.

`Iterates.terms` returns the terminal term and the levels of U_n at one point, each as a `Term`. The
outermost call returns the increments of one replicate. `Iterates.at` returns U_n itself, as it
enters F inside a level. The two methods call each other down to U_0 = 0.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._equations.base import AbstractEquation, Solution
from .._sampling.designs import Draw, design, in_halves
from .._sampling.times import AbstractTimeLaw, FullHistory, GaussLegendre
from ..paths import AbstractPathLaw
from ..paths.coefficients import diffuse_transposed
from . import _means
from ._means import MeanPlan, Sample, Term, mean, sum_of
from ._picard_costs import level_samples
from ._picard_samples import MAIN, multiplicity, streams
from .base import Variant, jackknifed

if TYPE_CHECKING:
    from .picard import Picard

NOISE = int(Variant.NOISE)


class _Part(NamedTuple):
    """One of `parts` equal parts of an iterate.

    Part k is the sum of the included terms, with the samples k, k + parts, k + 2 parts, ... of each
    term. The parts are independent estimates.
    """

    number: Array  # which part, 0 to parts - 1
    parts: int
    levels: range  # the levels that are included
    has_terminal: bool  # whether the terminal term is included


class Iterates(eqx.Module):
    """The iterates U_n = (u_n, z_n) of one estimator for one equation.

    At (s, x), U_0 = (0, 0) and, for n >= 1,

        u_n(s, x) = 1/M^n sum_{i <= M^n} g(X_T^i)
                  + sum_{l < n} 1/M^(n-l) sum_{i <= M^(n-l)} w_i D_l(R_i, X_{R_i}^i)

        D_0(r, y) = F(r, y, 0, 0),    D_l(r, y) = F(r, y, U_l(r, y)) - F(r, y, U_{l-1}(r, y))

    Every sample i of every term has its own path X^i with X_s^i = x. With one random time per
    sample, R_i = s + (T - s) r_i, where r_i has the density p(r) = (1 - a) r^-a on (0, 1), and the
    time weight is w_i = (T - s) / p(r_i). With quadrature, w_i D_l is summed over all nodes R of
    [s, T], and each node has its own path. Terms, samples and each U inside F have independent
    draws, unless the options `sampling` or `pairs` of `Picard` couple them.

    z_n estimates sigma^T grad u_n, as a sum of one estimate per term. There are two methods:

    - path derivatives: sigma(s, x)^T times the derivative of the term in x, with all draws held
      fixed. The derivative goes through X^i and through U inside F.
    - gradient weights: each sample is multiplied by the Bismut-Elworthy-Li weight W^i of its path,
      for which E[f(X_r^i) W^i] = sigma(s, x)^T grad_x E[f(X_r^i)]. The samples are
      (g(X_T^i) - g(x)) W^i and w_i D_l W^i, or they are centred; see `Picard`.

    Both methods estimate the same z, so the terms of one U_n may use different methods.

    `inside` is the variant of U_{n-1} inside F of the last level of the outermost U_n. The int MAIN
    computes no other variant. An array may have the value of any variant; unless it is MAIN, all
    other terms of the outermost U_n are zero.
    """

    estimator: "Picard"
    equation: AbstractEquation
    paths: AbstractPathLaw
    gradient: str = eqx.field(static=True)  # gradient method, without "auto"
    samples: Any  # samples of the outermost terms, (levels + 1,); None for M^n and M^(n-l)
    inside: int | Array

    def at(
        self,
        n: int,
        key: PRNGKeyArray,
        s: Array,
        x: Array,
        z: bool,
        variant: int | Array = MAIN,
        part: _Part | None = None,
    ) -> Solution:
        """Return U_n(s, x), a variant of it, or a part of it; see `terms` for the arguments.

        z is zero unless it is requested.
        """
        if n == 0:
            return Solution.zero(s, x)
        return self.solution(s, x, sum_of(self.terms(n, key, s, x, z, variant, part)))

    def solution(self, s: Array, x: Array, total: Term) -> Solution:
        """Return (u, z) at (s, x) from the sum of the terms, clipped if there is a threshold."""
        z = total.z + diffuse_transposed(self.equation.diffusion(s, x), total.slope)
        if (c := self.estimator.threshold) is None:
            return Solution(total.u, z)
        return Solution(jnp.clip(total.u, -c, c), jnp.clip(z, -c, c))

    def levels(self, n: int) -> range:
        """Return the levels of U_n that are not identically zero.

        If F depends on t and x alone, all levels except level 0 are zero.
        """
        return range(1 if self.equation.is_linear else n)

    def is_weighted(self, l: int | None) -> bool:
        """Return whether z of level l uses weights; None stands for the terminal term."""
        if self.gradient == "mixed":
            return l is not None and l >= 1 and self.equation.uses_z
        return self.gradient in ("weights", "centred")

    def _time_law(self, weighted: bool) -> AbstractTimeLaw:
        """Return the law of the random times, or the quadrature rule that replaces it."""
        if self.estimator.nodes is not None:
            return GaussLegendre(nodes=self.estimator.nodes)
        exponent = self.estimator.time_exponent
        if exponent is None:
            exponent = 0.5 if weighted or self.gradient in ("weights", "centred") else 0.0
        return FullHistory(exponent=exponent)

    def terms(
        self,
        n: int,
        key: PRNGKeyArray,
        s: Array,
        x: Array,
        z: bool,
        variant: int | Array = MAIN,
        part: _Part | None = None,
        outermost: bool = False,
    ) -> list[Term]:
        """Return the terminal term of U_n(s, x) and its levels l = 0, ..., n - 1: n + 1 `Term`s.

        Levels of a linear equation beyond level 0 are zero. With `part`, the included terms come
        first, followed by zeros.

        **Arguments:**

        - `n`, `key`, `s`, `x`: the iterate, its random key, the time and the state (d,).
        - `z`: whether to estimate z.
        - `variant`: the variant of all terms: the int MAIN, or an array with a value of `Variant`.
        - `part`: the part of U_n to compute; None computes all of it.
        - `outermost`: whether this is the U_n of the replicate, and not one inside F. Only the
          outermost U_n uses `samples` and `inside`.
        """
        estimator, equation, paths = self.estimator, self.equation, self.paths
        nodes = estimator.nodes or 1
        heading = equation.heading(s, x) if estimator.sampling == "rqmc" else None
        keys = lambda term, i, first: streams(key, n, term, i, first)

        def sampler(term: int, samples: Any) -> Callable[[Array], Draw]:
            """Return the function from a sample index to the random numbers of that sample."""
            # Inside F, the means over the even and over the odd samples must be independent.
            make = design if outermost else in_halves
            streams = lambda i: keys(term, i, 0)
            return make(estimator.sampling, streams, samples, (paths.steps, len(x)), x, heading)

        def terminal(draw: Callable[[Array], Draw], weighted: bool, i: Array, x: Array) -> Sample:
            jump = paths.move(draw(i).noise, s, x, equation.horizon - s, weighted)
            return Sample(equation.terminal(jump.x), jnp.ones_like(s), jump.weight, None)

        def level(
            l: int, draw: Callable[[Array], Draw], weighted: bool, i: Array, x: Array
        ) -> Sample:
            uniform, noise = draw(i)
            key_new, key_old = keys(l + 1, i, 2)
            time_law = self._time_law(weighted)
            duration, w = time_law.draw(uniform, i % time_law.nodes, s, equation.horizon)
            jump, r = paths.move(noise, s, x, duration, weighted), s + duration
            f, new = self._inside(n, l, key_new, key_old, r, jump.x, outermost)
            return Sample(f, w, jump.weight, new)

        def term_mean(l: int | None, f: Any, plan: MeanPlan) -> Term:
            factors = None
            if not isinstance(variant, int):
                factors = functools.partial(multiplicity, variant, samples=plan.samples)
            if part is not None:
                whole_f, plan = f, plan._replace(samples=plan.samples // part.parts)
                number = lambda k, part=part: part.parts * k + part.number
                f = lambda i, x: whole_f(number(i // plan.nodes) * plan.nodes + i % plan.nodes, x)
            take = lambda: mean(f, x, plan, factors)
            if not outermost or l == n - 1 or isinstance(self.inside, int):
                return take()
            # Variants from HALF_A on need only the last level.
            return jax.lax.cond(self.inside == MAIN, take, lambda: Term.zero(x))

        # The mean of the other samples is independent of a sample's own path only if samples are
        # independent. In antithetic pairs and in nets, a constant cancels without subtraction.
        uncentred = self.gradient == "weights" or estimator.sampling != "mc"
        numbers = level_samples(estimator, n)
        if outermost and self.samples is not None:
            numbers = jnp.asarray(self.samples)
        weighted, samples = z and self.is_weighted(None), numbers[0]
        centre = equation.terminal(x) if weighted else None
        draw = sampler(0, samples)
        f = lambda i, x: terminal(draw, weighted, i, x)
        terms = []
        if part is None or part.has_terminal:
            plan = MeanPlan(samples, 1, 1, z, weighted, centre, uncentred)
            terms = [term_mean(None, f, plan)]
        for l in self.levels(n) if part is None else part.levels:
            weighted, samples = z and self.is_weighted(l), numbers[l + 1]
            draw = sampler(l + 1, samples)
            f = lambda i, x, l=l, draw=draw, weighted=weighted: level(l, draw, weighted, i, x)
            width = _inner_samples(estimator, l)
            plan = MeanPlan(samples, nodes, width, z, weighted, None, uncentred)
            terms.append(term_mean(l, f, plan))
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
        """Return D_l = F(U_l) - F(U_{l-1}) at (r, x) and, where it is needed, F(U_l) - F(0).

        D_0 is F(0), drawn from `key_new`. `key_new` and `key_old` are the keys of U_l and U_{l-1}.
        With the option `pairs` of `Picard`, J replaces F.
        """
        estimator, equation = self.estimator, self.equation
        if l == 0:
            return equation.source(r, x, key_new), None
        if estimator.pairs:
            if l > 1 and estimator.sampling == "mc":
                return self._coupled(l, key_new, r, x)
            new = self._jackknifed_iterate(l, key_new, r, x)
            return new - self._jackknifed_iterate(l - 1, key_old, r, x), new
        inside = self.inside if outermost and l == n - 1 else MAIN
        new = self.at(l, key_new, r, x, equation.uses_z, inside)
        old = self.at(l - 1, key_old, r, x, equation.uses_z)
        zero = Solution.zero(r, x)
        if not isinstance(inside, int):
            old = jax.tree.map(lambda a, zero: jnp.where(inside >= NOISE, zero, a), old, zero)
        f = equation.difference(r, x, new, old)
        if not (outermost and n > 2):
            return f, None
        return f, f if l == 1 else equation.difference(r, x, new, zero)

    def _jackknifed_iterate(self, l: int, key: PRNGKeyArray, r: Array, x: Array) -> Array:
        """Return J(U_l) - F(0) at (r, x), from two independent halves of U_l."""
        if l == 0:
            return jnp.zeros_like(r)
        return _jackknifed(self.equation, r, x, self._parts(l, key, r, x, 2, range(l)))

    def _coupled(self, l: int, key: PRNGKeyArray, r: Array, x: Array) -> tuple[Array, Array]:
        """Return a coupled difference of J(U_l) and J(U_{l-1}) at (r, x), and J(U_l) - F(0).

        J is the jackknifed F of the option `pairs` of `Picard`. U_l without its last level is the
        mean of M independent iterates U_{l-1}. The difference is J(U_l) minus the mean of J over
        these iterates.
        """
        equation, count = self.equation, self.estimator.samples
        inner = self._parts(l, key, r, x, 2 * count, range(l - 1))
        inner = jax.tree.map(lambda a: a.reshape(count, 2, *a.shape[1:]), inner)
        last = self._parts(l, key, r, x, 2, range(l - 1, l), has_terminal=False)
        total = jax.tree.map(lambda each, last: jnp.mean(each, 0) + last, inner, last)
        new = _jackknifed(equation, r, x, total)
        old = jax.vmap(lambda halves: _jackknifed(equation, r, x, halves))(inner)
        return new - jnp.mean(old), new

    def _parts(
        self,
        l: int,
        key: PRNGKeyArray,
        r: Array,
        x: Array,
        parts: int,
        levels: range,
        has_terminal: bool = True,
    ) -> Solution:
        """Return U_l(r, x) in `parts` independent parts, stacked along the first axis.

        A part has the terms that `levels` and `has_terminal` include; see `_Part`.
        """
        part = lambda k: _Part(k, parts, levels, has_terminal)
        one = lambda k: self.at(l, key, r, x, self.equation.uses_z, part=part(k))
        return jax.vmap(one)(jnp.arange(parts))


def _inner_samples(estimator: "Picard", l: int) -> int:
    """Return how many samples an evaluation of U_l computes side by side, at most `TILE`."""
    if l == 0:
        return 1
    inner = [
        estimator.samples ** (l - k) * (estimator.nodes or 1) * _inner_samples(estimator, k)
        for k in range(l)
    ]
    return min(_means.TILE, max(estimator.samples**l, *inner))


def _jackknifed(equation: AbstractEquation, r: Array, x: Array, halves: Solution) -> Array:
    """Return J(U) - F(0) at (r, x) from the two halves of U, stacked along the first axis."""
    zero = Solution.zero(r, x)
    return jackknifed(lambda new: equation.difference(r, x, new, zero), halves)
