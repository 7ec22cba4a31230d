"""The estimator `Linearised`.

One replicate is a sum of three means over independent paths: of the terminal term, of the source
F(t, x, 0, 0), and of the remainder R of F beyond first order. `PathMeans` has the formulas and
computes the means.
"""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._equations.linearised import LinearisedEquation
from .._equations.smoothness import is_affine, may_have_kinks
from .._sampling.designs import SAMPLINGS, Sampling, check_samples
from .._support.errors import ArgumentError, brief, one_of, whole
from .._support.operation_counts import (
    NORMAL_WORK,
    REVERSE_FACTOR,
    count_operations,
    equation_work,
)
from .._support.tracing import abstract_point, cached_by_structure
from .._support.types import Floats
from ..paths import SCHEMES, AbstractPathLaw, Stepped, Tilted
from ._path_means import PATHS_PER_TILE, REMAINDER, SOURCE, TERMINAL, PathMean, PathMeans
from .base import (
    AbstractTunable,
    Replicate,
    Tuning,
    Variant,
    even_steps,
)
from .evaluations import Evaluations


class Linearised(AbstractTunable):
    """Moves the first order of F into drift and potential of the paths, and samples the remainder.

    R is the remainder of F beyond first order in u and z, and V is the solution of the equation
    without R. One replicate estimates V plus the mean of R, evaluated at V. If the equation is that
    of the defect of a surrogate, V has an error of second order in the error of the surrogate, and
    the sum has one of third order.

    **Arguments:**

    - `steps`: steps of a path, an even number. "auto" takes enough steps for the step bias to stay
      below the statistical error.
    - `samples`: paths to the horizon in a replicate, and the same number of paths to a random time.
      Without a pilot, the remainder R has one path for every 64 of these, and at least 2.
    - `remainder`: inner paths to the horizon that estimate V at the end of a path of R, and the
      same number to a random time. The number is even, because the jackknife halves it. 0 omits R,
      which is exact if F is affine in u and z.
    - `gradient`: "pathwise" differentiates V along its paths, which needs a Lipschitz g, and uses
      gradient weights for the slope of the mean of R. "centred" uses gradient weights everywhere.
      "auto" takes "pathwise" where g allows it.
    - `sampling`: "mc", "antithetic" or "rqmc"; see `Picard`.
    - `scheme`: stepping scheme where the dynamics has no exact path law.

    Raises ArgumentError or ArgumentTypeError if an argument is not valid.
    """

    fewest_steps: ClassVar[int] = 2
    # Default ratio of the paths to the horizon to the paths of the remainder, each of which
    # simulates many inner paths.
    paths_per_remainder: ClassVar[int] = 64
    # Work of an inner path of R, relative to a path in a full tile: fewer of them run side by side.
    inner_path_factor: ClassVar[float] = 3.0
    # If |int a| is 20, exp(A_r) is within a factor e of its maximum on 1/20 of [s, T]. Only one
    # uniform time in 20 falls there.
    max_potential: ClassVar[float] = 20.0

    samples: int = eqx.field(static=True)
    remainder: int = eqx.field(static=True)
    steps: int | Literal["auto"] = eqx.field(static=True)
    gradient: str = eqx.field(static=True)
    sampling: Sampling = eqx.field(static=True)
    scheme: str = eqx.field(static=True)

    def __init__(
        self,
        steps: int | Literal["auto"] = "auto",
        samples: int = 128,
        remainder: int = 8,
        gradient: Literal["auto", "pathwise", "centred"] = "auto",
        sampling: Sampling = "rqmc",
        scheme: str = "euler",
    ):
        self.steps = even_steps("steps", steps)
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
        if self.remainder:
            check_samples("remainder", self.sampling, self.remainder)
        self.scheme = one_of("scheme", scheme, tuple(SCHEMES))

    @property
    def increments(self) -> tuple[str, ...]:
        return ("terminal", "source", "remainder")

    @property
    def measures_samples(self) -> bool:
        return False

    @property
    def max_steepness(self) -> tuple[float, float]:
        return self.max_potential, np.inf

    def default_tuning(self, equation: AbstractEquation, gradient: bool) -> Tuning:
        method = "pathwise" if self.gradient == "auto" else self.gradient
        return Tuning(method, self.first_steps(equation), self._samples)

    def pilot_tuning(self, equation: AbstractEquation, gradient: str) -> Tuning:
        of_remainder = 2 if self.sampling == "antithetic" else 1
        fewest = np.array([PATHS_PER_TILE, PATHS_PER_TILE, of_remainder])
        samples = np.minimum(self._samples, fewest).astype(np.int32)
        return Tuning(gradient, self.first_steps(equation), samples)

    def sample_bounds(self) -> tuple[Floats, Floats]:
        return np.array([32.0, 32.0, 2.0]), np.array([8192.0, 8192.0, 1024.0])

    def step_order(self, equation: AbstractEquation) -> tuple[int, int]:
        # The remainder does not measure the step bias, because it has the most work and is usually
        # the smallest increment. Exact laws of the dynamics give order 2; see `Tilted.path`.
        if equation.is_linear and equation.dynamics.exact is not None:
            return 0, REMAINDER
        return (1 if equation.dynamics.exact is None else 2), REMAINDER

    def derivative_order(self, equation: AbstractEquation, gradient: bool) -> int:
        return int(gradient or (equation.uses_z and self._has_remainder(equation)))

    def bias_variants(self, equation: AbstractEquation) -> tuple[tuple[Variant, Variant], ...]:
        # Every replicate applies the jackknife, so there is no noise bias to measure.
        return ()

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
        samples, coarse = jnp.asarray(tuning.samples), False
        if tuning.steps:
            coarse = variant == Variant.COARSE_STEPS
            samples = jnp.asarray(jnp.where(coarse, jnp.asarray([1, 1, 0]), 1) * tuning.samples)
        paths = self._paths(equation, tuning.steps, coarse)
        # `all(samples >= 0)` is always true, but the compiler cannot know it: see `prevent_fusion`.
        means = PathMeans(self, equation, paths, tuning.gradient, t, jnp.all(samples >= 0))
        key_first, key_remainder = jax.random.split(key)
        first = means.first_order(key_first, x, samples, gradient)
        rest = PathMean.zero(x)
        if self._has_remainder(equation):
            rest = means.remainder(key_remainder, x, samples[REMAINDER], gradient)
        u, slope, size = (jnp.append(a, b[None], 0) for a, b in zip(first, rest, strict=True))
        no_telescoping = jnp.zeros(0, x.dtype)
        if not gradient:
            return Replicate(jnp.sum(u), None, u, None, size, no_telescoping)
        return Replicate(jnp.sum(u), jnp.sum(slope, 0), u, slope, size, no_telescoping)

    def evaluations(self, equation: AbstractEquation, tuning: Tuning) -> list[Evaluations]:
        steps = self._path_steps(equation, tuning)
        potential_evaluations = 0 if equation.is_linear else steps + 1
        path = Evaluations(nonlinearity=potential_evaluations, normals=equation.dim * steps)
        to_horizon = path + Evaluations(terminal=1)
        if equation.zero_terminal:
            to_horizon = Evaluations()
        to_time = path + Evaluations(nonlinearity=1, uniforms=1)
        inside = (to_horizon + to_time).times(self.remainder) + Evaluations(nonlinearity=2)
        samples = [int(count) for count in tuning.samples]
        of_remainder = Evaluations()
        if self._has_remainder(equation):
            of_remainder = (to_time + inside).times(samples[REMAINDER])
        return [
            to_horizon.times(samples[TERMINAL]),
            to_time.times(samples[SOURCE]),
            of_remainder,
        ]

    def work(self, equation: AbstractEquation, tuning: Tuning, gradient: bool) -> Floats:
        steps = self._path_steps(equation, tuning)
        draw, potential = steps * NORMAL_WORK * equation.dim, 0.0
        if not equation.is_linear:
            potential = (steps + 1) * _tilt_work(equation)
        # The factor of differentiation applies to everything except the random numbers.
        path = lambda factor, end: draw + factor * (potential + end)
        outer = REVERSE_FACTOR if gradient else 1.0
        inner = self.inner_path_factor * (REVERSE_FACTOR if equation.uses_z else 1.0)
        ends = equation_work(equation)[equation.zero_terminal :]
        remainder = path(outer, 0.0) + self.remainder * sum(path(inner, end) for end in ends)
        first = [path(outer, end) for end in ends]
        return np.array([*([0.0] * equation.zero_terminal), *first, remainder])

    def level_bias(
        self, equation: AbstractEquation, mean: NDArray[Any], size: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the size of the bias from V in place of u inside R.

        R is of second order. If V is replaced by u, R changes by the fraction 2 |u - V| / |V| of
        itself, where u - V is the increment of the remainder. If F has kinks, R is only Lipschitz,
        and the fraction is at least the size of R over the size of V. The result is the absolute
        increment times that fraction, which is at most 1.
        """
        if equation.is_linear or is_affine(equation):
            return np.zeros(mean.shape[:-1])
        if not self.remainder:
            return np.full(mean.shape[:-1], np.nan)
        last, before = np.abs(mean[..., REMAINDER]), np.sum(size[..., :REMAINDER], -1)
        change = 2 * last
        if may_have_kinks(equation):
            change = np.maximum(2 * last, size[..., REMAINDER])
        fraction = np.divide(change, before, out=np.ones_like(last), where=before > 0)
        return last * np.minimum(fraction, 1)

    @property
    def _samples(self) -> NDArray[np.int32]:
        of_remainder = max(2, self.samples // self.paths_per_remainder)
        return np.array([self.samples, self.samples, of_remainder], np.int32)

    def _has_remainder(self, equation: AbstractEquation) -> bool:
        return self.remainder > 0 and not equation.is_linear and not is_affine(equation)

    @staticmethod
    def _path_steps(equation: AbstractEquation, tuning: Tuning) -> int:
        """Return the number of normal vectors of a path."""
        exact = equation.dynamics.exact
        return tuning.steps if tuning.steps or exact is None else exact.steps

    def _paths(
        self, equation: AbstractEquation, steps: int, coarse: bool | Array = False
    ) -> AbstractPathLaw:
        options: dict[str, Any] = {
            "dynamics": equation.dynamics,
            "scheme": self.scheme,
            "coarse": coarse,
            "steps": steps,
        }
        if not equation.is_linear:
            return Tilted(tilt=LinearisedEquation(equation).tilt, **options)
        return equation.dynamics.exact or Stepped(**options)


@cached_by_structure
def _tilt_work(equation: AbstractEquation) -> float:
    """Return the work of one evaluation of the additional drift sigma b and the potential a."""
    tilt = LinearisedEquation(equation).tilt
    return count_operations(tilt, *abstract_point(equation.dim))


def _below_2_24(argument: str, value: int) -> int:
    """Return `value`; raises ArgumentError if the indices of random streams would overflow."""
    if value >= 2**24:
        raise ArgumentError(
            f"{argument} must be below 2^24, got {value}: take more replicates instead."
        )
    return value
