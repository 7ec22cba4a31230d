"""The estimator `Picard`: multilevel Picard iteration, full history or quadrature in time.

One replicate is one draw of the iterate U_n = (u_n, z_n) at (s, x), where z_n estimates
sigma^T grad u_n. `Iterates` has the formula and computes it.
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
from .base import AbstractTunable, Replicate, Tuning, Variant, even_steps
from .evaluations import Evaluations

GRADIENTS = ("auto", "pathwise", "mixed", "centred", "weights")


class Picard(AbstractTunable):
    """Multilevel Picard iteration: one replicate is one draw of the iterate U_n.

    U_n estimates the solution u and z = sigma^T grad u, and U_0 is (0, 0). U_n is the sum of a
    terminal term, the mean of g at the ends of paths, and of one term for each level l < n. The
    term of level l is the mean of the integral of D_l over time, with D_0 = F(t, x, 0, 0) and
    D_l = F(t, x, U_l) - F(t, x, U_{l-1}) for l >= 1.

    **Arguments:**

    - `levels`: n. The levels are l = 0, ..., n - 1.
    - `samples`: M. The terminal term has M^n samples, and level l has M^(n-l).
    - `time`: "full-history" draws one random time R = s + (T - s) r per sample, with r of density
      (1 - a) r^-a on (0, 1). "quadrature" uses Gauss-Legendre nodes of [s, T].
    - `nodes`: number of nodes of the quadrature, 3 by default.
    - `time_exponent`: a, with 0 <= a < 1. The default is 1/2 where z uses gradient weights, and 0
      elsewhere.
    - `gradient`: how z is estimated.
        - "pathwise" differentiates every term along its paths. A reported gradient differentiates g
          once. If F depends on z, the n levels differentiate g another n - 1 times. If g is
          differentiated k times, its derivatives of order k - 1 must be Lipschitz.
        - "weights" uses gradient weights as the SCaSML paper does, and needs no smoothness of g.
        - "centred" uses gradient weights, and first subtracts from each sample the mean of the
          other samples. Its variance is much smaller. With sampling="antithetic" or "rqmc" it is
          the same as "weights".
        - "mixed" uses path derivatives of g and of F(t, x, 0, 0), and centred gradient weights for
          the differences of F, which contain z. A g with kinks is allowed.
        - "auto" takes the first of "pathwise", "mixed" and "centred" that g and F allow.
    - `threshold`: clips every component of every U_l to [-threshold, threshold], as the SCaSML
      paper does.
    - `sampling`: "mc" draws independent samples. "antithetic" draws mirrored pairs with stratified
      times (`samples` a multiple of 4). "rqmc" draws scrambled Sobol nets, whose first path
      component moves along the gradient of the surrogate (`samples` a power of 2, at least 4).
    - `pairs`: U enters F as the mean of two independent halves a and b, and
      J(U) = 2 F(U) - (F(a) + F(b))/2 replaces F(U). This removes the leading bias from the
      statistical error of U, and the whole bias if F is quadratic. With sampling="mc", the two
      terms of D_l are also coupled: U_l without its last level is the mean of M independent
      U_{l-1}, and D_l is J(U_l) minus the mean of J over these U_{l-1}.
    - `allocation`: samples of the terms of U_n itself. "paper" takes M^n and M^(n-l). "measured"
      takes, at each point, the numbers with the least work for the variances of a pilot. It omits
      the last levels where they add less than they cost.
    - `scheme`: stepping scheme of paths that are simulated in steps.
    - `steps`: steps of a path, an even number. "auto" draws paths exactly where possible. Elsewhere
      it takes enough steps for the step bias to stay below the statistical error.

    Raises ArgumentError or ArgumentTypeError if an argument is not valid or does not suit another.
    """

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
        # Where the two steepnesses add up to more than 1, increments may grow before they decay.
        return 1.0, 1.0

    def default_tuning(self, equation: AbstractEquation, gradient: bool) -> Tuning:
        method = "pathwise" if self.gradient == "auto" else self.gradient
        return Tuning(method, self.first_steps(equation))

    def pilot_tuning(self, equation: AbstractEquation, gradient: str) -> Tuning:
        tuning = Tuning(gradient, self.first_steps(equation))
        if self.allocation == "paper":
            return tuning
        inner = 2 if self.sampling == "mc" else 4
        return tuning.with_samples(np.array([16, 16, *[inner] * (self.levels - 1)], np.int32))

    def sample_bounds(self) -> tuple[Floats, Floats]:
        inner = np.ones(self.levels - 1)
        return np.array([32, 32, *4 * inner]), np.array([8192, 8192, *1024 * inner])

    def step_order(self, equation: AbstractEquation) -> int:
        is_exact = self.steps == "auto" and equation.dynamics.exact is not None
        return 0 if is_exact else 1

    def derivative_order(self, equation: AbstractEquation, gradient: bool) -> int:
        inner = self.levels - 1 if equation.uses_z else 0
        return inner + gradient

    def bias_variants(self, equation: AbstractEquation) -> tuple[tuple[Variant, Variant], ...]:
        # There is no noise bias to measure without a mean inside F, or with a jackknife in every
        # replicate. With a threshold the bias is unknown anyway; see `level_bias`.
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
        # Level l adds F(U_l) - F(0), and level l + 1 subtracts it. The means are equal.
        differences = [a.new - b.old for a, b in itertools.pairwise(terms[2:])]
        telescoping = jnp.stack(differences) if differences else jnp.zeros(0, x.dtype)
        if tuning.samples is not None:
            # An omitted level has no term to compare with.
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

        The mean of the last increment estimates E u_n - E u_{n-1}. If the last two increments have
        the ratio q, the omitted levels add about q/(1 - q) times the last one. For q > 1/2 the
        absolute value of the last increment is returned.

        With two levels, q is the mean absolute sample of level 1 over that of the terminal term and
        level 0 together, because the means of these two may cancel. The result is then min(q, 1)
        times the last increment.
        """
        # The increments show neither the error of a quadrature in time nor that of a threshold.
        if self.threshold is not None or self.time == "quadrature":
            return np.full(mean.shape[:-1], np.nan)
        if equation.is_linear:
            return np.zeros(mean.shape[:-1])
        # With one level there is no ratio. One sample inside F has no two halves, so the noise bias
        # is unknown.
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
        """Return the law of the paths, which is the exact one if `steps` is 0."""
        exact = equation.dynamics.exact
        if steps == 0 and exact is not None:
            return exact
        return Stepped(dynamics=equation.dynamics, scheme=self.scheme, steps=steps, coarse=coarse)
