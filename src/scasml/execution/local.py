"""Replicates in this process: one compiled kernel that works through a list of (point, replicate).

The kernel's shapes are those of one replicate at one point; the list has a fixed capacity and a
length that is data. So there is one program per (law, method), whatever the number of points,
replicates, chunks or threads; no result can depend on them, and none of them retraces.
"""

import functools
import hashlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import AbstractEquation
from .._equations.surrogate import AbstractSurrogate
from .._support.precision import use_dtype
from .._support.tracing import cached_by_structure
from ..estimators.base import AbstractEstimator, Replicate

F = TypeVar("F", bound=Callable[..., Any])
CAPACITY = 256
ROUND_SECONDS = 0.2
# After so many of them a look at the memory: 600 mappings each, of 65,530 as a rule.
KERNELS = 16
_kernels = itertools.count(1)


def point_keys(seed: int, t: NDArray[Any], x: NDArray[Any]) -> NDArray[np.uint32]:
    """The key of each point, a hash of the seed and of its own coordinates: it depends on neither its index nor its company."""
    rows = np.concatenate([t[:, None], x], axis=1) + 0.0  # -0.0 and 0.0 are one point
    prefix = f"scasml {seed} ".encode()
    digests = b"".join(
        hashlib.blake2b(prefix + row.astype("<f8").tobytes(), digest_size=8).digest()
        for row in rows
    )
    return np.frombuffer(digests, "<u4").reshape(-1, 2)


def _loop(f: Callable[[Any], Any], items: Any, count: Any) -> Any:
    """f over the first `count` rows, one after the other; the rest of the output is zero."""
    # Traced once, and not again for its shape: tracing is a third of what a first call waits for.
    traced, one = jax.make_jaxpr(f, return_shape=True)(jax.tree.map(lambda a: a[0], items))
    capacity = jax.tree.leaves(items)[0].shape[0]
    empty = jax.tree.map(lambda a: jnp.zeros((capacity, *a.shape), a.dtype), one)

    def step(i: Array, out: Any) -> Any:
        at = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), items)
        row = jax.tree.unflatten(
            jax.tree.structure(one), jaxpr_as_fun(traced)(*jax.tree.leaves(at))
        )
        return jax.tree.map(lambda o, r: jax.lax.dynamic_update_index_in_dim(o, r, i, 0), out, row)

    return jax.lax.fori_loop(0, count, step, empty)


class Row(NamedTuple):
    """One replicate of u less the surrogate at one point, beside the surrogate's value and slope there.

    They come from one program, so that they speak of one surrogate whatever jit remembers of a function's closure.
    """

    value: Any
    gradient: Any
    increments: Any
    gradient_increments: Any
    sizes: Any
    telescoping: Any
    surrogate: Any


def _jit(function: F) -> F:
    """LLVM at its second level of optimisation: half the time to compile, and programs as fast to within the noise."""
    jit: Any = eqx.filter_jit
    return jit(function, compiler_options={"xla_backend_optimization_level": 2})


@_jit
def _replicates(
    equation: AbstractEquation,
    surrogate: AbstractSurrogate | None,
    control: tuple[AbstractSurrogate | None, ...],
    method: AbstractEstimator,
    gradient: bool,
    items: Any,
    count: Any,
) -> Row:
    def one(item: tuple[Array, Array, Array, Array, Array, Array | None]) -> Row:
        t, x, point, replicate, version, counts = item
        key = jax.random.fold_in(jax.random.wrap_key_data(point, impl="threefry2x32"), replicate)
        allotted = method if counts is None else method.allot(counts)
        estimate = allotted.vary(equation, version).replicate(equation, key, t, x, gradient)
        at = lambda model: None if model is None else jax.value_and_grad(model, argnums=1)(t, x)
        here = at(surrogate)
        for other in control:  # none, if it is the surrogate
            estimate = _shifted(estimate, _less(at(other), here, x))
        return Row(*estimate, here)

    return _loop(one, items, count)


def _less(
    one: tuple[Array, Array] | None, other: tuple[Array, Array] | None, x: Array
) -> tuple[Array, Array]:
    """The difference of two values and slopes; None is 0."""
    nothing = (jnp.zeros((), x.dtype), jnp.zeros_like(x))
    return jax.tree.map(
        jnp.subtract, nothing if one is None else one, nothing if other is None else other
    )


def _shifted(estimate: Replicate, shift: tuple[Array, Array]) -> Replicate:
    """With the difference of two surrogates added to the value and to its first increment."""
    value, slope = shift
    first = lambda a, b: None if a is None else a.at[0].add(b)
    return estimate._replace(
        value=estimate.value + value,
        increments=first(estimate.increments, value),
        gradient=None if estimate.gradient is None else estimate.gradient + slope,
        gradient_increments=first(estimate.gradient_increments, slope),
    )


@_jit
def _each(f: Callable[..., Any], items: Any, count: Any) -> Any:
    return _loop(lambda item: f(*item), items, count)


class _ValueAndSlope(eqx.Module):
    function: Callable[..., Array]

    def __call__(self, *point: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(self.function, argnums=len(point) - 1)(*point)


def _fill(rows: NDArray[Any]) -> NDArray[Any]:
    full = np.zeros((CAPACITY, *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full


def at_points(f: Callable[..., Any], *arrays: NDArray[Any]) -> Any:
    """f of one row of each array, at every row; like everything here, compiled once whatever their number."""
    count, parts = len(arrays[0]), []
    for start in range(0, max(count, 1), CAPACITY):
        rows = tuple(a[start : start + CAPACITY] for a in arrays)
        filled = len(rows[0])
        with use_dtype(arrays[0].dtype):
            out = _each(f, tuple(map(_fill, rows)), np.int32(filled))
            parts.append(jax.tree.map(lambda a, n=filled: np.asarray(a)[:n], out))
    return jax.tree.map(lambda *p: np.concatenate(p), *parts)


def surrogate_at(
    surrogate: AbstractSurrogate, t: NDArray[Any], x: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """u and grad u at every point."""
    return _values(surrogate, t, x)


def terminal_at(equation: AbstractEquation, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """g and grad g at every point."""
    return _values(equation.terminal, x)


def _values(f: Callable[..., Array], *arrays: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if not len(arrays[0]):  # compile nothing for nobody
        return np.zeros(0), np.zeros((0, arrays[-1].shape[1]))
    return jax.tree.map(lambda a: a.astype(np.float64), at_points(_ValueAndSlope(f), *arrays))


class Kernel:
    """Replicates of one method at a fixed list of points.

    `law` is the law of defect of `control`, which is the surrogate unless told; the rows speak of the surrogate either way.

    `chunk` is how many rows one call of the compiled program works through; by default as many as take a
    fifth of a second, so that progress shows, and a deadline or an interrupt is heard.
    """

    def __init__(
        self,
        equation: AbstractEquation,
        method: AbstractEstimator,
        t: NDArray[Any],
        x: NDArray[Any],
        *,
        seed: int,
        gradient: bool,
        surrogate: AbstractSurrogate | None = None,
        control: AbstractSurrogate | Literal["surrogate"] | None = "surrogate",
        chunk: int | None = None,
    ):
        self.equation, self.method, self.surrogate, self.gradient = (
            equation,
            method,
            surrogate,
            gradient,
        )
        self.counts = method.counts
        if (
            self.counts is not None
        ):  # a row for each point: how many samples is data, as the point is
            self.counts = np.broadcast_to(self.counts, (len(t), self.counts.shape[-1]))
            self.method = method.allot(np.zeros_like(self.counts, shape=self.counts.shape[-1]))
        self.control = surrogate if isinstance(control, str) else control
        self.t, self.x, self.keys = t, x, point_keys(seed, t, x)
        self.rows, self.seconds = 0, 0.0  # without the first call, which compiles
        self._chunk, self._size, self._workers = chunk, chunk or 1, 0

    @property
    def seconds_per_row(self) -> float:
        """Of the clock, with all cores at work; 0 while unknown."""
        return self.seconds / self.rows if self.rows else 0.0

    def run(
        self, point: NDArray[np.int64], replicate: NDArray[np.int64], version: NDArray[np.int64]
    ) -> Iterator[tuple[slice, Row]]:
        """Works through the list of (point, replicate, version) in order; yields a slice of it and its rows."""
        at, total = 0, len(point)
        submit = lambda part: _pool().submit(
            self._call, point[part], replicate[part], version[part]
        )
        if not self._workers and total:
            _make_room()
            # The first call compiles, unless that was done before; others would only wait for it.
            at = min(self._size, CAPACITY, total)
            first, seconds = submit(slice(0, at)).result()
            self._resize(at, seconds)
            yield slice(0, at), first
            self._workers = 1 if _calls_lapack(self.equation) else _cores()
        while at < total:
            began, jobs = time.perf_counter(), []
            size = min(self._size, CAPACITY, -(-(total - at) // self._workers))
            for _ in range(self._workers):
                start, at = at, min(at + size, total)
                if at > start:
                    jobs.append((slice(start, at), submit(slice(start, at))))
            done = [(part, *job.result()) for part, job in jobs]
            # Before the rows are handed out: whoever takes the last of them may ask how long they took.
            self.rows += sum(part.stop - part.start for part, _ in jobs)
            self.seconds += time.perf_counter() - began
            for part, out, seconds in done:
                self._resize(part.stop - part.start, seconds)
                yield part, out

    def _resize(self, rows: int, seconds: float) -> None:
        """After so many rows in so many seconds."""
        if self._chunk is None:
            self._size = max(1, min(CAPACITY, round(rows * ROUND_SECONDS / max(seconds, 1e-6))))

    def _call(
        self, point: NDArray[np.int64], replicate: NDArray[np.int64], version: NDArray[np.int64]
    ) -> tuple[Row, float]:
        began, count = time.perf_counter(), len(point)
        items = (
            self.t[point],
            self.x[point],
            self.keys[point],
            replicate.astype(np.uint32),
            version.astype(np.int32),
        )
        counts = None if self.counts is None else _fill(self.counts[point])
        with use_dtype(self.x.dtype):
            control = () if self.control is self.surrogate else (self.control,)
            items = (*map(_fill, items), counts)
            out = _replicates(
                self.equation,
                self.surrogate,
                control,
                self.method,
                self.gradient,
                items,
                np.int32(count),
            )
            out = jax.tree.map(lambda a: np.asarray(a)[:count], out)
        return out, time.perf_counter() - began


def _make_room() -> None:
    """Forget compiled programs before there is no room for more: each takes hundreds of mappings of memory, and one beyond what Linux allows ends the process."""
    if next(_kernels) % KERNELS == 0:
        used, allowed = _mappings()
        if used > allowed / 2:
            jax.clear_caches()


def _mappings() -> tuple[int, float]:
    """Of this process, and how many it may have."""
    try:
        with open("/proc/self/maps") as maps, open("/proc/sys/vm/max_map_count") as allowed:
            return sum(1 for _ in maps), int(allowed.read())
    except OSError:  # no Linux, or one that does not tell
        return 0, np.inf


# What XLA hands to a library that waits for XLA's own threads: with as many calls as threads, they wait for ever.
_WAITING = frozenset(
    {
        "cholesky",
        "eig",
        "eigh",
        "ffi_call",
        "fft",
        "geqrf",
        "householder_product",
        "lu",
        "qr",
        "schur",
        "svd",
        "triangular_solve",
        "tridiagonal_solve",
    }
)


@cached_by_structure
def _calls_lapack(equation: AbstractEquation) -> bool:
    """Whether F, g, the coefficients or the surrogate factor or transform anything: such programs run one at a time."""
    t, x = (jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in ((), (equation.dim,)))

    def everything(t: Array, x: Array) -> Any:
        key = jax.random.key(0)
        return (
            equation.terminal(x),
            equation.nonlinearity(t, x, t, x, key),
            equation.drift(t, x),
            equation.diffusion(t, x),
        )

    return _holds(jax.make_jaxpr(everything)(t, x).jaxpr)


def _holds(jaxpr: Any) -> bool:
    is_jaxpr = lambda p: isinstance(p, Jaxpr | ClosedJaxpr)
    for equation in jaxpr.eqns:
        if equation.primitive.name in _WAITING:
            return True
        for inner in filter(is_jaxpr, jax.tree.leaves(equation.params, is_leaf=is_jaxpr)):
            if _holds(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner):
                return True
    return False


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Of all kernels. Every row is computed in a thread of it, the first too: JAX's settings may differ from thread to thread."""
    return ThreadPoolExecutor(_cores())


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
