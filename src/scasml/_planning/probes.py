"""Probes: the smoothness of g and of the slopes of F where paths go.

`gradient_methods` returns the gradient methods that are valid at the points of a task.
`slopes_jump` returns where the slopes of F cannot be differentiated along a path.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.base import AbstractEquation, Solution
from .._equations.smoothness import nonlinearity_may_be_rough, terminal_may_be_rough
from .._support.precision import cast, use_dtype
from ..estimators import AbstractTunable
from ..execution.compilation import AbstractProbe
from ..execution.points import PROBES, stream
from ..execution.steepness import PROBE_STEPS
from ..paths import AbstractPathLaw, Stepped
from .task import Start, Task

# What `classify` returns: g is smooth, has kinks, or has discontinuities.
SMOOTH, KINKS, JUMPS = 0, 1, 2

# Segments of one probe, and bisections of each.
SEGMENTS = 128
BISECTIONS = 30
# Change after bisection over largest value, above which a function counts as discontinuous. A
# Lipschitz function retains about 2^-30 of its change.
JUMP_THRESHOLD = 1e-6


def gradient_methods(
    task: Task, start: Start, estimator: AbstractTunable
) -> dict[str, NDArray[np.int64]]:
    """Return the gradient methods that the points use, each with the indices of its points."""
    names = _gradient_method(task, start, estimator)
    return {str(name): np.flatnonzero(names == name) for name in dict.fromkeys(names)}


def _gradient_method(task: Task, start: Start, estimator: AbstractTunable) -> NDArray[Any]:
    """Return, for each point, the first of "pathwise", "mixed" and "centred" that is valid.

    A path derivative of g misses the contribution of a discontinuity of g, and a second derivative
    that of a kink of g. If the code of g contains no primitive that can make a discontinuity or a
    kink, no probe runs. If the estimator names a method, it is returned for all points.
    """
    equation = task.equation
    if estimator.gradient != "auto":
        return np.full(len(task), estimator.gradient, object)
    order = estimator.derivative_order(equation, task.gradient)
    # With a start, F is part of the residual and is differentiated as often as g. Its kinks then
    # count like those of g. Without a start, F is differentiated once less.
    needs_smooth_f = order >= (3 if start.model is None else 2) and equation.uses_z
    has_kinks = needs_smooth_f and nonlinearity_may_be_rough(equation)
    names = np.full(len(task), "mixed" if has_kinks else "pathwise", object)
    if order > 0 and terminal_may_be_rough(equation):
        smoothness = classify(*_probe(TerminalProbe, equation, task))
        names[smoothness == JUMPS] = "centred"
        names[(smoothness == KINKS) & (order > 1)] = "mixed"
    return names


def slopes_jump(task: Task, start: Start) -> NDArray[np.bool_]:
    """Return where F_u or F_z has a discontinuity between states of paths.

    At these points they cannot be differentiated along a path.
    """
    if not nonlinearity_may_be_rough(task.equation):
        return np.zeros(len(task), bool)
    return _probe(SlopeProbe, start.equation, task) > JUMP_THRESHOLD


def _probe(make: Callable[..., Any], equation: AbstractEquation, task: Task) -> Any:
    """Run the probe `make(equation, paths)` in float64 at every point of the task."""
    double, points = np.dtype(np.float64), task.points
    with use_dtype(double):
        equation, t, x = cast((equation, points.t, points.x), double)
        paths = equation.dynamics.exact or Stepped(
            dynamics=equation.dynamics, scheme="euler", steps=PROBE_STEPS
        )
        return task.executor.map(make(equation, paths), t, x, points.key)


class TerminalProbe(AbstractProbe):
    """The changes of g, and of its slope, that bisection between ends of paths does not remove.

    They are relative to the largest absolute values of g and of its slope.
    """

    equation: AbstractEquation
    paths: AbstractPathLaw

    def __call__(self, s: Array, x: Array, key: Array) -> tuple[Array, Array]:
        equation = self.equation
        end = lambda key: self.paths.jump(key, s, x, equation.horizon - s, False).x
        ends = jax.vmap(end)(jax.random.split(stream(key, PROBES), 2 * SEGMENTS))
        value = lambda a, b, c: equation.terminal(a + c * (b - a))
        slope = lambda a, b, c: jax.jvp(lambda c: value(a, b, c), (c,), (jnp.ones_like(c),))[1]
        return _remaining_change(value, ends), _remaining_change(slope, ends)


class SlopeProbe(AbstractProbe):
    """The relative change of a combination of F_u and F_z that bisection does not remove.

    The segments lie between states of paths at random times. F_u and F_z are evaluated where the
    solution of `equation` is zero.
    """

    equation: AbstractEquation
    paths: AbstractPathLaw

    def __call__(self, s: Array, x: Array, key: Array) -> Array:
        equation = self.equation

        def state(key: Array) -> Array:
            key_path, key_time = jax.random.split(key)
            duration = (equation.horizon - s) * jax.random.uniform(key_time, (), x.dtype)
            end = self.paths.jump(key_path, s, x, duration, False).x
            return jnp.append(end, s + duration)

        def slopes(a: Array, b: Array, c: Array) -> Array:
            state = a + c * (b - a)
            t = state[-1]
            zero = Solution.zero(t, x)
            f = lambda new: equation.difference(t, state[:-1], new, zero)
            of_u, of_z = jax.grad(f)(zero)
            # A combination of the slopes without a symmetry that could hide a discontinuity.
            return of_u + of_z @ jnp.cos(jnp.arange(len(x), dtype=x.dtype))

        states = jax.vmap(state)(jax.random.split(stream(key, PROBES), 2 * SEGMENTS))
        return _remaining_change(slopes, states)


def _remaining_change(f: Callable[[Array, Array, Array], Array], ends: Array) -> Array:
    """Return (largest change of f after bisection) / (largest absolute value of f before).

    A probe takes the segment between two simulated states. It bisects the segment repeatedly toward
    the half in which the function changes more. The change vanishes with the length of the segment,
    unless the function is discontinuous there.

    `f(a, b, c)` is the function at the fraction c of the segment from a to b. `ends`, shape
    (2 SEGMENTS, dimension), holds the first ends of all segments, then their second ends.
    """

    def bisect(a: Array, b: Array) -> tuple[Array, Array]:
        def step(_: Any, segment: tuple[Array, ...]) -> tuple[Array, Array, Array, Array]:
            low, high, at_low, at_high = segment
            middle = (low + high) / 2
            at_middle = f(a, b, middle)
            left = jnp.abs(at_middle - at_low) > jnp.abs(at_high - at_middle)
            return (
                jnp.where(left, low, middle),
                jnp.where(left, middle, high),
                jnp.where(left, at_low, at_middle),
                jnp.where(left, at_middle, at_high),
            )

        zero, one = jnp.zeros(()), jnp.ones(())
        at_a, at_b = f(a, b, zero), f(a, b, one)
        _, _, low, high = jax.lax.fori_loop(0, BISECTIONS, step, (zero, one, at_a, at_b))
        return jnp.abs(high - low), jnp.maximum(jnp.abs(at_a), jnp.abs(at_b))

    change, size = jax.vmap(bisect)(ends[:SEGMENTS], ends[SEGMENTS:])
    return jnp.max(change) / jnp.maximum(jnp.max(size), jnp.finfo(size.dtype).tiny)


def classify(value: NDArray[Any], slope: NDArray[Any]) -> NDArray[np.int64]:
    """Return SMOOTH, KINKS or JUMPS for each point.

    `value` and `slope`, each (points,), are the results of a `TerminalProbe` in float64.
    """
    rough = np.where(slope > JUMP_THRESHOLD, KINKS, SMOOTH)
    return np.where(value > JUMP_THRESHOLD, JUMPS, rough)
