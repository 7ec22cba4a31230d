"""The default executor: threads of this process, and shorthands for functions of points."""

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._support.types import Floats
from .compilation import CAPACITY, AbstractProbe, prepare
from .executor import AbstractExecutor, Part
from .program import Program, Replicates, Rows

# Wall-clock seconds of one call of a program. Calls are short, so that the caller can soon report
# progress, and react to deadlines and interrupts.
ROUND_SECONDS = 0.2


class LocalExecutor(AbstractExecutor):
    """Runs programs in threads, on all cores that this process may use.

    `chunk` is the number of rows of one call of a compiled program. By default it is chosen so that
    a call takes about a fifth of a second. Results do not depend on it.
    """

    def __init__(self, chunk: int | None = None):
        self.chunk = chunk

    def run(self, program: Program, rows: Rows) -> Iterator[Part]:
        total = len(rows)
        if total == 0:
            return
        # Everything runs in threads of the pool, also compilation, because JAX's settings are per
        # thread.
        prepared = _pool().submit(prepare, program, rows, rows.x.dtype).result()
        compiled, compile_seconds = prepared.compiled, prepared.compile_seconds
        workers = 1 if compiled.is_serial else _cores()
        samples = 0 if rows.samples is None else int(np.max(np.sum(rows.samples, 1)))
        at = 0

        def timed(part: slice) -> tuple[slice, Replicates, float]:
            began = time.perf_counter()
            replicates = prepared(rows.at(part))
            return part, replicates, time.perf_counter() - began

        while at < total:
            # The first call of a program measures its speed, with one row.
            known = self.chunk or compiled.rows_per_call.get(samples)
            active = workers if known else 1
            size = min(known or 1, CAPACITY, -(-(total - at) // active))
            jobs = []
            for _ in range(active):
                start, at = at, min(at + size, total)
                if at > start:
                    jobs.append(_pool().submit(timed, slice(start, at)))
            for job in jobs:
                part, replicates, seconds = job.result()
                count = part.stop - part.start
                ideal = round(count * ROUND_SECONDS / max(seconds, 1e-6))
                compiled.rows_per_call[samples] = max(1, min(CAPACITY, ideal))
                yield Part(part, replicates, compile_seconds)
                compile_seconds = 0.0

    def map(self, function: Callable[..., Any], *columns: NDArray[Any]) -> Any:
        return apply_at_points(function, *columns)


class _OneRow(eqx.Module):
    """A function of several arguments as a function of one tuple."""

    function: Callable[..., Any]

    def __call__(self, row: tuple[Any, ...]) -> Any:
        return self.function(*row)


def apply_at_points(function: Callable[..., Any], *columns: NDArray[Any]) -> Any:
    """Apply a function of one point to every row of the columns, in this thread.

    This is `AbstractExecutor.map` in the present process. The function is compiled once for any
    number of rows.
    """
    is_probe = isinstance(function, AbstractProbe)
    return prepare(_OneRow(function), columns, columns[0].dtype, is_probe).in_blocks(columns)


class _ValueAndGradient(eqx.Module):
    """A function with its gradient in its last argument."""

    function: Callable[..., Array]

    def __call__(self, *point: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(self.function, argnums=len(point) - 1)(*point)


def value_and_gradient(
    executor: AbstractExecutor, function: Callable[..., Array], *columns: NDArray[Any]
) -> tuple[Floats, Floats]:
    """Return f (rows,) and its gradient in the last argument (rows, d), as float64 arrays."""
    if not len(columns[0]):
        return np.zeros(0), np.zeros((0, columns[-1].shape[1]))
    found = executor.map(_ValueAndGradient(function), *columns)
    return jax.tree.map(lambda a: a.astype(np.float64), found)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """The threads in which all programs run."""
    return ThreadPoolExecutor(_cores())


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
