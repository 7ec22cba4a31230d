"""What an estimator is: one replicate at one point, and what it costs. No adaptivity, no I/O, no counters kept."""

import abc
import copy
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.problem import AbstractEquation
from .._sampling.designs import Sampling
from .._support.errors import ArgumentError, whole

Floats = NDArray[np.float64]


class Replicate(NamedTuple):
    """One independent estimate at one point."""

    value: Array  # of the law's solution u
    gradient: Array | None  # of grad u, if it was asked for
    increments: Array  # what each level added to the value
    gradient_increments: Array | None  # and to the gradient
    sizes: Array  # the mean absolute value of the samples of each level
    telescoping: Array  # differences that are zero in the mean if the levels fit together


# Versions of one replicate, on the same noise, that differ in one source of bias only. Which is data: one
# compiled program takes all of them.
ORDINARY, HALF_THE_STEPS, FIRST_HALF, SECOND_HALF, NOISE, MINUS_NOISE = range(6)


class Evaluations(NamedTuple):
    """What one replicate evaluates and draws."""

    terminal: int = 0
    nonlinearity: int = 0
    normals: int = 0
    uniforms: int = 0

    def __add__(self, other: "Evaluations") -> "Evaluations":  # type: ignore[override]
        return Evaluations(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, count: int) -> "Evaluations":
        return Evaluations(*(count * a for a in self))

    @property
    def functions(self) -> int:
        """FE of the paper: evaluations of F and g."""
        return self.terminal + self.nonlinearity

    @property
    def random_numbers(self) -> int:
        """RV (full history) or RN (quadrature) of the paper."""
        return self.normals + self.uniforms


class AbstractEstimator(eqx.Module):
    """`gradient` and `steps` may be left to "auto"; `settle` decides them, after a look at the law and the point."""

    gradient: eqx.AbstractVar[str]
    steps: eqx.AbstractVar[int | Literal["auto"]]
    sampling: eqx.AbstractVar[Sampling]
    # Of the samples of each increment, once they are allotted: (increments,), or (points, increments) where each point has its own.
    counts: eqx.AbstractVar[Any]

    def but(self, **changes: Any) -> Self:
        """The same with these fields changed."""
        other = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(other, name, value)  # a module is frozen for everybody else
        return other

    @abc.abstractmethod
    def settle(self, *, gradient: str | None = None, steps: int | None = None) -> Self:
        """The same estimator with these decided."""

    @abc.abstractmethod
    def vary(self, equation: AbstractEquation, version: Array) -> Self:
        """The same estimator in one of its versions.

        HALF_THE_STEPS: on paths of half the steps, drawn from the same Brownian increments; the first `steps_tell` increments
        of it. The others leave out every increment but the last. FIRST_HALF, SECOND_HALF: with one half of the samples inside F. NOISE, MINUS_NOISE: the last is
        F(e) - F(0) and F(-e) - F(0), where e is half the difference of those halves: the noise inside F, and nothing of the solution.
        """

    @property
    @abc.abstractmethod
    def fewest_steps(self) -> int:
        """With how many steps of a path "auto" begins; even."""

    @abc.abstractmethod
    def discretises(self, equation: AbstractEquation) -> bool:
        """Whether the paths of this law are taken in steps, and not drawn exactly."""

    @abc.abstractmethod
    def order(self, equation: AbstractEquation) -> int:
        """The power of the length of a step by which the bias of the steps falls."""

    @property
    @abc.abstractmethod
    def is_allotted(self) -> bool:
        """Whether the number of samples of each increment is known, and not left to a pilot."""

    @abc.abstractmethod
    def allot(self, counts: Any) -> Self:
        """The same estimator with so many samples of each increment; powers of 2. 0 leaves an increment out."""

    def at(self, rows: Any) -> Self:
        """With the samples of these of its points."""
        return (
            self if self.counts is None or self.counts.ndim == 1 else self.allot(self.counts[rows])
        )

    @property
    @abc.abstractmethod
    def bounds(self) -> tuple[Floats, Floats]:
        """The fewest and the most samples of each increment that may be allotted."""

    @abc.abstractmethod
    def work(self, equation: AbstractEquation, gradient: bool) -> Floats:
        """Of one sample of each increment, in `operations`."""

    @abc.abstractmethod
    def thinned(self) -> tuple[Self, Floats]:
        """An estimator that costs less, for a pilot; and how many of its samples each increment has for one of this."""

    @abc.abstractmethod
    def jackknifes(self, equation: AbstractEquation) -> bool:
        """Whether sample means stand inside F, so that the mean of F is not F of the mean; halves of them tell by how much."""

    @abc.abstractmethod
    def derivatives(self, equation: AbstractEquation, gradient: bool) -> int:
        """How many times g would be differentiated along the paths, were every z a path derivative."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Of the increments that a replicate reports."""

    @property
    def steps_tell(self) -> int:
        """How many of the increments are taken with half the steps, to tell of the bias of the steps for all."""
        return len(self.names)

    @abc.abstractmethod
    def is_lost(self, of_u: Floats, of_z: Floats) -> NDArray[np.bool_]:
        """Whether F is too steep in u or z, as `steepness` has it, for the levels to tell of their bias."""

    @abc.abstractmethod
    def replicate(
        self, equation: AbstractEquation, key: PRNGKeyArray, t: Array, x: Array, gradient: bool
    ) -> Replicate:
        """One estimate of u(t, x), and of its gradient if asked for, from the stream `key`."""

    @abc.abstractmethod
    def costs(self, equation: AbstractEquation) -> list[Evaluations]:
        """What each increment of one replicate evaluates and draws."""

    def cost(self, equation: AbstractEquation) -> Evaluations:
        """What one replicate evaluates and draws."""
        return sum(self.costs(equation), Evaluations())

    def spent(self, equation: AbstractEquation, replicates: NDArray[np.int64]) -> list[Evaluations]:
        """What each increment of so many replicates at each point evaluates and draws."""
        if self.counts is None:
            return [cost.times(int(np.sum(replicates))) for cost in self.costs(equation)]
        return self.allot(np.sum(replicates[:, None] * self.counts, 0)).costs(equation)

    @abc.abstractmethod
    def bias(
        self, equation: AbstractEquation, increments: NDArray[Any], sizes: NDArray[Any]
    ) -> NDArray[Any]:
        """A size for the bias of levels not taken, from the mean increments (..., levels) and sizes; NaN where it cannot be told."""


def jackknifed(f: Callable[[Any], Array], halves: Any) -> Array:
    """f of the mean of two independent estimates less what their noise does inside it, 2 f(mean) - (f(a) + f(b))/2.

    What is left of the noise is of its fourth order. Where f is quadratic nothing is: it is the product of the two.
    """
    a, b = (jax.tree.map(lambda u, k=k: u[k], halves) for k in (0, 1))
    return 2 * f(jax.tree.map(lambda a, b: (a + b) / 2, a, b)) - (f(a) + f(b)) / 2


def even(argument: str, steps: Any) -> int | Literal["auto"]:
    """An even number of steps, or "auto": the bias of the steps is told by taking half of them."""
    if isinstance(steps, str) and steps == "auto":
        return "auto"
    remedy = 'pass an even number of steps for a path, or "auto"'
    checked = whole(argument, steps, 2, remedy)
    if checked % 2:
        raise ArgumentError(f"{argument} must be even, got {steps}: {remedy}.")
    return checked
