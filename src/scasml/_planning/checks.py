"""Checks of the coefficients at the points and along probe paths, before any pilot."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.base import AbstractEquation
from .._support.errors import ArgumentError, listing
from ..execution.compilation import AbstractProbe
from ..execution.points import PROBES, stream
from ..execution.steepness import PROBE_PATHS, PROBE_STEPS
from ..paths import Stepped
from ..paths.coefficients import CONDITION
from .task import Task


def refuse(task: Task, is_discretised: bool) -> None:
    """Raise `ArgumentError` if the coefficients are not finite, or sigma is singular, at a point.

    Points are checked unless sigma is constant and X has an exact path law: such coefficients were
    checked when the problem was built. Probe paths are checked if `is_discretised`, which says that
    paths are simulated in steps, and X has no exact path law.
    """
    dynamics = task.equation.dynamics
    if dynamics.constant_diffusion is None or dynamics.exact is None:
        _check_states(task)
    if is_discretised and dynamics.exact is None:
        _check_paths(task)


def _check_states(task: Task) -> None:
    """Refuse points at which the coefficients are not finite, or sigma is singular."""
    points, count = task.points, len(task)
    coefficients = task.executor.map(_Coefficients(task.equation), points.t, points.x)
    drift, diffusion = (a.astype(np.float64) for a in coefficients)
    for argument, array in (("drift", drift), ("diffusion", diffusion)):
        bad = points.index[~np.isfinite(array.reshape(count, -1)).all(axis=1)]
        if len(bad):
            raise ArgumentError(
                f"x is outside the domain of {argument}(t, x), which is not finite at point "
                f"{listing(bad)}: pass states where it is defined (a variance below 0 is not), "
                f"or correct {argument}."
            )
    bad = points.index[_is_singular(diffusion)]
    if len(bad):
        raise ArgumentError(
            "x must be a state where diffusion(t, x) is invertible, got a singular one at point "
            f"{listing(bad)}: z = sigma^T grad u determines the gradient only then; "
            "move the point, or give every direction some noise."
        )


def _is_singular(diffusion: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask, (points,), of the points at which sigma is singular.

    `diffusion` has shape (points, d, d), (points, d) for diagonals, or (points,) for numbers. A
    number or a diagonal is singular if it has a zero. A matrix is singular if, after its rows are
    scaled to length 1, the ratio of its smallest to its largest singular value is below CONDITION.
    """
    if diffusion.ndim < 3:
        return (diffusion.reshape(len(diffusion), -1) == 0).any(axis=1)
    # Rows may differ in size, as prices do. Only their directions matter.
    size = np.linalg.norm(diffusion, axis=2, keepdims=True)
    directions = diffusion / np.where(size > 0, size, 1.0)
    singular_values = np.linalg.svd(directions, compute_uv=False)
    singular = singular_values[:, -1] < CONDITION * singular_values[:, 0]
    return singular | (size == 0).any(axis=(1, 2))


class _Coefficients(AbstractProbe):
    equation: AbstractEquation

    def __call__(self, t: Array, x: Array) -> tuple[Array, Array]:
        return self.equation.drift(t, x), self.equation.diffusion(t, x)


def _check_paths(task: Task) -> None:
    """Refuse coefficients that are not defined where simulated paths go."""
    points = task.points
    ends = task.executor.map(_Ends(task.equation), points.t, points.x, points.key)
    bad = points.index[~np.isfinite(ends).all(axis=(1, 2))]
    if len(bad):
        raise ArgumentError(
            "drift or diffusion became NaN or infinite along simulated paths from point "
            f"{listing(bad)}: define them wherever a path can step, as sqrt(max(v, 0)) for a "
            "variance v that may fall below 0."
        )


class _Ends(AbstractProbe):
    """The ends of probe paths from one point, shape (paths, d)."""

    equation: AbstractEquation

    def __call__(self, s: Array, x: Array, key: Array) -> Array:
        paths = Stepped(dynamics=self.equation.dynamics, scheme="euler", steps=PROBE_STEPS)
        keys = jax.random.split(stream(key, PROBES), PROBE_PATHS)
        end = lambda key: paths.jump(key, s, x, self.equation.horizon - s, False).x
        return jax.vmap(end)(keys)
