"""The interface of an executor: rows in, replicates out.

An executor may compute rows in any order, anywhere. `in_order` restores the order of the rows, so
that sums of replicates are the same, bit for bit, for every executor.
"""

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from numpy.typing import NDArray

from .program import Program, Replicates, Rows


class Part(NamedTuple):
    """The replicates of consecutive rows, out of all rows that an executor was given."""

    rows: slice  # with start and stop; the step is 1
    replicates: Replicates
    compile_seconds: float = 0.0  # wall-clock time that went into compilation, if known


class AbstractExecutor(abc.ABC):
    """Where programs run."""

    @abc.abstractmethod
    def run(self, program: Program, rows: Rows) -> Iterator[Part]:
        """Yield the replicates of all rows, in parts that cover each row once, in any order.

        The caller may stop iterating early. The remaining parts then need not be computed.
        """

    @abc.abstractmethod
    def map(self, function: Callable[..., Any], *columns: NDArray[Any]) -> Any:
        """Apply a function of one point to every row of the columns.

        `function` is hashable or an Equinox module. It takes one row of each column and returns a
        pytree of arrays. The columns are arrays with a leading axis of rows. The result is the same
        pytree of NumPy arrays with a leading axis of rows, computed in the dtype of the first
        column. `apply_at_points` does this in the present process.
        """


def in_order(parts: Iterable[Part], count: int) -> Iterator[Part]:
    """Yield parts in the order of their rows, in whatever order they arrive.

    Raises RuntimeError if one of the `count` rows is missing or comes twice.
    """
    waiting: dict[int, Part] = {}
    following = 0
    for part in parts:
        start, stop = part.rows.start, part.rows.stop
        if start < following or start in waiting:
            raise _wrong_replicates("repeated", f"row {start}")
        if stop > count or len(part.replicates.value) != stop - start:
            raise _wrong_replicates(str(len(part.replicates.value)), f"rows {start} to {stop - 1}")
        waiting[start] = part
        while following in waiting:
            ready = waiting.pop(following)
            following = ready.rows.stop
            yield ready
    if waiting and min(waiting) < following:
        raise _wrong_replicates("repeated", f"row {min(waiting)}")
    if following < count:
        raise _wrong_replicates("no", f"row {following}")


def _wrong_replicates(number: str, rows: str) -> RuntimeError:
    return RuntimeError(
        f"an executor returned {number} replicates for {rows}: it must return every row once."
    )
