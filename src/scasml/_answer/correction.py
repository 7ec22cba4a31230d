"""The answer of `correct`: values, error bars, their cost, and why each point stopped."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._equations.problem import Problem
from .._io import plots, tables
from .._support.errors import ArgumentError
from ..estimators import AbstractEstimator
from ..execution.intervals import LEVEL, half_width
from ..execution.rounds import Round
from ..execution.stopping import StoppingRule
from . import text
from .diagnosis import Diagnosis, diagnose
from .levels import Levels, Tails
from .records import Choices, Cost, Preparation
from .status import STATUSES, Status


@dataclass(frozen=True, repr=False, eq=False)
class Correction:
    """Corrected values at the points asked for.

    Arrays are NumPy arrays of shape (points,). Those of `x` and of gradients have shape
    (points, d). If the call passed a single point without an axis of points, they have no such axis
    either. A `Correction` is a pytree of its arrays; the other attributes are static.

    - `raw_value` is the estimate of u. `surrogate_value` is u of the surrogate, 0 without one.
    - `value` is `surrogate_value` plus the fraction `kept_share` of the raw correction
      `raw_value - surrogate_value`. With `safe=False` the fraction is 1.
    - `correction` is `value - surrogate_value`.
    - `stderr` is the standard error of the raw value over replicates.
    - `bias` is the estimated size of all other error, NaN where it is unknown.
    - `gradient` is the estimate of grad u, which is never shrunk. `gradient_stderr` and
      `gradient_bias` are its errors. All three are None if no gradient was requested.
    - `replicates` is the number of replicates of each point, 0 where t = T.
    - `steps` is the number of steps of a path, 0 for paths that were drawn exactly. For
      `Linearised` it is that of the base level.
    - `gradient_method` is the method that estimated the gradient, such as "pathwise". It is "exact"
      where t = T. All of it is None if no gradient was requested.
    - `choices` says which start, estimator and tuning served which points. It prints as a table of
      all candidates of `method="auto"`, with the figures by which they were compared.
    - `history`, `levels` and `tails` are statistics of the run for plots and for `diagnose`.
    """

    t: Any
    x: Any
    value: Any
    stderr: Any
    surrogate_value: Any
    correction: Any
    raw_value: Any
    kept_share: Any
    bias: Any
    gradient: NDArray[Any] | None
    gradient_stderr: NDArray[Any] | None
    gradient_bias: NDArray[Any] | None
    status_code: Any  # the `Status.code` of each point
    replicates: Any
    steps: Any
    gradient_method: Any = field(metadata={"static": True})
    cost: Cost = field(metadata={"static": True})
    method: AbstractEstimator | Literal["auto"] = field(metadata={"static": True})
    problem: AbstractEquation = field(metadata={"static": True})
    has_surrogate: bool = field(metadata={"static": True})
    rule: StoppingRule = field(metadata={"static": True})
    stopped: str = field(metadata={"static": True})  # what ended the run, in words
    history: tuple[Round, ...] = field(metadata={"static": True})
    levels: tuple[Levels, ...] = field(metadata={"static": True})
    tails: Tails = field(metadata={"static": True})
    choices: Choices = field(default=Choices(), metadata={"static": True})
    preparation: Preparation | None = field(default=None, metadata={"static": True})

    @property
    def status(self) -> Any:
        """Why each point stopped: a `Status`, or an object array of them for several points."""
        codes = np.asarray(self.status_code)
        if codes.ndim == 0:
            return STATUSES[int(codes)]
        found = np.empty(codes.shape, object)
        found[:] = [STATUSES[code] for code in codes]
        return found

    @property
    def statuses(self) -> NDArray[Any]:
        """`status` as an array of shape (points,), with one entry for a single point."""
        return np.atleast_1d(np.asarray(self.status, object))

    def interval(self, level: float = 0.95, include_bias: bool = True) -> tuple[Any, Any]:
        """Return both ends of the Student t confidence interval of u, widened by the bias.

        The interval is centred at `raw_value`, also with `safe=True`. The shrunk `value` may
        therefore lie away from its centre.

        **Arguments:**

        - `level`: the probability that the interval covers u, in (0, 1). Any other number raises
          `ArgumentError`.
        - `include_bias`: whether the bias widens the interval. An unknown bias counts as 0.
        """
        is_number = isinstance(level, int | float | np.number) and not isinstance(level, bool)
        if not is_number or not 0 < float(level) < 1:
            raise ArgumentError(
                f"level must be between 0 and 1, got {level!r}: pass 0.95 for a 95 % interval."
            )
        half = self.half_width(float(level), include_bias)
        return self.raw_value - half, self.raw_value + half

    def half_width(self, level: float = LEVEL, include_bias: bool = True) -> Any:
        """Return half the width of `interval(level, include_bias)`.

        It is NaN where a single replicate gives no standard error.
        """
        bias = self.bias if include_bias else 0.0
        return half_width(level, self.replicates, self.stderr, bias)[()]

    @property
    def missed(self) -> NDArray[np.int64]:
        """The indices of the points that are `unmet`."""
        return np.flatnonzero(np.atleast_1d(self.unmet))

    @property
    def unmet(self) -> NDArray[np.bool_]:
        """Whether each point lacks the answer that was requested, (points,).

        Such a point missed a requested tolerance, has no finite answer, or met the tolerance with
        an unknown bias (unless the surrogate was kept).
        """
        fine = [Status.CONVERGED, Status.KEPT_SURROGATE]
        if not self.rule.has_tolerance:
            fine += [Status.BUDGET_EXHAUSTED, Status.INTERRUPTED, Status.OVER_TIME]
        return ~np.isin(np.atleast_1d(self.status_code), [status.code for status in fine])

    def diagnose(self) -> Diagnosis:
        """Return what is wrong and what to do, in plain words, and a table of the increments."""
        return diagnose(self)

    def exact(self) -> Any:
        """Return the reference solution at the same points; None if the problem has none."""
        if isinstance(self.problem, Problem) and self.problem.reference is not None:
            return self.problem.exact(self.t, self.x)
        return None

    def save(self, path: str | Path) -> None:
        """Write all columns to a .csv, .npy (one record per point) or .npz (one array each) file.

        Raises `FileError` if the file cannot be written.
        """
        tables.write(path, self.columns(gradient=True))

    def columns(self, gradient: bool = False) -> dict[str, NDArray[Any]]:
        """Return every quantity by name, as arrays of shape (points,), or (points, d) for x.

        With `gradient=True`, the gradient, its standard error and its bias are included if they
        were estimated. They have shape (points, d).
        """
        lower, upper = self.interval(LEVEL)
        columns: dict[str, Any] = {
            "t": self.t,
            "x": np.atleast_2d(self.x),
            "value": self.value,
            "stderr": self.stderr,
            "lower95": lower,
            "upper95": upper,
            "surrogate": self.surrogate_value,
            "correction": self.correction,
            "raw_value": self.raw_value,
            "kept_share": self.kept_share,
            "bias": self.bias,
            "replicates": self.replicates,
            "steps": self.steps,
            "status": np.array([str(status) for status in self.statuses], object),
        }
        if gradient and self.gradient is not None:
            for name in ("gradient", "gradient_stderr", "gradient_bias"):
                columns[name] = np.atleast_2d(getattr(self, name))
        return {name: np.atleast_1d(column) for name, column in columns.items()}

    def to_xarray(self) -> Any:
        """Return an `xarray.Dataset` with dimensions "point" and "axis". Needs the extra `io`."""
        attributes = {"stopped": self.stopped, "method": str(self.method)}
        return tables.to_xarray(self.columns(gradient=True), attributes)

    def plot(self, ax: Any = None) -> Any:
        """Plot the surrogate, the corrected value with its 95 % interval, and the exact value.

        Needs the extra `plot`. Returns the axes.
        """
        exact = self.exact()
        return plots.correction(
            value=np.atleast_1d(self.value),
            interval=tuple(np.atleast_1d(end) for end in self.interval(LEVEL)),
            surrogate=np.atleast_1d(self.surrogate_value) if self.has_surrogate else None,
            exact=None if exact is None else np.atleast_1d(exact),
            ax=ax,
        )

    def plot_convergence(self, ax: Any = None) -> Any:
        """Plot half of the 95 % interval after every round, and the 1/sqrt(N) line.

        Needs the extra `plot`. Returns the axes. Raises `ArgumentError` if no point was simulated.
        """
        if not self.history:
            raise ArgumentError(
                "history is empty, got no replicates at any point: "
                "ask for points before the horizon."
            )
        columns = (np.array(column) for column in zip(*self.history, strict=True))
        replicates, _, median, worst, bias = columns
        return plots.convergence(
            replicates=replicates, median=median, worst=worst, bias=bias, ax=ax
        )

    def __str__(self) -> str:
        summary = text.one_line(self) if np.ndim(self.value) == 0 else text.table(self)
        return summary if self.preparation is None else f"{summary}\n{self.shares()}"

    __repr__ = __str__

    def shares(self) -> str:
        """Return, in words, the times for making the surrogate and for correcting it."""
        if (made := self.preparation) is None:
            return "corrected only"
        share = 100 * made.seconds / (made.seconds + self.cost.seconds)
        return (
            f"{made.verb} a {made.surrogate.kind} in {made.seconds:.1f} s ({share:.0f} %), "
            f"corrected it in {self.cost.seconds:.1f} s ({100 - share:.0f} %)"
        )


class _Static:
    """The attributes of an answer that are not arrays. Two of these are equal if identical."""

    def __init__(self, values: dict[str, Any]):
        self.values = values


_STATIC = [each.name for each in fields(Correction) if each.metadata.get("static")]
_ARRAYS = [each.name for each in fields(Correction) if each.name not in _STATIC]


def _flatten(answer: Correction) -> tuple[list[Any], _Static]:
    arrays = [getattr(answer, name) for name in _ARRAYS]
    return arrays, _Static({name: getattr(answer, name) for name in _STATIC})


def _unflatten(static: _Static, arrays: Any) -> Correction:
    return Correction(**dict(zip(_ARRAYS, arrays, strict=True)), **static.values)


jax.tree_util.register_pytree_node(Correction, _flatten, _unflatten)


def with_preparation(answer: Correction, preparation: Preparation) -> Correction:
    """Return the answer of `correct` with the preparation of its surrogate by `solve`."""
    return replace(answer, preparation=preparation)
