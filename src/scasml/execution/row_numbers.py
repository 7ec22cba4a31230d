"""Which rows to run: point, replicate and variant of each, and how they reach an executor.

`RowNumbers` needs 24 bytes per row. `run_rows` makes the `Rows` of a program from it in blocks, so
that the states x of all rows are never in memory at once.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..estimators import Tuning
from .executor import AbstractExecutor, Part, in_order
from .points import Points
from .program import Program, Rows

# Numbers that are in memory at once: in the rows that an executor gets, and in a pilot.
NUMBERS_PER_BLOCK = 2**22
# Numbers of a row besides its state x: time, key, replicate, variant, samples, and indices.
NUMBERS_BESIDES_STATE = 16


class RowNumbers(NamedTuple):
    """The point, the replicate and the variant of each row, all of shape (rows,)."""

    point: NDArray[np.int64]  # index into the points of an accumulator or a task
    replicate: NDArray[np.int64]  # number of the replicate at its point
    variant: NDArray[np.int64]  # a value of `Variant`

    def at(self, rows: Any) -> "RowNumbers":
        """Return a subset of the rows."""
        return RowNumbers(self.point[rows], self.replicate[rows], self.variant[rows])


def rows_per_block(dim: int) -> int:
    """Return how many rows of dimension `dim` are in memory at once."""
    return max(NUMBERS_PER_BLOCK // (dim + NUMBERS_BESIDES_STATE), 1)


def rows_at(points: Points, tuning: Tuning, numbers: RowNumbers) -> Rows:
    """Return the inputs of a program for rows with these numbers."""
    point, samples, level = numbers.point, None, None
    if tuning.samples is not None:
        width = np.shape(tuning.samples)[-1]
        samples = np.broadcast_to(tuning.samples, (len(points), width))[point]
    if tuning.level is not None:
        level = np.broadcast_to(tuning.level, len(points))[point]
    return Rows(
        points.t[point],
        points.x[point],
        points.key[point],
        numbers.replicate.astype(np.uint32),
        numbers.variant.astype(np.int32),
        samples,
        level,
    )


def run_rows(
    executor: AbstractExecutor,
    program: Program,
    points: Points,
    tuning: Tuning,
    numbers: RowNumbers,
) -> Iterator[Part]:
    """Run a program for all rows with these numbers, and yield parts in the order of the rows."""
    size = rows_per_block(points.x.shape[1])
    for start in range(0, len(numbers.point), size):
        rows = rows_at(points, tuning, numbers.at(slice(start, start + size)))
        for part in in_order(executor.run(program, rows), len(rows)):
            shifted = slice(start + part.rows.start, start + part.rows.stop)
            yield part._replace(rows=shifted)
