"""The estimator `Picard`: multilevel Picard iteration, full history or quadrature in time.

U_0 = 0 and, with fresh independent draws for every level, sample and inner call,

    U_n(s, x) = 1/M^n sum_{i <= M^n} g(X_T^i)
              + sum_{l < n} 1/M^(n-l) sum_{i <= M^(n-l)}
                    w_i [F(U_l) - 1{l >= 1} F(U_{l-1})](R_i, X_{R_i}^i)

z is the second component of U = (u, z). A path derivative estimates z as sigma^T times the
derivative of a term in x, for fixed draws. A weighted estimate, as in the paper, multiplies the
term by the Bismut-Elworthy-Li weight of its path. Both estimate the same z, so terms may differ in
method.
"""

import itertools
import math
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._sampling.designs import SAMPLINGS, Sampling, check_samples
from .._support.errors import ArgumentError, brief, one_of, positive, whole
from .._support.operation_counts import NORMAL_WORK, REVERSE_FACTOR, equation_work
from .._support.types import Floats
from ..paths import SCHEMES, AbstractPathLaw, Stepped
from ..paths.coefficients import undiffuse_transposed
from ._iterates import Iterates
from ._means import sum_of
from ._picard_costs import picard_evaluations, sample_evaluations
from .base import AbstractTunable, Evaluations, Replicate, Tuning, Variant, even_steps

GRADIENTS = ("auto", "pathwise", "mixed", "centred", "weights")


class Picard(AbstractTunable):
    """Multilevel Picard iteration with `levels` levels and `samples` as base M of the samples.

    **Arguments:**

    - `time`: "full-history" draws one random time per sample, from the density (1 - a) r^-a with
      a = `time_exponent` (default 0 for path derivatives, 1/2 for weights). "quadrature" uses the
      `nodes` Gauss-Legendre nodes.
    - `gradient`: how z is estimated.
        - "pathwise" differentiates every term along its paths. It needs a Lipschitz g. If F depends
          on z, three levels, or two levels with a reported gradient, differentiate z again and need
          a g with Lipschitz first derivatives.
        - "weights" is the method of the paper, and needs no smoothness of g.
        - "centred" subtracts the mean of the other samples before weighting, and is much less
          noisy.
        - "mixed" uses path derivatives of g and of F(t, x, 0, 0), and centred weights for the
          differences of F, which contain z. A g with kinks is allowed.
        - "auto" takes the first of pathwise, mixed and centred that is valid.
    - `threshold`: clips every component of every U_l to [-threshold, threshold], as the paper does.
    - `sampling`: "mc" draws independent samples. "antithetic" draws mirrored pairs with stratified
      times (`samples` a multiple of 4). "rqmc" draws scrambled nets, rotated toward the gradient of
      the surrogate (`samples` a power of 2).
    - `pairs`: U enters F as the mean of two independent halves a and b, and
      J(U) = 2 F(U) - (F(a) + F(b))/2 replaces F(U). This removes the leading bias from the noise of
      U. The bias is zero if F is quadratic. With sampling="mc" the two terms of a difference are
      also coupled: U_l without its last level is the mean of M independent U_{l-1}.
    - `allocation`: samples of the levels of U_n itself. "paper" takes M^n and M^(n-l). "measured"
      takes, at each point, the numbers with the least work for the variances of a pilot, and omits
      the last levels where they add less than they cost.
    - `steps`: steps of a path with `scheme`; "auto" draws paths exactly where possible, and
      elsewhere takes enough steps for the step bias to stay below the statistical error.
    """

    # Steps of a path while steps="auto" is not settled.
    fewest_steps: ClassVar[int] = 16

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
    scheme: str = eqx.field(static=True)
    steps: int | Literal["auto"] = eqx.field(static=True)

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
        scheme: str = "euler",
        steps: int | Literal["auto"] = "auto",
    ):
        self.levels = whole("levels", levels, 1, "pass the number of Picard levels")
        self.samples = whole("samples", samples, 1, "pass the base of the sample numbers")
        self.gradient = one_of("gradient", gradient, GRADIENTS)
        self.time = one_of("time", time, ("full-history", "quadrature"))
        self.scheme = one_of("scheme", scheme, tuple(SCHEMES))
        self.threshold = None
        if threshold is not None:
            self.threshold = positive("threshold", threshold, "pass where to clip")
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
                    f'nodes applies to time="quadrature" only, got nodes={brief(nodes)}: '
                    "leave it out, or change time."
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
                    'time_exponent applies to time="full-history" only, got '
                    f"{brief(time_exponent)}: "
                    "leave it out, or change time."
                )
            if self.sampling != "mc":
                raise ArgumentError(
                    f'sampling applies to time="full-history" only, got {brief(sampling)}: '
                    "leave it out, or change time."
                )
            nodes = 3 if nodes is None else nodes
            self.nodes = whole("nodes", nodes, 1, "pass the number of quadrature nodes")
        # A 31-bit index of level and sample separates the random streams. The logarithm is checked
        # first, because the power itself could fill the memory.
        too_many = self.levels * math.log2(self.samples) > 31
        streams = lambda: 4 * (self.levels + 1) * self.samples**self.levels * (self.nodes or 1)
        if too_many or streams() >= 2**31:
            raise ArgumentError(
                f"samples must satisfy samples**levels <= about 1e8, got {samples}**{levels}: "
                "take fewer, and more replicates instead."
            )
        self.steps = even_steps("steps", steps)

    @property
    def increments(self) -> tuple[str, ...]:
        return ("terminal", *(f"level {l}" for l in range(self.levels)))

    @property
    def measures_samples(self) -> bool:
        return self.allocation == "measured"

    @property
    def max_steepness(self) -> tuple[float, float]:
        # Where the two steepnesses add up to more than 1, increments grow before they decay.
        return 1.0, 1.0

    def default_tuning(self, equation: AbstractEquation, gradient: bool) -> Tuning:
        method = "pathwise" if self.gradient == "auto" else self.gradient
        return Tuning(method, self._steps(equation))

    def pilot_tuning(self, equation: AbstractEquation, gradient: str) -> Tuning:
        tuning = Tuning(gradient, self._steps(equation))
        if self.allocation == "paper":
            return tuning
        inner = 2 if self.sampling == "mc" else 4
        return tuning.with_samples(np.array([16, 16, *[inner] * (self.levels - 1)], np.int32))

    def sample_bounds(self) -> tuple[Floats, Floats]:
        inner = np.ones(self.levels - 1)
        return np.array([32, 32, *4 * inner]), np.array([8192, 8192, *1024 * inner])

    def step_order(self, equation: AbstractEquation) -> tuple[int, int]:
        is_exact = self.steps == "auto" and equation.dynamics.exact is not None
        return 0 if is_exact else 1, self.levels + 1

    def derivative_order(self, equation: AbstractEquation, gradient: bool) -> int:
        inner = self.levels - 1 if equation.uses_z else 0
        return inner + gradient

    def bias_variants(self, equation: AbstractEquation) -> tuple[tuple[Variant, Variant], ...]:
        # Without means inside F, or with a jackknife in every replicate, there is nothing to
        # measure.
        has_means = self.levels >= 2 and self.samples >= 2 and not equation.is_linear
        if not has_means or self.threshold is not None or self.pairs:
            return ()
        return (Variant.HALF_A, Variant.HALF_B), (Variant.NOISE, Variant.MINUS_NOISE)

    def replicate(
        self,
        equation: AbstractEquation,
        tuning: Tuning,
        variant: Array,
        key: PRNGKeyArray,
        t: Array,
        x: Array,
        gradient: bool,
    ) -> Replicate:
        coarse = variant == Variant.COARSE_STEPS if tuning.steps else False
        inside = int(Variant.MAIN)
        if self.bias_variants(equation):
            inside = jnp.where(variant >= Variant.HALF_A, variant, Variant.MAIN)
        paths = self.paths(equation, tuning.steps, coarse)
        iterates = Iterates(self, equation, paths, tuning.gradient, tuning.samples, inside)
        terms = iterates.terms(self.levels, key, t, x, gradient, outermost=True)
        increments = jnp.stack([term.u for term in terms])
        sizes = jnp.stack([term.size for term in terms])
        # Level l adds F(U_l), and level l + 1 subtracts it: their means are equal.
        differences = [a.new - b.old for a, b in itertools.pairwise(terms[2:])]
        telescoping = jnp.stack(differences) if differences else jnp.zeros(0, x.dtype)
        if tuning.samples is not None:
            # An omitted level subtracts nothing.
            telescoping = jnp.where(jnp.asarray(tuning.samples)[3:] > 0, telescoping, 0)
        solution = iterates.solution(t, x, sum_of(terms))
        if not gradient:
            return Replicate(solution.u, None, increments, None, sizes, telescoping)
        # Slopes are reported as they are. Computing sigma^-T sigma^T of a slope would lose digits
        # if sigma is ill-conditioned.
        slopes = jnp.stack([term.slope for term in terms])
        to_slope = lambda z: undiffuse_transposed(equation.diffusion(t, x), z)
        if any(iterates.is_weighted(l) for l in (None, *iterates.levels(self.levels))):
            slopes = slopes + jax.vmap(to_slope)(jnp.stack([term.z for term in terms]))
        total = jnp.sum(slopes, 0) if self.threshold is None else to_slope(solution.z)
        return Replicate(solution.u, total, increments, slopes, sizes, telescoping)

    def evaluations(self, equation: AbstractEquation, tuning: Tuning) -> list[Evaluations]:
        return picard_evaluations(self, equation, tuning)

    def work(self, equation: AbstractEquation, tuning: Tuning, gradient: bool) -> Floats:
        g, f = equation_work(equation)
        outer = REVERSE_FACTOR if gradient else 1.0
        inner = REVERSE_FACTOR if equation.uses_z else 1.0
        total = []
        for k, one in enumerate(sample_evaluations(self, equation, tuning.steps, self.levels)):
            work = one.terminal * g + one.nonlinearity * f + one.random_numbers * NORMAL_WORK
            # The terminal term and level 0 contain no inner iterates.
            total.append(work * outer * (1.0 if k < 2 else inner))
        return np.array(total)

    def level_bias(
        self, equation: AbstractEquation, mean: NDArray[Any], size: NDArray[Any]
    ) -> NDArray[Any]:
        """Extrapolate what the levels beyond the last would add.

        The last increment estimates E U_n - E U_{n-1}. If the ratio of the last two increments is
        q, the omitted levels add about q/(1-q) times the last. For q > 1/2 the whole last increment
        is reported. With two levels, q compares mean absolute samples, because the means of the
        earlier increments may cancel, and q times the last increment is reported.
        """
        # The increments show neither the error of a quadrature in time nor that of a clip.
        if self.threshold is not None or self.time == "quadrature":
            return np.full(mean.shape[:-1], np.nan)
        if equation.is_linear:
            return np.zeros(mean.shape[:-1])
        # One level says nothing about the next. One sample inside F has no halves to compare.
        if self.levels == 1 or self.samples == 1:
            return np.full(mean.shape[:-1], np.nan)
        last = np.abs(mean[..., -1])
        earlier = slice(0, 2) if self.levels == 2 else slice(-2, -1)
        before = np.abs(np.sum(mean[..., earlier], -1))
        if self.levels == 2:
            first = np.sum(size[..., earlier], -1)
            ratio = np.divide(size[..., 2], first, out=np.ones_like(first), where=first > 0)
            return last * np.minimum(ratio, 1)
        q = np.divide(last, before, out=np.full_like(last, 0.5), where=before > 2 * last)
        return last * (q / (1 - q))

    def paths(
        self, equation: AbstractEquation, steps: int, coarse: bool | Array = False
    ) -> AbstractPathLaw:
        """Return the law of the paths: exact if `steps` is 0."""
        exact = equation.dynamics.exact
        if steps == 0 and exact is not None:
            return exact
        return Stepped(dynamics=equation.dynamics, scheme=self.scheme, steps=steps, coarse=coarse)

    def _steps(self, equation: AbstractEquation) -> int:
        """Return the requested steps, the fewest if they are left open, 0 for exact paths."""
        if self.step_order(equation)[0] == 0:
            return 0
        return self.fewest_steps if self.steps == "auto" else self.steps
