"""What a simulation is planned for, what it may start from, and who serves which points."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._equations.problem import AbstractEquation
from ..estimators import AbstractEstimator, Evaluations
from ..execution import Kernel
from ..execution.moments import Floats
from ..execution.stopping import Budget
from ..surrogates.wrapping import AbstractSurrogate

# Replicates of a pilot, at least.
PILOT_REPLICATES = 4


@dataclass(frozen=True)
class Control:
    """What a simulation starts from: a model of the solution, or nothing, and the law of its defect."""

    name: str
    equation: AbstractEquation
    model: AbstractSurrogate | None
    doubt: float = 1.0  # how many times larger the bias of the levels may be than they tell


@dataclass(frozen=True)
class Setting:
    """What is planned for. After the deadline, on `time.monotonic`, nothing more is tried."""

    problem: AbstractEquation
    surrogate: AbstractSurrogate | None
    t: NDArray[Any]
    x: NDArray[Any]
    seed: int
    gradient: bool
    budget: Budget
    deadline: float
    pilots: int = PILOT_REPLICATES  # at least
    spent: list[Evaluations] = field(
        default_factory=list
    )  # by all pilots, of whatever was taken in the end

    def at(self, points: NDArray[np.int64]) -> "Setting":
        """Of these points alone."""
        return replace(self, t=self.t[points], x=self.x[points])

    def kernel(
        self,
        control: Control,
        estimator: AbstractEstimator,
        points: NDArray[np.int64],
        **options: Any,
    ) -> Kernel:
        return Kernel(
            control.equation,
            estimator,
            self.t[points],
            self.x[points],
            seed=self.seed,
            gradient=self.gradient,
            surrogate=self.surrogate,
            control=control.model,
            **options,
        )


@dataclass(frozen=True)
class Share:
    """The points that one settled estimator serves, and the estimated size of their discretisation bias."""

    control: Control
    estimator: AbstractEstimator
    points: NDArray[np.int64]
    bias: Floats
    gradient_bias: Floats
    reason: str = "asked for"
    work: Floats | float = (
        np.inf
    )  # of each point to the error bar that is aimed at, in operations, if that is known
    left_out: Floats | float = 0.0  # at most what the increments add that are not taken

    def at(self, rows: NDArray[np.bool_]) -> "Share":
        """Of these of its points alone."""
        each = {name: a[rows] for name, a in vars(self).items() if isinstance(a, np.ndarray)}
        return replace(self, estimator=self.estimator.at(rows), **each)

    def methods(self) -> Iterator[tuple[NDArray[np.int64], AbstractEstimator]]:
        """Points with as many samples of each increment, and the estimator with those."""
        counts = self.estimator.counts
        if counts is None or counts.ndim == 1:
            yield self.points, self.estimator
            return
        for each in np.unique(counts, axis=0):
            yield self.points[(counts == each).all(1)], self.estimator.allot(each)
