"""Multilevel Picard iteration, full history or quadrature in time.

U_0 = 0 and, with fresh independent draws for every level, sample and inner call,

    U_n(s, x) = 1/M^n sum_{i <= M^n} g(X_T^i)
              + sum_{l < n} 1/M^(n-l) sum_{i <= M^(n-l)} w_i [F(U_l) - 1{l >= 1} F(U_{l-1})](R_i, X_{R_i}^i)

z is the second half of U = (u, z). By path derivative it is sigma^T times the derivative of a term,
same draws, in x. By weights, the paper's, the term is multiplied by the Bismut-Elworthy-Li weight of
its path. Both estimate the same z, so each term may go its own way.
"""

import itertools
import math
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.problem import AbstractEquation
from .._sampling.designs import SAMPLINGS, Sampling, check_samples
from .._sampling.times import AbstractTimeLaw, FullHistory, GaussLegendre
from .._support.errors import ArgumentError, brief, one_of, positive, whole
from .._support.operation_counts import NORMAL_WORK, REVERSE_FACTOR, equation_work
from ..paths import AbstractPathLaw, Stepped
from ..paths.coefficients import undiffuse_transposed
from ._iterates import Iterates
from ._means import sum_of
from .base import (
    FIRST_HALF,
    HALF_THE_STEPS,
    ORDINARY,
    AbstractEstimator,
    Evaluations,
    Floats,
    Replicate,
    even,
)

# Steps of a discretised path while steps="auto" is undecided.
STEPS = 16
# From where on the increments of the series grow before they fall.
STEEP = 1.0


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
    - `sampling`: "mc"; "antithetic", in mirrored pairs with stratified times (`samples` a multiple of 4); or "rqmc", scrambled nets
      turned toward the gradient of the surrogate (`samples` a power of 2).
    - `pairs`: U stands inside F as the mean of two independent halves a and b, and J(U) = 2 F(U) - (F(a) + F(b))/2 in the place of F(U): what
      the noise of U does there is taken off. Where F is quadratic that leaves no bias. With sampling="mc" the two of a difference are also
      coupled: U_l without its last level is the mean of M independent U_{l-1}, and J(U_l) - mean J(U_{l-1}) has no noise of first order in them.
    - `allocation`: of the samples to the levels of U_n itself. "paper" takes M^n and M^(n-l); "measured" takes, at each point, what costs the
      least work for the variance of each level in a pilot, and leaves out the last levels where that is cheaper than what they add is worth.
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
    sampling: Sampling = eqx.field(static=True)
    pairs: bool = eqx.field(static=True)
    allocation: Literal["paper", "measured"] = eqx.field(static=True)
    scheme: Literal["euler", "milstein"] = eqx.field(static=True)
    steps: int | Literal["auto"] = eqx.field(static=True)
    counts: Any  # of the samples of the terminal term and of each level of U_n, once they are allotted: data
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
        sampling: Sampling = "mc",
        pairs: bool = False,
        allocation: Literal["paper", "measured"] = "paper",
        scheme: Literal["euler", "milstein"] = "euler",
        steps: int | Literal["auto"] = "auto",
    ):
        self.levels = whole("levels", levels, 1, "pass the number of Picard levels")
        self.samples = whole("samples", samples, 1, "pass the base of the sample numbers")
        self.gradient = one_of(
            "gradient", gradient, ("auto", "pathwise", "mixed", "centred", "weights")
        )
        self.time = one_of("time", time, ("full-history", "quadrature"))
        self.scheme = one_of("scheme", scheme, ("euler", "milstein"))
        self.threshold = (
            None if threshold is None else positive("threshold", threshold, "pass where to clip")
        )
        self.sampling = one_of("sampling", sampling, SAMPLINGS)
        check_samples("samples", self.sampling, self.samples, self.levels)
        self.pairs = bool(pairs)
        if self.pairs and self.samples % 2:
            raise ArgumentError(
                f"samples must be even to be taken in pairs, got {samples}: take {samples + 1}."
            )
        if self.pairs and self.threshold is not None:
            raise ArgumentError(
                f"threshold does not go with pairs, got {brief(threshold)}: leave one of them out."
            )
        self.allocation = one_of("allocation", allocation, ("paper", "measured"))
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
                    raise ArgumentError(
                        f"time_exponent must be below 1, got {brief(time_exponent)}: {remedy}."
                    )
        else:
            if time_exponent is not None:
                raise ArgumentError(
                    f'time_exponent applies to time="full-history" only, got {brief(time_exponent)}: leave it out, or change time.'
                )
            if self.sampling != "mc":
                raise ArgumentError(
                    f'sampling applies to time="full-history" only, got {brief(sampling)}: leave it out, or change time.'
                )
            self.nodes = whole(
                "nodes", 3 if nodes is None else nodes, 1, "pass the number of quadrature nodes"
            )
        # Streams are told apart by a 31-bit index of level and sample.
        too_many = (
            self.levels * math.log2(self.samples) > 31
        )  # said before the power is formed: it may fill the memory
        if (
            too_many
            or 4 * (self.levels + 1) * self.samples**self.levels * (self.nodes or 1) >= 2**31
        ):
            raise ArgumentError(
                f"samples must satisfy samples**levels <= about 1e8, got {samples}**{levels}: take fewer, and more replicates instead."
            )
        self.steps = even("steps", steps)
        self.counts, self.halved, self.inside = None, False, ORDINARY

    def settle(self, *, gradient: str | None = None, steps: int | None = None) -> Self:
        return self.but(gradient=gradient or self.gradient, steps=steps or self.steps)

    def vary(self, equation: AbstractEquation, version: Array) -> Self:
        other = self
        if self.discretises(equation):
            other = other.but(halved=version == HALF_THE_STEPS)
        if self.jackknifes(equation):
            other = other.but(inside=jnp.where(version >= FIRST_HALF, version, ORDINARY))
        return other

    @property
    def fewest_steps(self) -> int:
        return STEPS

    def discretises(self, equation: AbstractEquation) -> bool:
        return self.steps != "auto" or equation.dynamics.exact is None

    def order(self, equation: AbstractEquation) -> int:
        return 1

    @property
    def is_allotted(self) -> bool:
        return self.allocation == "paper" or self.counts is not None

    def allot(self, counts: Any) -> Self:
        return self.but(counts=counts)

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        inner = np.ones(self.levels - 1)
        return np.array([32, 32, *4 * inner]), np.array([8192, 8192, *1024 * inner])

    def work(self, equation: AbstractEquation, gradient: bool) -> Floats:
        g, f = equation_work(equation)
        once = REVERSE_FACTOR if gradient else 1.0
        inside = REVERSE_FACTOR if equation.uses_z else 1.0
        total = []
        for l, one in zip(
            (None, *range(self.levels)), self._samples(equation, self.levels), strict=True
        ):
            work = one.terminal * g + one.nonlinearity * f + one.random_numbers * NORMAL_WORK
            total.append(work * once * (1.0 if l is None or l == 0 else inside))
        return np.array(total)

    def thinned(self) -> tuple[Self, Floats]:
        if self.allocation == "paper":
            return self, np.ones(self.levels + 1)
        few = np.array([16, 16, *2 * np.ones(self.levels - 1)], np.int32)
        if self.sampling != "mc":
            few[2:] = 4
        counts = few if self.counts is None else self.counts
        few = np.minimum(few, counts).astype(np.int32)
        return self.but(counts=few), few / np.maximum(counts, 1)

    def jackknifes(self, equation: AbstractEquation) -> bool:
        told = (
            self.levels >= 2
            and self.samples >= 2
            and not equation.is_linear
            and self.threshold is None
        )
        return told and not self.pairs

    def derivatives(self, equation: AbstractEquation, gradient: bool) -> int:
        inner = self.levels - 1 if equation.uses_z else 0
        return inner + gradient

    def paths(self, equation: AbstractEquation) -> AbstractPathLaw:
        exact = equation.dynamics.exact
        if self.steps == "auto" and exact is not None:
            return exact
        steps = STEPS if self.steps == "auto" else self.steps
        return Stepped(
            dynamics=equation.dynamics, scheme=self.scheme, steps=steps, halved=self.halved
        )

    def time_law(self, weighted: bool) -> AbstractTimeLaw:
        if self.nodes is not None:
            return GaussLegendre(nodes=self.nodes)
        default = 0.5 if weighted or self.gradient in ("weights", "centred") else 0.0
        return FullHistory(exponent=default if self.time_exponent is None else self.time_exponent)

    def weighs(self, equation: AbstractEquation, l: int | None) -> bool:
        """Whether z of level l (None: of the terminal term) comes by weights."""
        if self.gradient == "mixed":
            return l is not None and l >= 1 and equation.uses_z
        return self.gradient in ("weights", "centred")

    @property
    def names(self) -> tuple[str, ...]:
        return ("terminal", *(f"level {l}" for l in range(self.levels)))

    def is_lost(self, of_u: Floats, of_z: Floats) -> NDArray[np.bool_]:
        return of_u + of_z > STEEP

    def replicate(
        self, equation: AbstractEquation, key: PRNGKeyArray, t: Array, x: Array, gradient: bool
    ) -> Replicate:
        iterates = Iterates(self, equation)
        terms = iterates.terms(self.levels, key, t, x, gradient, outermost=True)
        increments, sizes = (
            jnp.stack([getattr(term, name) for term in terms]) for name in ("u", "size")
        )
        # The F(U_l) that level l adds, and the one that level l + 1 takes off: the same in the mean.
        pairs = list(itertools.pairwise(terms[2:]))
        telescoping = (
            jnp.stack([a.new - b.old for a, b in pairs]) if pairs else jnp.zeros(0, x.dtype)
        )
        if self.counts is not None:
            # Nothing is taken off where a level is left out.
            telescoping = jnp.where(jnp.asarray(self.counts)[3:] > 0, telescoping, 0)
        solution = iterates.solution(t, x, sum_of(terms))
        if not gradient:
            return Replicate(solution.u, None, increments, None, sizes, telescoping)
        # A slope is reported itself, and not as sigma^-T sigma^T of it, which loses digits if sigma is ill-conditioned.
        slopes = jnp.stack([term.slope for term in terms])
        unweigh = lambda z: undiffuse_transposed(equation.diffusion(t, x), z)
        if any(self.weighs(equation, l) for l in (None, *self.levels_of(equation, self.levels))):
            slopes = slopes + jax.vmap(unweigh)(jnp.stack([term.z for term in terms]))
        total = jnp.sum(slopes, 0) if self.threshold is None else unweigh(solution.z)
        return Replicate(solution.u, total, increments, slopes, sizes, telescoping)

    def levels_of(self, equation: AbstractEquation, n: int) -> range:
        """The levels of U_n that are not identically zero: for F(t, x) alone every difference is."""
        return range(1 if equation.is_linear else n)

    def numbers(self, n: int) -> list[int]:
        """Of the samples of U_n: M^n of the terminal term, M^(n-l) of level l."""
        return [self.samples**n, *(self.samples ** (n - l) for l in range(n))]

    def costs(self, equation: AbstractEquation) -> list[Evaluations]:
        return self._costs(equation, self.levels, self.counts)

    def _costs(self, equation: AbstractEquation, n: int, counts: Any = None) -> list[Evaluations]:
        """The recursions FE, RV and RN of the paper."""
        numbers = self.numbers(n) if counts is None else [int(count) for count in counts]
        return [
            one.times(number)
            for one, number in zip(self._samples(equation, n), numbers, strict=True)
        ]

    def _samples(self, equation: AbstractEquation, n: int) -> list[Evaluations]:
        """Of one sample of the terminal term and of each level; a linear law stops at its first."""
        normals, uniforms, nodes = (
            equation.dim * self.paths(equation).steps,
            1 if self.nodes is None else 0,
            self.nodes or 1,
        )
        total = [Evaluations(terminal=1, normals=normals)]
        for l in self.levels_of(equation, n):
            is_coupled = self.pairs and self.sampling == "mc"
            of_f = (
                1
                if l == 0
                else 2
                if not self.pairs
                else 3
                if l == 1
                else 3 * (self.samples + 1)
                if is_coupled
                else 6
            )
            one = Evaluations(nonlinearity=of_f, normals=normals, uniforms=uniforms)
            apart = (l,) if is_coupled else (l, l - 1)
            inner = sum(
                [c for k in apart if k >= 1 for c in self._costs(equation, k)], Evaluations()
            )
            total.append((one + inner).times(nodes))
        return total + [Evaluations()] * (n + 1 - len(total))

    def bias(
        self, equation: AbstractEquation, increments: NDArray[Any], sizes: NDArray[Any]
    ) -> NDArray[Any]:
        """What the levels not taken would add, from those taken.

        The last increment estimates E U_n - E U_{n-1}. If the one before it is larger by 1/q, what is left out is
        about q/(1-q) of the last; with q > 1/2 all of it is reported. With two levels, q is the size of the
        samples of the last over that of the samples of U_1, whose means may cancel, and q of the last is reported.
        """
        # Neither the error of a quadrature in time nor that of a clip shows in the increments.
        if self.threshold is not None or self.time == "quadrature":
            return np.full(increments.shape[:-1], np.nan)
        if equation.is_linear:
            return np.zeros(increments.shape[:-1])
        # One level says nothing of the next; one sample inside F has no halves to tell what its noise does there.
        if self.levels == 1 or self.samples == 1:
            return np.full(increments.shape[:-1], np.nan)
        last = np.abs(increments[..., -1])
        earlier = slice(0, 2) if self.levels == 2 else slice(-2, -1)
        before = np.abs(np.sum(increments[..., earlier], -1))
        if self.levels == 2:
            first = np.sum(sizes[..., earlier], -1)
            q = np.minimum(
                np.divide(sizes[..., 2], first, out=np.ones_like(first), where=first > 0), 1
            )
        else:
            q = np.divide(last, before, out=np.full_like(last, 0.5), where=before > 2 * last)
            q = q / (1 - q)
        return last * q
