"""The estimator `Linearised`.

One replicate is a sum of increments, each a mean over independent paths. `docs/linearised.md`
derives them. `_families` lists them, and `_replicate` simulates them.
"""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._equations.smoothness import is_affine, polynomial_degree
from .._sampling.designs import SAMPLINGS, Sampling, check_samples
from .._support.errors import ArgumentError, brief, one_of, positive, whole
from .._support.operation_counts import (
    NORMAL_WORK,
    REVERSE_FACTOR,
    count_operations,
    equation_work,
)
from .._support.tracing import abstract_point, cached_by_structure
from .._support.types import Floats
from ..paths import SCHEMES
from ._factor import factor_of, factor_suits
from ._families import (
    CLUSTER,
    FAMILIES,
    MOST_LEVELS,
    NAMES,
    REMAINDER,
    SOURCE,
    TERMINAL,
    Family,
    increments_of,
)
from ._level_paths import LANES, LevelPaths
from ._preparation import Setting
from ._remainder_tree import RemainderMean
from ._replicate import replicate_sums
from ._schedule import TRIPLES
from .base import AbstractLevelled, Replicate, Tuning
from .evaluations import Evaluations


class Linearised(AbstractLevelled):
    """Moves the first order of F into drift and potential of the paths, and samples the remainder.

    R is the remainder of F beyond first order in u and z, and V is the solution of the equation
    without R. One replicate estimates V, plus the mean of R at estimates of the solution. Steps of
    paths, R inside of R, and the number of paths inside of R are levels of telescoping sums. A
    pilot chooses how many samples each level gets. Fine levels get few samples, which are drawn at
    random with known expected numbers. So a replicate has no bias from any level that the program
    has, and the answer states a bound for the levels beyond.

    **Arguments:**

    - `steps`: steps of a path at the base level, a power of two. "auto" lets a pilot choose. Finer
      levels correct the bias of these steps, whatever their number.
    - `samples`: paths of a replicate at the base level. Without a pilot, the remainder R has one
      path for every 64 of these, and at least 4.
    - `remainder`: inner paths that estimate V at the end of a path of R. The number is even,
      because they form two groups. 0 omits R, which is exact if F is affine in u and z.
    - `gradient`: "pathwise" differentiates V along its paths, which needs a Lipschitz g, and uses
      gradient weights for the slope of the mean of R. "centred" uses gradient weights everywhere.
      "auto" takes "pathwise" where g allows it.
    - `sampling`: "mc", "antithetic" or "rqmc"; see `Picard`. It applies to the base level.
    - `factor`: 0, or delta relative to phi at the query, where the solution of the defect is
      v = phi w with the factor phi of `_factor`. A factor helps where the potential F_u makes paths
      noisy, as in Burgers' equation. Without a surrogate it has no effect.
    - `scheme`: stepping scheme where the dynamics has no exact path law. "milstein" is the Euler
      scheme where sigma is constant.

    Raises ArgumentError or ArgumentTypeError if an argument is not valid.
    """

    # Default ratio of the paths of a replicate to the paths of the remainder.
    paths_per_remainder: ClassVar[int] = 64
    # If |int a| is 20, exp(A_r) is within a factor e of its maximum on 1/20 of [s, T]. Only one
    # uniform time in 20 falls there.
    max_potential: ClassVar[float] = 20.0

    samples: int = eqx.field(static=True)
    remainder: int = eqx.field(static=True)
    steps: int | Literal["auto"] = eqx.field(static=True)
    gradient: str = eqx.field(static=True)
    sampling: Sampling = eqx.field(static=True)
    scheme: str = eqx.field(static=True)
    factor: float = eqx.field(static=True)

    def __init__(
        self,
        steps: int | Literal["auto"] = "auto",
        samples: int = 128,
        remainder: int = 8,
        gradient: Literal["auto", "pathwise", "centred"] = "auto",
        sampling: Sampling = "rqmc",
        scheme: str = "milstein",
        factor: float = 0.0,
    ):
        self.steps = _power_of_two(steps)
        count = whole("samples", samples, 1, "pass how many paths a replicate has")
        self.samples = _below_2_24("samples", count)
        remedy = "pass how many paths stand inside the remainder, or 0"
        self.remainder = _below_2_24("remainder", whole("remainder", remainder, 0, remedy))
        if self.remainder % 2:
            raise ArgumentError(
                f"remainder must be even, got {brief(remainder)}: pass {self.remainder + 1}, or 0."
            )
        self.gradient = one_of("gradient", gradient, ("auto", "pathwise", "centred"))
        self.sampling = one_of("sampling", sampling, SAMPLINGS)
        check_samples("samples", self.sampling, self.samples)
        self.scheme = one_of("scheme", scheme, tuple(SCHEMES))
        remedy = "pass delta over phi at the query, such as 0.3, or 0 for no factor"
        self.factor = positive("factor", factor, remedy, or_zero=True)

    @property
    def increments(self) -> tuple[str, ...]:
        return NAMES

    @staticmethod
    def factor_suits(equation: AbstractEquation) -> bool:
        """Return whether the option `factor` may help with this equation."""
        return factor_suits(equation)

    @property
    def max_steepness(self) -> tuple[float, float]:
        return self.max_potential, np.inf

    @property
    def first_level(self) -> int:
        return 0 if self.steps == "auto" else int(self.steps).bit_length() - 1

    @property
    def base_samples(self) -> Floats:
        samples = np.zeros(len(NAMES))
        samples[[TERMINAL, SOURCE]] = self.samples
        samples[REMAINDER] = max(4, self.samples // self.paths_per_remainder)
        return samples

    @property
    def clusters(self) -> NDArray[np.int64]:
        return CLUSTER

    def default_tuning(self, equation: AbstractEquation, gradient: bool) -> Tuning:
        method = "pathwise" if self.gradient == "auto" else self.gradient
        samples = self.base_samples.astype(np.float32)
        return Tuning(method, 0, samples, np.asarray(self.first_level, np.int32))

    def pilot_tuning(self, equation: AbstractEquation, gradient: str) -> Tuning:
        samples = np.minimum(self.base_samples, LANES)
        samples[REMAINDER] = 4
        level = np.asarray(self.first_level, np.int32)
        return Tuning(gradient, 0, samples.astype(np.float32), level)

    def sample_bounds(self) -> tuple[Floats, Floats]:
        return np.full(len(NAMES), 32.0), np.full(len(NAMES), 8192.0)

    def derivative_order(self, equation: AbstractEquation, gradient: bool) -> int:
        return int(gradient or (equation.uses_z and self._has_remainder(equation)))

    def tails(self, equation: AbstractEquation) -> dict[str, list[int]]:
        found = {"steps": [], "depth": [], "remainder steps": [], "remainder paths": []}
        if not self._is_exact(equation):
            found["steps"] = increments_of("steps")
        if self._has_remainder(equation):
            found["depth"] = increments_of("remainder depth")
            found["remainder steps"] = increments_of("remainder steps")
            if not self._is_polynomial(equation):
                found["remainder paths"] = increments_of("remainder paths")
        return found

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
        expected = jnp.asarray(tuning.samples, x.dtype) * self._has_samples(equation)
        # `all(expected >= 0)` is always true, but the compiler cannot know it.
        true = jnp.all(expected >= 0)
        has_remainder = self._has_remainder(equation)
        slopes = gradient or (has_remainder and equation.uses_z)
        factor = factor_of(equation, self.factor, t, x)
        paths = LevelPaths(equation, self.scheme, MOST_LEVELS, slopes, true, factor)
        mean = RemainderMean(paths, self._groups(equation)) if has_remainder else None
        setting = Setting(
            paths,
            mean,
            jnp.asarray(self._factors(mean, equation), x.dtype),
            max(self.remainder // 2, 1),
            self.sampling,
            gradient,
            tuning.gradient == "pathwise",
            t,
            x,
            jnp.asarray(tuning.level),
        )
        sums = replicate_sums(setting, expected, key)
        slope = None
        if gradient:
            pulled = jax.tree.map(lambda a: jnp.sum(a, 0), sums.pulled)
            slope = paths.pull_begin(t, x, pulled)
        no_telescoping = jnp.zeros(0, x.dtype)
        return Replicate(
            jnp.sum(sums.value), slope, sums.value, None, sums.size, no_telescoping, sums.square
        )

    def evaluations(self, equation: AbstractEquation, tuning: Tuning) -> list[Evaluations]:
        samples = np.asarray(tuning.samples)
        costs = _evaluations_by_level(self, equation)[round(float(np.mean(tuning.level)))]
        return [Evaluations(*(n * cost).tolist()) for n, cost in zip(samples, costs, strict=True)]

    def sample_evaluations(self, equation: AbstractEquation, level: int) -> list[Evaluations]:
        """Return the mean cost of one sample of each increment, at a base level."""
        found = [self._evaluations_of(equation, family, level) for family in FAMILIES]
        source = found[0]._replace(terminal=0)
        terminal = found[0]._replace(nonlinearity=found[0].nonlinearity - 1)
        has = self._has_samples(equation)
        each = [terminal, source, *found[1:]]
        return [cost.times(float(k)) for cost, k in zip(each, has, strict=True)]

    def _evaluations_of(
        self, equation: AbstractEquation, family: Family, level: float
    ) -> Evaluations:
        """Return the mean cost of one sample of a family, at a base level."""
        steps = self._steps(equation, family.level or level)
        path = Evaluations(
            terminal=0 if equation.zero_terminal else 1,
            nonlinearity=1 + (0 if equation.is_linear else steps + 1),
            normals=equation.dim * (2 + steps),
            uniforms=1,
        )
        if not family.is_remainder:
            return path.times(3 if family.is_paired else 1)
        groups = self._groups(equation)
        nodes = sum(groups**k for k in range(family.depth + 1))
        inner = groups * max(self.remainder // 2, 1) * 2**family.doublings
        node = path + path.times(inner) + Evaluations(nonlinearity=2**groups)
        return node.times(nodes * (2 if family.is_paired else 1))

    def work(self, equation: AbstractEquation, tuning: Tuning, gradient: bool) -> Floats:
        level = int(tuning.level)
        outer = REVERSE_FACTOR if gradient else 1.0
        inner = REVERSE_FACTOR if equation.uses_z else 1.0
        g, f = equation_work(equation)
        g = 0.0 if equation.zero_terminal else g

        def path(factor: float, level: int) -> float:
            steps = self._steps(equation, level)
            of_tilt = 0.0 if equation.is_linear else _tilt_work(equation, self.factor)
            tilt = (steps + 1) * of_tilt
            return (2 + steps / 2) * NORMAL_WORK * equation.dim + factor * tilt

        def of_family(family: Family) -> float:
            fine = family.level or level
            if not family.is_remainder:
                return 3 * LANES / (3 * TRIPLES) * (path(outer, fine) + outer * (g + f))
            groups = self._groups(equation)
            nodes = sum(groups**k for k in range(family.depth + 1))
            paths = groups * max(self.remainder // 2, 1) * 2**family.doublings
            node = path(inner, fine) + paths * (path(inner, fine) + inner * (g + f))
            return nodes * node * (2 if family.is_paired else 1)

        base = [path(outer, level) + outer * g, path(outer, level) / 2 + outer * f]
        found = np.array([*base, *map(of_family, FAMILIES[1:])])
        return np.asarray(found * self._has_samples(equation), np.float64)

    def level_bias(
        self, equation: AbstractEquation, mean: NDArray[Any], size: NDArray[Any]
    ) -> NDArray[Any]:
        """Return zero, or NaN where R is omitted although F is not affine.

        The plan states a bound for the levels that it leaves out.
        """
        is_known = self.remainder > 0 or equation.is_linear or is_affine(equation)
        return np.full(mean.shape[:-1], 0.0 if is_known else np.nan)

    def _has_remainder(self, equation: AbstractEquation) -> bool:
        return self.remainder > 0 and not equation.is_linear and not is_affine(equation)

    def _has_samples(self, equation: AbstractEquation) -> NDArray[np.float32]:
        """Return 1 for increments that this equation has, and 0 for the others."""
        has = np.ones(len(NAMES), np.float32)
        has[TERMINAL] = not equation.zero_terminal
        if self._is_exact(equation):
            has[increments_of("steps")] = 0
        if not self._has_remainder(equation):
            has[increments_of("remainder")] = 0
        if self._is_polynomial(equation):
            has[increments_of("remainder paths")] = 0
        return has

    @staticmethod
    def _is_exact(equation: AbstractEquation) -> bool:
        return equation.is_linear and equation.dynamics.exact is not None

    def _steps(self, equation: AbstractEquation, level: float) -> float:
        """Return the steps of a path at a level."""
        return 1.0 if self._is_exact(equation) else 2.0**level + 1

    def _is_polynomial(self, equation: AbstractEquation) -> bool:
        """Whether groups of inner paths make R free of bias."""
        degree = polynomial_degree(equation)
        return degree is not None and degree <= 3

    def _groups(self, equation: AbstractEquation) -> int:
        """Return the number of groups of inner paths."""
        return 3 if polynomial_degree(equation) == 3 else 2

    def _factors(self, mean: RemainderMean | None, equation: AbstractEquation) -> Floats:
        """Return the factors of the subsets of groups, (families, subsets)."""
        if mean is None:
            return np.zeros((len(FAMILIES), 1))
        if self._is_polynomial(equation):
            return np.tile(mean.exact, (len(FAMILIES), 1))
        # Twice as many inner paths, less the mean of two evaluations with half of them.
        doubled = mean.combination({1: -1.0, 2: 1.0})
        plain = mean.combination({2: 1.0})
        # No other family corrects the bias of the families of depth k > 0.
        jackknife = mean.combination({1: -1.0, 2: 2.0})
        of_family = lambda family: jackknife if family.depth else plain
        return np.array([doubled if family.doublings else of_family(family) for family in FAMILIES])


@cached_by_structure
def _tilt_work(equation: AbstractEquation, delta: float) -> float:
    """Return the work of one evaluation of the additional drift and the potential."""

    def tilt(t: Array, x: Array) -> tuple[Array, Array]:
        factor = factor_of(equation, delta, t, x)
        paths = LevelPaths(equation, "euler", 0, False, jnp.asarray(True), factor)
        return paths.tilt(t, x)

    return count_operations(tilt, *abstract_point(equation.dim))


@cached_by_structure
def _evaluations_by_level(estimator: Linearised, equation: AbstractEquation) -> Floats:
    """Return the cost of one sample, by base level, (levels, increments, 4)."""
    levels = range(MOST_LEVELS + 1)
    return np.array([estimator.sample_evaluations(equation, level) for level in levels])


def _power_of_two(steps: Any) -> int | Literal["auto"]:
    """Return `steps` if it is "auto" or a power of two that the program has."""
    if isinstance(steps, str) and steps == "auto":
        return "auto"
    most = 2**MOST_LEVELS
    remedy = f'pass 1, 2, 4, ..., {most} steps for a path, or "auto"'
    checked = whole("steps", steps, 1, remedy)
    if checked & (checked - 1) or checked > most:
        raise ArgumentError(f"steps must be a power of two up to {most}, got {steps}: {remedy}.")
    return checked


def _below_2_24(argument: str, value: int) -> int:
    """Return `value`; raises ArgumentError if the indices of random streams would overflow."""
    if value >= 2**24:
        raise ArgumentError(
            f"{argument} must be below 2^24, got {value}: take more replicates instead."
        )
    return value
