"""What an estimator leaves to "auto" at each point: how z is estimated, in how many steps a path is taken, how many samples of each increment.

Each choice looks at one point alone. Points with the same choices share one compiled kernel.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import AbstractEquation
from .._equations.smoothness import (
    JUMPS,
    KINKS,
    REMAINS,
    Probe,
    SlopeProbe,
    classify,
    may_have_kinks,
    nonlinearity_may_be_rough,
    terminal_may_be_rough,
)
from .._support.errors import ArgumentError, listing
from .._support.precision import cast, use_dtype
from .._support.tracing import cached_by_structure
from ..estimators import AbstractEstimator
from ..execution import at_points, point_keys
from ..execution.moments import Floats
from ..execution.steepness import steepness_at
from ..paths import Stepped
from ..paths.coefficients import CONDITION
from .allocation import COUNTED_ON, Allocation, allocate
from .pilots import pilot, steps
from .task import Control, Setting, Share

# Of the paths that only look where paths go.
PROBE_STEPS = 16
PROBES = 64
# What an increment adds is known from a pilot to so many standard errors.
SURE = 6.0


def plan(setting: Setting, control: Control, estimator: AbstractEstimator) -> list[Share]:
    """Settle the estimator at every point."""
    check(setting, control, estimator)
    shares = []
    for name, points in gradients(setting, control, estimator).items():
        settled = estimator.settle(gradient=name)
        if settled.is_allotted:
            shares += steps(setting, control, settled, points)
        else:
            shares += Trial(setting, control, settled, points).shares(points)
    return shares


class Trial:
    """A pilot of an estimator at these points, with its fewest steps, and how many samples of each increment are to be taken."""

    def __init__(
        self,
        setting: Setting,
        control: Control,
        estimator: AbstractEstimator,
        points: NDArray[np.int64],
    ):
        equation, adds = control.equation, None
        self.setting, self.control, self.estimator, self.points = (
            setting,
            control,
            estimator,
            points,
        )
        undecided = estimator.steps == "auto" and estimator.discretises(equation)
        self.thin = thin = estimator.settle(
            steps=estimator.fewest_steps if undecided else None
        ).thinned()[0]
        self.run = run = pilot(setting, control, thin, points)
        # At what was started from, as in a tally; at the estimate where that is nothing.
        at = np.zeros(len(points)), np.zeros((len(points), equation.dim))
        if control.model is None and setting.surrogate is None:
            at = run.value, run.slope
        self.is_lost = thin.is_lost(
            *steepness_at(equation, setting.t[points], setting.x[points], *at)
        )
        with np.errstate(invalid="ignore"):
            noise = np.sqrt(run.variance / run.replicates)
            # Of the levels; so few replicates may see too little of the last.
            last = np.arange(noise.shape[1]) == noise.shape[1] - 1
            self.bias = control.doubt * thin.bias(
                equation, np.abs(run.increments) + noise * last, run.sizes
            )
            # The slope of an increment is not weighed against anything, so with gradients every one is taken; and behind a kink
            # there may be more than so few samples see.
            if not setting.gradient and not may_have_kinks(equation):
                adds = np.abs(run.increments) + SURE * noise + self.bias[:, None]
                adds[self.is_lost] = np.nan
        # The posterior mean of a variance that so few replicates tell, under Jeffreys' prior: too small a guess costs more than too large a one.
        unsure = (run.replicates - 1) / (run.replicates - 3)
        self.work, variance = (
            _work(thin, equation, setting.gradient),
            unsure * run.variance * thin.counts,
        )
        rate = COUNTED_ON if thin.sampling == "rqmc" else 1.0
        self.allocation: Allocation = allocate(
            setting.budget, thin.bounds, self.work, run.value, variance, adds, rate
        )

    def shares(self, points: NDArray[np.int64]) -> list[Share]:
        """Of those of these points that were tried."""
        allocation, at = self.allocation, np.flatnonzero(np.isin(self.points, points))
        if not len(at):
            return []
        left_out, work = np.zeros(len(self.setting.t)), np.zeros(len(self.setting.t))
        left_out[self.points] = allocation.left_out
        work[self.points] = np.where(self.bias <= allocation.stderr, allocation.work, np.inf)
        settled = self.estimator.allot(allocation.counts[at])
        shares = steps(self.setting, self.control, settled, self.points[at], self.run.at(at))
        return [self._told(share, left_out[share.points], work[share.points]) for share in shares]

    def _told(self, share: Share, left_out: Floats, work: Floats) -> Share:
        """With what is left out, and the work, of paths of as many steps as they came to."""
        more = np.sum(
            _work(share.estimator, self.control.equation, self.setting.gradient)
        ) / np.sum(self.work)
        return replace(share, left_out=left_out, work=more * work)


@cached_by_structure
def _work(estimator: AbstractEstimator, equation: AbstractEquation, gradient: bool) -> Floats:
    return estimator.work(equation, gradient)


def check(setting: Setting, control: Control, estimator: AbstractEstimator) -> None:
    """Refuse states that no path can start from, and coefficients that no path survives."""
    _check_states(setting.problem, setting.t, setting.x)
    if estimator.discretises(control.equation) and setting.problem.dynamics.exact is None:
        _check_paths(setting.problem, setting.t, setting.x)


def _check_states(problem: AbstractEquation, t: NDArray[Any], x: NDArray[Any]) -> None:
    """Refuse states at which the coefficients are not finite, or sigma is singular."""
    if problem.dynamics.constant_diffusion is not None and problem.dynamics.exact is not None:
        return  # they were checked when they were built
    drift, diffusion = (a.astype(np.float64) for a in at_points(_Coefficients(problem), t, x))
    for argument, array in (("drift", drift), ("diffusion", diffusion)):
        bad = np.flatnonzero(~np.isfinite(array.reshape(len(t), -1)).all(axis=1))
        if len(bad):
            raise ArgumentError(
                f"x is outside the domain of {argument}(t, x), which is not finite at point {listing(bad)}: "
                "pass states where it is defined (a variance below 0 is not), or mend it."
            )
    if diffusion.ndim == 3:
        # Rows may be of very different sizes, as prices are: only their directions matter.
        size = np.linalg.norm(diffusion, axis=2, keepdims=True)
        singular_values = np.linalg.svd(diffusion / np.where(size > 0, size, 1.0), compute_uv=False)
        singular = singular_values[:, -1] < CONDITION * singular_values[:, 0]
        singular |= (size == 0).any(axis=(1, 2))
    else:
        singular = (diffusion.reshape(len(t), -1) == 0).any(axis=1)
    bad = np.flatnonzero(singular)
    if len(bad):
        raise ArgumentError(
            f"x must be a state where diffusion(t, x) is invertible, got a singular one at point {listing(bad)}: "
            "z = sigma^T grad u determines the gradient only then; move the point, or give every direction some noise."
        )


class _Coefficients(eqx.Module):
    equation: AbstractEquation

    def __call__(self, t: Array, x: Array) -> tuple[Array, Array]:
        return self.equation.drift(t, x), self.equation.diffusion(t, x)


def _check_paths(problem: AbstractEquation, t: NDArray[Any], x: NDArray[Any]) -> None:
    """Refuse coefficients that send paths out of their own domain."""
    ends = at_points(_Ends(problem), t, x, point_keys(0, t, x))
    bad = np.flatnonzero(~np.isfinite(ends).all(axis=(1, 2)))
    if len(bad):
        raise ArgumentError(
            f"drift or diffusion became NaN or infinite along simulated paths from point {listing(bad)}: "
            "define them wherever a path can step, as sqrt(max(v, 0)) for a variance v that may fall below 0."
        )


class _Ends(eqx.Module):
    equation: AbstractEquation

    def __call__(self, s: Array, x: Array, key: Array) -> Array:
        paths = Stepped(dynamics=self.equation.dynamics, scheme="euler", steps=PROBE_STEPS)
        keys = jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"), PROBES)
        return jax.vmap(lambda key: paths.jump(key, s, x, self.equation.horizon - s, False).x)(keys)


def gradients(
    setting: Setting, control: Control, estimator: AbstractEstimator
) -> dict[str, NDArray[np.int64]]:
    """How z is estimated, and the points at which it is so."""
    names = _gradients(setting, control, estimator)
    return {str(name): np.flatnonzero(names == name) for name in dict.fromkeys(names)}


def _gradients(setting: Setting, control: Control, estimator: AbstractEstimator) -> NDArray[Any]:
    """The first of path derivatives, path derivatives of g and the residual alone, and weights that is right at each point."""
    problem, t, gradient = setting.problem, setting.t, setting.gradient
    if estimator.gradient != "auto":
        return np.full(len(t), estimator.gradient, object)
    order = estimator.derivatives(problem, gradient)
    # With a surrogate F stands in the residual, and is differentiated as often as g; without one, once less.
    kinks = (
        order >= (3 if control.model is None else 2)
        and problem.uses_z
        and nonlinearity_may_be_rough(problem)
    )
    names = np.full(len(t), "mixed" if kinks else "pathwise", object)
    if order > 0 and terminal_may_be_rough(problem):
        rough = classify(*_probe(Probe, problem, setting))
        names[rough == JUMPS] = "centred"
        names[(rough == KINKS) & (order > 1)] = "mixed"
    return names


def slopes_jump(setting: Setting, control: Control) -> NDArray[np.bool_]:
    """Where the slopes of F in u and z jump between states of paths: there they cannot be differentiated along one."""
    if not nonlinearity_may_be_rough(setting.problem):
        return np.zeros(len(setting.t), bool)
    return _probe(SlopeProbe, control.equation, setting) > REMAINS


def _probe(kind: Callable[..., Any], equation: AbstractEquation, setting: Setting) -> Any:
    """In float64, at every point."""
    double = np.dtype(np.float64)
    with use_dtype(double):
        law64, ts, xs = cast((equation, setting.t, setting.x), double)
        paths = law64.dynamics.exact or Stepped(
            dynamics=law64.dynamics, scheme="euler", steps=PROBE_STEPS
        )
        return at_points(kind(law64, paths), ts, xs, point_keys(setting.seed, setting.t, setting.x))
