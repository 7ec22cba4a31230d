"""Replicates in this process: one compiled kernel that works through a list of (point, replicate).

The kernel's shapes are those of one replicate at one point; the list has a fixed capacity and a
length that is data. So there is one program per (law, method), whatever the number of points,
replicates, chunks or threads; no result can depend on them, and none of them retraces.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array
from numpy.typing import NDArray

from ..estimators.base import AbstractEstimator
from ..precision import precision
from ..problem import AbstractLaw
from ..structure import once_per_structure
from ..surrogates.base import AbstractSurrogate

CAPACITY = 256
ROUND_SECONDS = 0.2


def point_keys(seed: int, t: NDArray[Any], x: NDArray[Any]) -> NDArray[np.uint32]:
    """The key of each point, a hash of the seed and of its own coordinates: it depends on neither its index nor its company."""
    rows = np.concatenate([t[:, None], x], axis=1) + 0.0  # -0.0 and 0.0 are one point
    prefix = f"scasml {seed} ".encode()
    digests = b"".join(hashlib.blake2b(prefix + row.astype("<f8").tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, "<u4").reshape(-1, 2)


def _loop(f: Callable[[Any], Any], items: Any, count: Any) -> Any:
    """f over the first `count` rows, one after the other; the rest of the output is zero."""
    one = jax.eval_shape(f, jax.tree.map(lambda a: a[0], items))
    capacity = jax.tree.leaves(items)[0].shape[0]
    empty = jax.tree.map(lambda a: jnp.zeros((capacity, *a.shape), a.dtype), one)

    def step(i: Array, out: Any) -> Any:
        row = f(jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), items))
        return jax.tree.map(lambda o, r: jax.lax.dynamic_update_index_in_dim(o, r, i, 0), out, row)

    return jax.lax.fori_loop(0, count, step, empty)


class Row(NamedTuple):
    """One replicate at one point, beside the surrogate's value and slope there.

    They come from one program, so that they speak of one surrogate whatever jit remembers of a function's closure.
    """

    value: Any
    gradient: Any
    increments: Any
    gradient_increments: Any
    surrogate: Any


@eqx.filter_jit
def _replicates(
    law: AbstractLaw,
    surrogate: AbstractSurrogate | None,
    method: AbstractEstimator,
    gradient: bool,
    items: Any,
    count: Any,
) -> Row:
    def one(item: tuple[Array, Array, Array, Array, Array]) -> Row:
        t, x, point, replicate, halved = item
        key = jax.random.fold_in(jax.random.wrap_key_data(point, impl="threefry2x32"), replicate)
        settled = method.halve(halved) if method.discretises(law) else method
        estimate = settled.replicate(law, key, t, x, gradient)
        return Row(*estimate, None if surrogate is None else jax.value_and_grad(surrogate, argnums=1)(t, x))

    return _loop(one, items, count)


@eqx.filter_jit
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
        with precision(arrays[0].dtype):
            out = _each(f, tuple(map(_fill, rows)), np.int32(filled))
            parts.append(jax.tree.map(lambda a, n=filled: np.asarray(a)[:n], out))
    return jax.tree.map(lambda *p: np.concatenate(p), *parts)


def surrogate_at(surrogate: AbstractSurrogate, t: NDArray[Any], x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """u and grad u at every point."""
    return _values(surrogate, t, x)


def terminal_at(law: AbstractLaw, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """g and grad g at every point."""
    return _values(law.terminal, x)


def _values(f: Callable[..., Array], *arrays: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if not len(arrays[0]):  # compile nothing for nobody
        return np.zeros(0), np.zeros((0, arrays[-1].shape[1]))
    return jax.tree.map(lambda a: a.astype(np.float64), at_points(_ValueAndSlope(f), *arrays))


def run_replicates(
    law: AbstractLaw,
    method: AbstractEstimator,
    t: NDArray[Any],
    x: NDArray[Any],
    replicates: range,
    *,
    seed: int,
    gradient: bool,
    surrogate: AbstractSurrogate | None = None,
    chunk: int | None = None,
    halved: bool = False,
) -> Iterator[tuple[int, slice, Row]]:
    """Yields (replicate number, slice of points, rows), every point once per replicate and replicates in order.

    `halved` takes paths that go in steps in half as many, in the same program and on the same noise.

    `chunk` is how many rows one call of the kernel works through; by default as many as take a
    fifth of a second, so that progress shows and an interrupt is heard.
    """
    keys, points = point_keys(seed, t, x), len(t)
    total = points * len(replicates)
    size = chunk or 1

    def call(start: int, stop: int) -> tuple[Row, float]:
        began = time.perf_counter()
        work = np.arange(start, stop)
        p, r = work % points, replicates.start + work // points
        items = (t[p], x[p], keys[p], r.astype(np.uint32), np.full(stop - start, halved))
        with precision(x.dtype):
            out = _replicates(law, surrogate, method, gradient, tuple(map(_fill, items)), np.int32(stop - start))
            out = jax.tree.map(lambda a: np.asarray(a)[: stop - start], out)
        return out, time.perf_counter() - began

    # The first call compiles, in this thread; the others would only wait for it.
    at = min(size, CAPACITY, total)
    yield from _by_replicate(0, at, points, replicates.start, call(0, at)[0])
    workers = 1 if _calls_lapack(law) else _cores()
    pool = ThreadPoolExecutor(workers)
    try:
        while at < total:
            jobs = []
            for _ in range(workers):
                start, at = at, min(at + min(size, CAPACITY), total)
                if at > start:
                    jobs.append((start, at, pool.submit(call, start, at)))
            for start, stop, job in jobs:
                out, seconds = job.result()
                yield from _by_replicate(start, stop, points, replicates.start, out)
                if chunk is None:
                    size = max(1, min(CAPACITY, round((stop - start) * ROUND_SECONDS / max(seconds, 1e-6))))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


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


@once_per_structure
def _calls_lapack(law: AbstractLaw) -> bool:
    """Whether F, g, the coefficients or the surrogate factor or transform anything: such programs run one at a time."""
    t, x = (jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in ((), (law.dim,)))

    def everything(t: Array, x: Array) -> Any:
        key = jax.random.key(0)
        return law.terminal(x), law.nonlinearity(t, x, t, x, key), law.drift(t, x), law.diffusion(t, x)

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


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _by_replicate(start: int, stop: int, points: int, first: int, out: Row) -> Iterator[tuple[int, slice, Row]]:
    at = start
    while at < stop:
        end = min(stop, (at // points + 1) * points)
        where = slice(at % points, at % points + end - at)
        yield first + at // points, where, jax.tree.map(lambda a, lo=at, hi=end: a[lo - start : hi - start], out)
        at = end
