"""A program: one replicate of one estimator for one equation, compiled once and run for many rows.

A `Program` maps one row (point, random key, replicate number, variant, samples) to the replicate of
that row. `compute` runs it for all rows, and compiles it first if necessary. The number of rows is
an input of the compiled program, and each row is computed by itself. So results depend neither on
the number of rows nor on how rows are split into calls.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._equations.surrogate import AbstractSurrogate
from .._support.jaxprs import contains_primitive
from .._support.precision import use_dtype
from .._support.tracing import structure_key
from ..estimators import AbstractEstimator, Replicate, Tuning

# Rows of one call of a compiled program. Fewer rows are padded.
CAPACITY = 256
# Compiled programs that are kept. Each takes about 600 of the 65,530 memory mappings that Linux
# allows a process by default. A process that needs one more crashes.
MOST_PROGRAMS = 48
# Level 2 compiles in half the time of the default, and its programs are as fast.
COMPILER_OPTIONS = {"xla_backend_optimization_level": 2}
# Primitives that XLA passes to a library, which waits for XLA's own threads. If every thread runs
# such a call, the process deadlocks.
FACTORISATIONS = {"cholesky", "eig", "eigh", "geqrf", "householder_product", "lu", "qr", "schur"}
OTHER_CALLS = {"ffi_call", "fft", "svd", "triangular_solve", "tridiagonal_solve"}
LIBRARY_PRIMITIVES = FACTORISATIONS | OTHER_CALLS


class Rows(eqx.Module):
    """The inputs of a program, one row per replicate.

    The fields are NumPy arrays outside of programs. Inside, `Program` gets one row without the axis
    of rows.
    """

    t: Any  # (rows,)
    x: Any  # (rows, d)
    key: Any  # (rows, 2), uint32: the random key of the point
    replicate: Any  # (rows,), uint32: the number of the replicate at its point
    variant: Any  # (rows,), int32: a value of `Variant`
    samples: Any  # (rows, increments), int32; None if the estimator fixes them

    def __len__(self) -> int:
        return len(self.t)

    def at(self, rows: Any) -> "Rows":
        """Return a subset of the rows; `rows` is a slice, a mask or an array of indices."""
        return jax.tree.map(lambda a: a[rows], self)


class Replicates(NamedTuple):
    """The outputs of a program: one replicate per row.

    The fields are those of `Replicate` with a leading axis of rows. They estimate the solution
    minus the surrogate, whatever the start of the program is. Without a surrogate they estimate the
    solution.
    """

    value: Any
    gradient: Any
    increments: Any
    gradient_increments: Any
    sizes: Any
    telescoping: Any
    # Value (rows,) and gradient (rows, d) of the surrogate, or None without one. They come from the
    # same program as the replicates, so both use the same arrays of the surrogate.
    surrogate: Any

    def at(self, rows: Any) -> "Replicates":
        """Return a subset of the rows."""
        return jax.tree.map(lambda a: a[rows], self)


class Program(eqx.Module):
    """The function from one row to one replicate.

    **Arguments:**

    - `equation`: the equation that the estimator solves, which is that of the defect of the start.
    - `estimator`, `tuning`: how it is solved. The samples per increment come from the row.
    - `surrogate`: replicates are reported relative to it; None is zero.
    - `start`: the model whose defect `equation` describes; None is zero.
    - `gradient`: whether gradients are estimated too.
    """

    equation: AbstractEquation
    estimator: AbstractEstimator
    tuning: Tuning
    surrogate: AbstractSurrogate | None
    start: AbstractSurrogate | None  # None also if it is the surrogate: arrays are passed once
    starts_from_surrogate: bool = eqx.field(static=True)
    gradient: bool = eqx.field(static=True)

    def __init__(
        self,
        equation: AbstractEquation,
        estimator: AbstractEstimator,
        tuning: Tuning,
        *,
        surrogate: AbstractSurrogate | None = None,
        start: AbstractSurrogate | None = None,
        gradient: bool = True,
    ):
        self.equation, self.estimator, self.gradient = equation, estimator, gradient
        self.tuning = tuning.with_samples(None)
        self.surrogate = surrogate
        self.starts_from_surrogate = start is surrogate
        self.start = None if self.starts_from_surrogate else start

    @property
    def start_model(self) -> AbstractSurrogate | None:
        """The model that the simulation starts from; None is zero."""
        return self.surrogate if self.starts_from_surrogate else self.start

    def __call__(self, row: Rows) -> Replicates:
        """Return the replicate of one row, without the axis of rows."""
        t, x = row.t, row.x
        key = jax.random.wrap_key_data(jnp.asarray(row.key), impl="threefry2x32")
        key = jax.random.fold_in(key, row.replicate)
        tuning = self.tuning.with_samples(row.samples)
        estimate = self.estimator.replicate(
            self.equation, tuning, jnp.asarray(row.variant), key, t, x, self.gradient
        )
        surrogate = _value_and_gradient(self.surrogate, t, x)
        if not self.starts_from_surrogate:
            start = _value_and_gradient(self.start, t, x)
            estimate = _relative_to(estimate, start, surrogate, x)
        return Replicates(*estimate, surrogate)


def _value_and_gradient(
    model: AbstractSurrogate | None, t: Any, x: Any
) -> tuple[Array, Array] | None:
    return None if model is None else jax.value_and_grad(model, argnums=1)(t, x)


def _relative_to(estimate: Replicate, start: Any, surrogate: Any, x: Any) -> Replicate:
    """Return an estimate of u - surrogate from an estimate of u - start.

    start - surrogate is added to the value and to the first increment. `start` and `surrogate` are
    values with gradients, or None for zero.
    """
    zero = (jnp.zeros((), x.dtype), jnp.zeros_like(x))
    value, slope = jax.tree.map(
        jnp.subtract, zero if start is None else start, zero if surrogate is None else surrogate
    )
    add_first = lambda a, b: None if a is None else a.at[0].add(b)
    return estimate._replace(
        value=estimate.value + value,
        increments=add_first(estimate.increments, value),
        gradient=None if estimate.gradient is None else estimate.gradient + slope,
        gradient_increments=add_first(estimate.gradient_increments, slope),
    )


class Compiled(NamedTuple):
    """A compiled function of rows, and what an executor needs to know about it."""

    call: Callable[..., Any]
    # Whether it calls a library that must not run in two threads at once.
    is_serial: bool
    # Number of samples of a row -> number of rows that one call of an executor should have. An
    # executor fills this dictionary.
    rows_per_call: dict[int, int]


class _CompiledPrograms:
    """The most recently used compiled functions, at most `size`, by structure."""

    def __init__(self, size: int):
        self.size, self._lock = size, threading.Lock()
        self._programs: OrderedDict[Hashable, Compiled] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Compiled]) -> Compiled:
        with self._lock:
            if key not in self._programs:
                self._programs[key] = make()
                if len(self._programs) > self.size:
                    self._programs.popitem(last=False)
            self._programs.move_to_end(key)
            return self._programs[key]

    def clear(self) -> None:
        with self._lock:
            self._programs.clear()


_compiled_programs = _CompiledPrograms(MOST_PROGRAMS)


def forget_programs() -> None:
    """Drop all compiled programs of this library. The caches of JAX are not touched."""
    _compiled_programs.clear()


class Prepared(NamedTuple):
    """A function with its arrays on the device and its compiled program."""

    arrays: Any
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
            out = self.compiled.call(self.arrays, padded, np.int32(count))
            return jax.tree.map(lambda a: np.asarray(a)[:count], out)


def prepare(function: Callable[[Any], Any], columns: Any, dtype: np.dtype[Any]) -> Prepared:
    """Return a function of one row with its compiled program, which is compiled if necessary.

    **Arguments:**

    - `function`: a pytree whose arrays are data, such as a `Program`.
    - `columns`: a pytree of arrays with a leading axis of rows; only shapes and dtypes matter.
    - `dtype`: floating-point type of the simulation.
    """
    began = time.perf_counter()
    with use_dtype(dtype):
        arrays, static = eqx.partition(function, eqx.is_array)
        shapes = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((CAPACITY, *a.shape[1:]), a.dtype), columns
        )
        signature = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(shapes))
        key = (structure_key(function), jax.tree.structure(columns), signature)
        was_compiled = True

        def make() -> Compiled:
            nonlocal was_compiled
            was_compiled = False
            run = lambda arrays, columns, count: _loop(eqx.combine(arrays, static), columns, count)
            jitted = jax.jit(run, compiler_options=COMPILER_OPTIONS)
            count = jax.ShapeDtypeStruct((), np.int32)
            traced = jitted.trace(arrays, shapes, count)
            is_serial = contains_primitive(traced.jaxpr.jaxpr, LIBRARY_PRIMITIVES)
            return Compiled(traced.lower().compile(), is_serial, {})

        compiled = _compiled_programs.get(key, make)
        arrays = jax.device_put(arrays)
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


def compute(program: Program, rows: Rows) -> Replicates:
    """Run a program for all rows in this thread.

    This is what a worker process of an executor calls.
    """
    prepared = prepare(program, rows, rows.x.dtype)
    blocks = [slice(at, at + CAPACITY) for at in range(0, len(rows), CAPACITY)]
    parts = [prepared(rows.at(block)) for block in blocks]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
