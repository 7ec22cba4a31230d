"""Compilation: a function of one row, compiled once and run for any number of rows.

`prepare` compiles a function, or finds it compiled, and returns it as `Prepared`. The number of
rows is an input of the compiled program, and each row is computed by itself. So results depend
neither on the number of rows nor on how rows are split into calls.
"""

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array
from numpy.typing import NDArray

from .._support.jaxprs import contains_primitive
from .._support.operation_counts import WHILE_ITERATIONS, jaxpr_work
from .._support.precision import use_dtype
from .._support.tracing import key_of_leaves

# Rows of one call of a compiled program. Fewer rows are padded.
CAPACITY = 256
# Compiled programs that are kept. Each takes about 600 of the 65,530 memory mappings that Linux
# allows a process by default. A process that needs one more crashes.
MOST_PROGRAMS = 48
# Level 2 compiles in half the time of the default, and its programs are as fast. Without fusion
# emitters a third of the remaining time is saved. The programs take 0.8 to 1.15 of the time to run.
FAST_TO_RUN: Mapping[str, int | bool] = {
    "xla_backend_optimization_level": 2,
    "xla_cpu_use_fusion_emitters": False,
}
# These options compile in a third of the time. The programs take several times longer to run.
FAST_TO_COMPILE: Mapping[str, int | bool] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
}
# Operations of one row up to which a probe compiles with `FAST_TO_COMPILE`. They take about 0.1 ms
# with these options.
LITTLE_WORK = 2e5
# Bytes from which on an array is placed on the device once for all calls.
LARGE_ARRAY = 2**16
# Primitives that XLA passes to a library, which waits for XLA's own threads. If every thread runs
# such a call, the process deadlocks.
FACTORISATIONS = {"cholesky", "eig", "eigh", "geqp3", "geqrf", "householder_product", "lu", "qr"}
REDUCTIONS = {"hessenberg", "ormqr", "schur", "svd", "tridiagonal"}
OTHER_CALLS = {"ffi_call", "fft", "triangular_solve", "tridiagonal_solve"}
LIBRARY_PRIMITIVES = FACTORISATIONS | REDUCTIONS | OTHER_CALLS


class Compiled(NamedTuple):
    """A compiled function of rows, and what an executor needs to know about it."""

    call: Callable[..., Any]
    # Whether it calls a library that must not run in two threads at once.
    is_serial: bool
    # Number of samples of a row -> number of rows that one call of an executor should have. An
    # executor fills this dictionary.
    rows_per_call: dict[int, int]


class AbstractProbe(eqx.Module):
    """A function of one point whose results decide something, but enter no answer.

    Its last digits do not matter, and it runs once for each point. So it is compiled quickly if it
    has little work.
    """


class _CompiledPrograms:
    """The most recently used compiled functions, at most `size`, by structure."""

    def __init__(self, size: int):
        self.size, self._lock = size, threading.Lock()
        self._programs: OrderedDict[Hashable, Future[Compiled]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Compiled]) -> Compiled:
        """Return the program of a key, made by `make` if there is none.

        Threads that want the same program wait for it. The others do not wait.
        """
        with self._lock:
            is_new = key not in self._programs
            program = self._programs.setdefault(key, Future())
            self._programs.move_to_end(key)
            if len(self._programs) > self.size:
                self._programs.popitem(last=False)
        if is_new:
            try:
                program.set_result(make())
            except BaseException as error:
                program.set_exception(error)
                with self._lock:
                    self._programs.pop(key, None)
        return program.result()

    def clear(self) -> None:
        with self._lock:
            self._programs.clear()


_compiled_programs = _CompiledPrograms(MOST_PROGRAMS)
# Two threads of the user may each run a program that calls a library.
_library_lock = threading.Lock()


def forget_programs() -> None:
    """Drop all compiled programs of this library. The caches of JAX are not touched."""
    _compiled_programs.clear()


class Prepared(NamedTuple):
    """The arrays of a function, and its compiled program."""

    arrays: list[Any]
    compiled: Compiled
    dtype: np.dtype[Any]
    compile_seconds: float  # 0 if the program was compiled before

    def __call__(self, columns: Any) -> Any:
        """Run the function for each row of the columns, and return NumPy arrays.

        The columns have at most CAPACITY rows.
        """
        count = len(jax.tree.leaves(columns)[0])
        with use_dtype(self.dtype):
            padded = jax.tree.map(_padded, columns)
            # JAX returns before the results are there; `np.asarray` waits for them.
            with _library_lock if self.compiled.is_serial else contextlib.nullcontext():
                out = self.compiled.call(self.arrays, padded, np.int32(count))
                return jax.tree.map(lambda a: np.asarray(a)[:count], out)

    def in_blocks(self, columns: Any) -> Any:
        """Run the function for each row of columns with any number of rows."""
        count = max(len(jax.tree.leaves(columns)[0]), 1)
        blocks = [slice(at, at + CAPACITY) for at in range(0, count, CAPACITY)]
        parts = [self(jax.tree.map(lambda a, block=block: a[block], columns)) for block in blocks]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def prepare(
    function: Callable[[Any], Any], columns: Any, dtype: np.dtype[Any], is_probe: bool = False
) -> Prepared:
    """Return a function of one row with its compiled program, which is compiled if necessary.

    **Arguments:**

    - `function`: a pytree whose arrays are data, such as a `Program`.
    - `columns`: a pytree of arrays with a leading axis of rows; only shapes and dtypes matter.
    - `dtype`: floating-point type of the simulation.
    - `is_probe`: whether the function is an `AbstractProbe`.
    """
    began = time.perf_counter()
    with use_dtype(dtype):
        # The function is flattened by hand: `eqx.partition` builds its modules anew, and is slow.
        leaves, structure = jax.tree.flatten(function)
        is_data = [eqx.is_array(leaf) for leaf in leaves]
        arrays = [leaf for leaf, data in zip(leaves, is_data, strict=True) if data]
        static = [None if data else leaf for leaf, data in zip(leaves, is_data, strict=True)]
        row_leaves, row_structure = jax.tree.flatten(columns)
        signature = tuple((leaf.shape[1:], leaf.dtype) for leaf in row_leaves)
        key = (key_of_leaves(leaves, structure), row_structure, signature, is_probe)
        was_compiled = True

        def run(arrays: list[Any], columns: Any, count: Any) -> Any:
            data = iter(arrays)
            pairs = zip(is_data, static, strict=True)
            whole = [next(data) if is_array else leaf for is_array, leaf in pairs]
            return _loop(jax.tree.unflatten(structure, whole), columns, count)

        def make() -> Compiled:
            nonlocal was_compiled
            was_compiled = False
            jitted = jax.jit(run)
            full = [jax.ShapeDtypeStruct((CAPACITY, *s), dtype) for s, dtype in signature]
            shapes = jax.tree.unflatten(row_structure, full)
            traced = jitted.trace(arrays, shapes, jax.ShapeDtypeStruct((), np.int32))
            is_serial = contains_primitive(traced.jaxpr.jaxpr, LIBRARY_PRIMITIVES)
            # The walker counts the body of the loop over rows WHILE_ITERATIONS times.
            work = jaxpr_work(traced.jaxpr.jaxpr) / WHILE_ITERATIONS
            options = FAST_TO_COMPILE if is_probe and work <= LITTLE_WORK else FAST_TO_RUN
            lowered: Any = traced.lower()  # JAX declares the argument of `compile` wrongly.
            return Compiled(lowered.compile(dict(options)), is_serial, {})

        compiled = _compiled_programs.get(key, make)
        # A large array would be copied in every call. To place a small one takes longer.
        arrays = [jax.device_put(a) if a.nbytes > LARGE_ARRAY else a for a in arrays]
    seconds = 0.0 if was_compiled else time.perf_counter() - began
    return Prepared(arrays, compiled, dtype, seconds)


def _loop(f: Callable[[Any], Any], columns: Any, count: Any) -> Any:
    """Apply f to the first `count` rows, one after the other; the other outputs are zero."""
    # f is traced only once, here and not in the loop, because tracing is slow.
    first_row = jax.tree.map(lambda a: a[0], columns)
    traced, one = jax.make_jaxpr(f, return_shape=True)(first_row)
    capacity = jax.tree.leaves(columns)[0].shape[0]
    empty = jax.tree.map(lambda a: jnp.zeros((capacity, *a.shape), a.dtype), one)

    def step(i: Array, out: Any) -> Any:
        row = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), columns)
        leaves = jaxpr_as_fun(traced)(*jax.tree.leaves(row))
        result = jax.tree.unflatten(jax.tree.structure(one), leaves)
        write = lambda o, r: jax.lax.dynamic_update_index_in_dim(o, r, i, 0)
        return jax.tree.map(write, out, result)

    return jax.lax.fori_loop(0, count, step, empty)


def _padded(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the rows followed by rows of zeros, CAPACITY rows in all."""
    full = np.zeros((CAPACITY, *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full
