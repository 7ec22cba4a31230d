"""What is planned (`Task`), from what a run may start (`Start`), and the result (`Plan`)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._equations.surrogate import AbstractSurrogate
from .._support.types import Floats
from ..estimators import AbstractEstimator, Evaluations, Tuning
from ..execution.accumulator import Accumulator, KnownBias
from ..execution.executor import AbstractExecutor
from ..execution.points import Points
from ..execution.program import Program
from ..execution.stopping import StoppingRule
from .policy import DEFAULT_POLICY, Policy


@dataclass(frozen=True)
class Start:
    """What a run corrects: a model of the solution, and the equation of its defect."""

    name: str  # "the surrogate", "smoothed g", "zero" or "tangent"
    equation: AbstractEquation
    model: AbstractSurrogate | None  # None is zero


@dataclass(frozen=True, eq=False)
class Task:
    """The points of a call and everything that a plan depends on."""

    equation: AbstractEquation  # of the problem, not of a defect
    surrogate: AbstractSurrogate | None
    points: Points
    gradient: bool
    rule: StoppingRule
    executor: AbstractExecutor
    deadline: float = np.inf  # on `time.monotonic`; no further pilot begins after it
    policy: Policy = DEFAULT_POLICY

    def __len__(self) -> int:
        return len(self.points)

    @property
    def everywhere(self) -> NDArray[np.int64]:
        """The indices of all points of this task."""
        return np.arange(len(self))

    def at(self, rows: NDArray[np.int64]) -> "Task":
        """Return the same task for a subset of its points."""
        return replace(self, points=self.points.at(rows))

    def rows_of(self, points: Points) -> NDArray[np.int64]:
        """Return the indices, in this task, of points that belong to it."""
        return np.searchsorted(self.points.index, points.index)

    def program(self, start: Start, estimator: AbstractEstimator, tuning: Tuning) -> Program:
        """Return the program of an estimator for a start."""
        return Program(
            start.equation,
            estimator,
            tuning,
            surrogate=self.surrogate,
            start=start.model,
            gradient=self.gradient,
        )


@dataclass(frozen=True, eq=False)
class Assignment:
    """Points, with the start, estimator and tuning that serve them."""

    points: Points
    start: Start
    estimator: AbstractEstimator
    tuning: Tuning
    step_bias: Floats  # of the value, as pilots measured it, (points,)
    gradient_step_bias: Floats  # of the gradient, (points, d)
    reason: str = "asked for"  # why start and estimator were chosen, in words
    work: Floats | float = np.inf  # predicted work of each point; infinite if unknown
    omitted: Floats | float = 0.0  # bound on what the increments add that the tuning omits

    def at(self, rows: NDArray[Any]) -> "Assignment":
        """Return the assignment of a subset of its points."""
        arrays = {name: a[rows] for name, a in vars(self).items() if isinstance(a, np.ndarray)}
        return replace(self, points=self.points.at(rows), tuning=self.tuning.at(rows), **arrays)

    def by_samples(self) -> Iterator[tuple[NDArray[np.int64], Tuning]]:
        """Yield groups of points with equal samples, or all points if samples are expected numbers.

        A group is the indices of its points in the arrays of the user, and their tuning.
        """
        samples = self.tuning.samples
        if samples is None or samples.ndim == 1 or self.tuning.level is not None:
            yield self.points.index, self.tuning
            return
        for each in np.unique(samples, axis=0):
            yield self.points.index[(samples == each).all(1)], self.tuning.with_samples(each)

    def accumulator(self, task: Task) -> Accumulator:
        """Return an empty accumulator for the replicates of this assignment."""
        known = KnownBias(self.step_bias, self.gradient_step_bias, self.omitted)
        program = task.program(self.start, self.estimator, self.tuning)
        return Accumulator(task.executor, program, self.points, self.tuning, known)


@dataclass(frozen=True, eq=False)
class Figures:
    """What pilots measured of one candidate, with one entry for each point where it was tried.

    - `points`: indices of the points in the arrays of the user.
    - `defect`: estimate of u minus the start.
    - `stderr`: the standard error aimed for.
    - `bound`: bound on, or estimate of, the bias that a run would have.
    - `work`: predicted work of a run, in operations.
    - `steps`: steps of a path, at the base level if there are levels; 0 if paths are drawn exactly.
    - `verdict`: in words, whether the candidate was taken, and why it was not.
    """

    name: str
    points: NDArray[np.int64]
    defect: Floats
    stderr: Floats
    bound: Floats
    work: Floats
    steps: NDArray[np.int64]
    verdict: NDArray[Any]


NO_COST = Evaluations()


@dataclass(frozen=True, eq=False)
class Plan:
    """Assignments, the cost of the pilots that were run to find them, and all candidates."""

    assignments: tuple[Assignment, ...] = ()
    pilots: Evaluations = NO_COST
    candidates: tuple[Figures, ...] = ()

    def __add__(self, other: "Plan") -> "Plan":
        """Return the assignments, costs and candidates of both plans."""
        return Plan(
            self.assignments + other.assignments,
            self.pilots + other.pilots,
            self.candidates + other.candidates,
        )

    def with_reason(self, reason: str) -> "Plan":
        """Return the plan with another reason for all its assignments."""
        found = tuple(replace(each, reason=reason) for each in self.assignments)
        return replace(self, assignments=found)
