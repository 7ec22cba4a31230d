"""Records in an answer: what served which points, what it cost, how its surrogate was made."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._planning.task import Figures
from ..estimators import AbstractEstimator, Evaluations, Tuning


@dataclass(frozen=True, eq=False)
class Choice:
    """Points that one estimator served with one tuning.

    - `points`: their indices in the arrays of the user.
    - `method`: the estimator.
    - `tuning`: its gradient method, steps of a path and samples per increment. For `Linearised` it
      has the base level and the expected samples of every point.
    - `start`: "the surrogate", "smoothed g", "zero" or "tangent".
    - `reason`: why these were chosen, in words.
    """

    points: NDArray[np.int64]
    method: AbstractEstimator
    tuning: Tuning
    start: str
    reason: str


class Choices(tuple[Choice, ...]):
    """The choices of an answer. It prints as a table of all candidates and their figures.

    `candidates` has one `Figures` for each candidate of `method="auto"`, also of those that were
    not taken. It is empty for a method that the user named.
    """

    candidates: tuple[Figures, ...]

    def __new__(
        cls, choices: Iterable[Choice] = (), candidates: tuple[Figures, ...] = ()
    ) -> "Choices":
        found = super().__new__(cls, choices)
        found.candidates = candidates
        return found

    def __str__(self) -> str:
        if not self.candidates:
            return tuple.__repr__(self)
        rows: list[tuple[str, ...]] = [
            ("candidate", "points", "defect", "steps", "bias", "aim", "work", "verdict")
        ]
        for each in self.candidates:
            for verdict in dict.fromkeys(each.verdict):
                chosen = each.verdict == verdict
                number = lambda a, chosen=chosen: f"{np.median(a[chosen]):.2g}"
                columns = (each.defect, each.steps, each.bound, each.stderr, each.work)
                count = f"{chosen.sum()}"
                rows.append((each.name, count, *map(number, columns), str(verdict)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        line = lambda row: "  ".join(
            cell.ljust(width) if k in (0, len(row) - 1) else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "\n".join(line(row).rstrip() for row in rows)


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
