"""A program: one replicate of one estimator for one equation, compiled once and run for many rows.

A `Program` maps one row (point, random key, replicate number, variant, samples) to the replicate of
that row. `compute` runs it for all rows, and compiles it first if necessary.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._equations.base import AbstractEquation
from .._equations.surrogate import AbstractSurrogate
from ..estimators import AbstractEstimator, Replicate, Tuning
from .compilation import prepare
from .points import stream


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
    samples: Any  # (rows, increments); None if the estimator fixes them
    level: Any = None  # (rows,), int32: the base level; None if the estimator has none

    def __len__(self) -> int:
        return len(self.t)

    def at(self, rows: Any) -> "Rows":
        """Return a subset of the rows; `rows` is a slice, a mask or an array of indices."""
        return jax.tree.map(lambda a: a[rows], self)


class Replicates(NamedTuple):
    """The outputs of a program: one replicate per row.

    All fields but `surrogate` are those of `Replicate` with a leading axis of rows. Value, gradient
    and increments are relative to the surrogate, whatever the start of the program is. Without a
    surrogate they are those of the solution.
    """

    value: Any
    gradient: Any
    increments: Any
    gradient_increments: Any
    sizes: Any
    telescoping: Any
    square: Any
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
        self.tuning = Tuning(tuning.gradient, tuning.steps)
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
        key = stream(jnp.asarray(row.key), row.replicate)
        tuning = self.tuning.with_samples(row.samples, row.level)
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


def compute(program: Program, rows: Rows) -> Replicates:
    """Run a program for all rows in this thread.

    This is what a worker process of an executor calls.
    """
    return prepare(program, rows, rows.x.dtype).in_blocks(rows)
