"""Records in an answer: what served which points, what it cost, how its surrogate was made."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..estimators import AbstractEstimator, Evaluations, Tuning


@dataclass(frozen=True, eq=False)
class Choice:
    """Points that one estimator served with one tuning.

    - `points`: their indices in the arrays of the user.
    - `method`: the estimator.
    - `tuning`: its gradient method, steps of a path and samples per increment.
    - `start`: "the surrogate", "smoothed g", "zero" or "tangent".
    - `reason`: why these were chosen, in words.
    """

    points: NDArray[np.int64]
    method: AbstractEstimator
    tuning: Tuning
    start: str
    reason: str


class Preparation(NamedTuple):
    """How `solve` obtained the surrogate of its answer."""

    surrogate: Any
    verb: str  # "trained" or "loaded"
    seconds: float  # wall-clock time of training or loading


@dataclass(frozen=True)
class Cost:
    """The cost of an answer, summed over all points.

    `evaluations` are those of all replicates and pilots. `replicates` does not count those of
    pilots. `seconds` is the wall-clock time of the call, with pilots and compilation.
    """

    evaluations: Evaluations
    replicates: int
    seconds: float

    @property
    def functions(self) -> int:
        """Evaluations of F and g: FE of the SCaSML paper."""
        return self.evaluations.functions

    @property
    def random_numbers(self) -> int:
        """Scalar random numbers: RV or RN of the SCaSML paper."""
        return self.evaluations.random_numbers
