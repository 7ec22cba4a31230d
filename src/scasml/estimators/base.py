"""The interface of an estimator: how one replicate at one point is computed, and what it costs.

An estimator is an immutable module. It receives an equation, a `Tuning`, a random key and a point,
and returns a `Replicate`. It keeps no counters, runs no pilots and reads no clock.
"""

import abc
import enum
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._sampling.designs import Sampling
from .._support.errors import ArgumentError, whole
from .._support.types import Floats
from .evaluations import Evaluations


class Replicate(NamedTuple):
    """One independent estimate, at one point, of the solution of the equation that was passed.

    - `value`: the estimate of u, a scalar. It is the sum of `increments`, (increments,), unless the
      estimator clips it.
    - `gradient`: the estimate of grad u, (d,). It is the sum of `gradient_increments`,
      (increments, d), with the same exception. Both are None if no gradient was requested. An
      estimator may leave out `gradient_increments`.
    - `sizes`: the mean absolute value of the samples of each increment, (increments,).
    - `telescoping`: a check of the levels, (max(increments - 3, 0),), with one entry for each pair
      of levels l, l + 1 with l >= 1. Level l adds a term that level l + 1 subtracts. The entry is
      the estimate of that term by level l minus the estimate by level l + 1. Its mean is zero if
      both estimate the same number. An estimator without such a check returns an empty array.
    - `square`: the mean square of the samples of each increment, (increments,), or None if the
      estimator does not measure it.
    """

    value: Array
    gradient: Array | None
    increments: Array
    gradient_increments: Array | None
    sizes: Array
    telescoping: Array
    square: Array | None = None


class Variant(enum.IntEnum):
    """Replicates from the same random numbers that differ in one source of bias.

    The variant is an input of the compiled program, so one program computes all of them. Every
    variant except `MAIN` and `COARSE_STEPS` computes the last increment only, and returns zero for
    the other increments.
    """

    MAIN = 0
    COARSE_STEPS = 1  # paths take half the number of steps, on the same Brownian increments
    HALF_A = 2  # the mean over the even samples enters F
    HALF_B = 3  # the mean over the odd samples enters F
    NOISE = 4  # half the difference of these two means enters F, and F(0) is subtracted
    MINUS_NOISE = 5  # as NOISE, with the negative of that difference


class Tuning(eqx.Module):
    """The choices of an estimator that depend on the equation and on the point.

    - `gradient`: the gradient method, such as "pathwise" or "mixed".
    - `steps`: the steps of a path; 0 if paths are drawn exactly or if levels decide.
    - `samples`: samples per increment, (increments,), or (points, increments) where points differ.
      None means that the estimator uses its own fixed numbers. An `AbstractLevelled` takes expected
      numbers, which need not be whole.
    - `level`: the base level of an `AbstractLevelled`, a scalar or (points,); None for others.

    `gradient` and `steps` are static: each of their values needs a compiled program of its own.
    `samples` and `level` are data of the program.
    """

    gradient: str = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    samples: Any = None
    level: Any = None

    def with_samples(self, samples: Any, level: Any = None) -> "Tuning":
        """Return this tuning with other numbers of samples per increment; 0 omits an increment.

        A new base level may come with them.
        """
        return Tuning(self.gradient, self.steps, samples, self.level if level is None else level)

    def with_steps(self, steps: int) -> "Tuning":
        """Return this tuning with another number of steps per path."""
        return Tuning(self.gradient, steps, self.samples, self.level)

    def at(self, rows: Any) -> "Tuning":
        """Return the tuning of the points with indices `rows`."""
        samples = self.samples if np.ndim(self.samples) <= 1 else self.samples[rows]
        level = self.level if np.ndim(self.level) == 0 else self.level[rows]
        return Tuning(self.gradient, self.steps, samples, level)


class AbstractEstimator(eqx.Module):
    """Computes one replicate at one point.

    These six members are enough for `correct(..., method=...)`. A pilot can choose the gradient
    method, the steps and the samples of an estimator that also implements `AbstractTunable`.
    """

    @property
    @abc.abstractmethod
    def increments(self) -> tuple[str, ...]:
        """The names of the increments of a replicate, in order."""

    @abc.abstractmethod
    def default_tuning(self, equation: AbstractEquation, gradient: bool) -> Tuning:
        """Return the tuning to use without a pilot.

        `gradient` says whether the gradient of u is reported too.
        """

    @abc.abstractmethod
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
        """Estimate u(t, x), and its gradient in x if requested, from the random stream `key`.

        t is a scalar and x has shape (d,). `variant` is an integer scalar, a value of `Variant`. An
        estimator that is not an `AbstractTunable` may ignore it.
        """

    @abc.abstractmethod
    def evaluations(self, equation: AbstractEquation, tuning: Tuning) -> list[Evaluations]:
        """Return the cost of one replicate, one `Evaluations` per increment.

        The cost must be proportional to `tuning.samples` if they are given: the library passes
        their sum over many replicates.
        """

    @abc.abstractmethod
    def work(self, equation: AbstractEquation, tuning: Tuning, gradient: bool) -> Floats:
        """Return the work of one sample of each increment, in operations, shape (increments,)."""

    @abc.abstractmethod
    def level_bias(
        self, equation: AbstractEquation, mean: NDArray[Any], size: NDArray[Any]
    ) -> NDArray[Any]:
        """Estimate the absolute bias that is intrinsic to the method.

        Examples are that of omitted Picard levels, and that of V in place of u inside R in
        `Linearised`. Step bias and the bias from noise inside F are measured separately.

        `mean` has the means of the increments over replicates, shape (..., increments). `size` has
        the mean absolute values of their samples, of the same shape. The result has shape (...). It
        is NaN where the bias is unknown, and 0 for an estimator without bias.
        """


class AbstractTunable(AbstractEstimator):
    """An estimator whose open choices can be settled by a pilot."""

    # Gradient method, steps of a path and design, as the user passed them. "auto" leaves the choice
    # to a pilot.
    gradient: eqx.AbstractVar[str]
    steps: eqx.AbstractVar[int | Literal["auto"]]
    sampling: eqx.AbstractVar[Sampling]
    fewest_steps: ClassVar[int]  # what `first_steps` returns for steps="auto"

    @property
    @abc.abstractmethod
    def measures_samples(self) -> bool:
        """Whether a pilot chooses the samples per increment."""

    @property
    @abc.abstractmethod
    def max_steepness(self) -> tuple[float, float]:
        """The largest steepness of F in u, and in z, at which `level_bias` is trusted.

        The level bias counts as unknown where the two steepnesses, each divided by its maximum, add
        up to more than 1.
        """

    @abc.abstractmethod
    def pilot_tuning(self, equation: AbstractEquation, gradient: str) -> Tuning:
        """Return the tuning with the fewest samples and steps; `gradient` is a gradient method."""

    @abc.abstractmethod
    def sample_bounds(self) -> tuple[Floats, Floats]:
        """Return the fewest and the most samples that an allocation may use, (increments,) each."""

    @abc.abstractmethod
    def step_order(self, equation: AbstractEquation) -> int:
        """Return the order of the step bias.

        The bias falls as (length of a step)^order. The order is 0 if paths are drawn exactly or if
        levels correct the bias, so that it need not be measured.
        """

    @abc.abstractmethod
    def derivative_order(self, equation: AbstractEquation, gradient: bool) -> int:
        """Return how many times the gradient method "pathwise" differentiates g along paths.

        `gradient` says whether the gradient of u is reported too.
        """

    @abc.abstractmethod
    def bias_variants(self, equation: AbstractEquation) -> tuple[tuple[Variant, Variant], ...]:
        """Return the pairs of variants that measure the bias from noise inside F.

        The result is ((HALF_A, HALF_B), (NOISE, MINUS_NOISE)), or () if there is no such bias or
        if it cannot be measured.
        """

    def first_steps(self, equation: AbstractEquation) -> int:
        """Return the steps of a path before a pilot chooses them; 0 for exact paths."""
        if self.step_order(equation) == 0:
            return 0
        return self.fewest_steps if self.steps == "auto" else self.steps

    def may_exceed_max_steepness(self, equation: AbstractEquation) -> bool:
        """Return whether F can be too steep at any point.

        If not, the caller skips evaluating F_u and F_z.
        """
        max_u, max_z = self.max_steepness
        limited = (equation.uses_u and max_u < np.inf) or (equation.uses_z and max_z < np.inf)
        return bool(limited)

    def exceeds_max_steepness(self, of_u: Floats, of_z: Floats) -> NDArray[np.bool_]:
        """Return where F is too steep for `level_bias` to be trusted.

        `of_u` and `of_z` are the steepnesses in u and in z, shape (points,).
        """
        max_u, max_z = self.max_steepness
        return of_u / max_u + of_z / max_z > 1


class AbstractLevelled(AbstractTunable):
    """An estimator whose steps and other approximations are levels of telescoping sums.

    The first increments are estimates at a base level. Each of the other increments is the
    difference between two levels. A replicate may draw an increment at random: `Tuning.samples` has
    expected numbers of samples, and sums over samples are divided by them.
    """

    fewest_steps: ClassVar[int] = 0

    @property
    @abc.abstractmethod
    def first_level(self) -> int:
        """The base level of a pilot, before it is raised."""

    @property
    @abc.abstractmethod
    def base_samples(self) -> Floats:
        """The samples of a replicate that the user chose, (increments,); 0 if a pilot decides."""

    @property
    @abc.abstractmethod
    def clusters(self) -> NDArray[np.int64]:
        """How many samples of each increment are drawn together, (increments,)."""

    @abc.abstractmethod
    def tails(self, equation: AbstractEquation) -> dict[str, list[int]]:
        """Return the indices of the increments of each telescoping sum, from coarse to fine.

        The keys are "steps", "depth", "remainder steps" and "remainder paths". The increment for
        the step level l is entry l - 1 of "steps". A sum that this equation does not have is empty.
        """

    @property
    def measures_samples(self) -> bool:
        return True

    def step_order(self, equation: AbstractEquation) -> int:
        return 0

    def bias_variants(self, equation: AbstractEquation) -> tuple[tuple[Variant, Variant], ...]:
        return ()


def steps_of(
    estimator: AbstractEstimator, equation: AbstractEquation, tuning: Tuning
) -> NDArray[np.int64]:
    """Return the steps of a path, at the base level if there are levels; 0 for exact paths.

    The result is a scalar, or (points,) where points have base levels of their own.
    """
    if not isinstance(estimator, AbstractLevelled):
        return np.asarray(tuning.steps)
    level = np.asarray(tuning.level, np.int64)
    return 2**level if estimator.tails(equation)["steps"] else np.zeros_like(level)


def total_evaluations(
    estimator: AbstractEstimator,
    equation: AbstractEquation,
    tuning: Tuning,
    replicates: NDArray[np.int64],
) -> list[Evaluations]:
    """Return the total cost of each increment, summed over replicates and points.

    `replicates` (points,) is the number of replicates at each point.
    """
    if tuning.samples is None:
        count = int(np.sum(replicates))
        return [cost.times(count) for cost in estimator.evaluations(equation, tuning)]
    samples = np.broadcast_to(tuning.samples, (len(replicates), np.shape(tuning.samples)[-1]))
    total = replicates[:, None] * samples
    if tuning.level is None:
        return estimator.evaluations(equation, tuning.with_samples(np.sum(total, 0)))
    # The cost of a sample depends on the base level of its point.
    level = np.broadcast_to(tuning.level, len(replicates))
    parts = [
        estimator.evaluations(equation, tuning.with_samples(np.sum(total[level == k], 0), k))
        for k in np.unique(level)
    ]
    return [sum(each, Evaluations()) for each in zip(*parts, strict=True)]


def jackknifed(f: Callable[[Any], Array], halves: Any) -> Array:
    """Return 2 f((a + b)/2) - (f(a) + f(b))/2 for two independent estimates a and b.

    `halves` is a pytree that stacks a and b along a leading axis of length 2. If a and b are means
    of n samples, the noise of (a + b)/2 causes a bias of order 1/n in f((a + b)/2). The result has
    a bias of order 1/n^2, and none if f is quadratic.
    """
    a, b = (jax.tree.map(lambda u, k=k: u[k], halves) for k in (0, 1))
    return 2 * f(jax.tree.map(lambda a, b: (a + b) / 2, a, b)) - (f(a) + f(b)) / 2


def even_steps(argument: str, steps: Any) -> int | Literal["auto"]:
    """Return `steps` if it is "auto" or an even number of at least 2.

    The variant with coarse steps joins the steps in pairs, so their number must be even. Raises
    ArgumentTypeError or ArgumentError for anything else; the message names `argument`.
    """
    if isinstance(steps, str) and steps == "auto":
        return "auto"
    remedy = 'pass an even number of steps for a path, or "auto"'
    checked = whole(argument, steps, 2, remedy)
    if checked % 2:
        raise ArgumentError(f"{argument} must be even, got {steps}: {remedy}.")
    return checked
