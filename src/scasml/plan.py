"""What "auto" comes to at each point: how z is estimated, and in how many steps a path is taken.

Each choice looks at one point alone, from streams of its own, so it does not depend on the company
the point is in. Points with the same choices share one compiled kernel.
"""

import time
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .budget import Budget
from .coefficients import CONDITION
from .engine import Kernel, at_points, point_keys
from .errors import ArgumentError, listing
from .estimators import AbstractEstimator
from .estimators.base import HALF_THE_STEPS, ORDINARY
from .paths import Stepped
from .precision import cast, precision
from .problem import AbstractLaw
from .roughness import JUMPS, KINKS, Probe, classify, nonlinearity_may_be_rough, terminal_may_be_rough
from .statistics import Floats
from .surrogate import AbstractSurrogate

# Pilot replicates: their streams begin where those of no ordinary replicate ever get to.
PILOT = 2**31
PILOT_REPLICATES, PILOT_SHARE = 4, 8  # at least so many, and one for so many ordinary ones
# Powers of four: points that differ a little then still share a kernel.
FEWEST_STEPS, STEPS_FACTOR, MOST_STEPS = 16, 4, 1024
PROBES = 64


@dataclass(frozen=True)
class Share:
    """The points that one settled estimator serves, and the estimated size of their discretisation bias."""

    estimator: AbstractEstimator
    points: NDArray[np.int64]
    bias: Floats
    gradient_bias: Floats
    pilots: int = 0  # replicates per point of the pilot, each of them run twice


def plan(
    problem: AbstractLaw,
    law: AbstractLaw,
    surrogate: AbstractSurrogate | None,
    estimator: AbstractEstimator,
    t: NDArray[Any],
    x: NDArray[Any],
    *,
    seed: int,
    gradient: bool,
    budget: Budget,
    deadline: float,
) -> list[Share]:
    """Settle the estimator at every point; `law` is the law of defect of the surrogate, or `problem` itself.

    After the deadline, on `time.monotonic`, no more steps are tried.
    """
    _check_states(problem, t, x)
    if estimator.discretises(law):
        _check_paths(problem, t, x)
    names = _gradients(problem, law, estimator, t, x, seed, gradient)
    shares = []
    for name in dict.fromkeys(names):
        points = np.flatnonzero(names == name)
        settled = estimator.settle(gradient=str(name))
        if settled.discretises(law):
            shares += _steps(law, surrogate, settled, t, x, points, seed, gradient, budget, deadline)
        else:
            shares.append(Share(settled, points, np.zeros(len(points)), np.zeros((len(points), x.shape[1]))))
    return shares


def _check_states(problem: AbstractLaw, t: NDArray[Any], x: NDArray[Any]) -> None:
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
    law: AbstractLaw

    def __call__(self, t: Array, x: Array) -> tuple[Array, Array]:
        return self.law.drift(t, x), self.law.diffusion(t, x)


def _check_paths(problem: AbstractLaw, t: NDArray[Any], x: NDArray[Any]) -> None:
    """Refuse coefficients that send paths out of their own domain."""
    ends = at_points(_Ends(problem), t, x, point_keys(0, t, x))
    bad = np.flatnonzero(~np.isfinite(ends).all(axis=(1, 2)))
    if len(bad):
        raise ArgumentError(
            f"drift or diffusion became NaN or infinite along simulated paths from point {listing(bad)}: "
            "define them wherever a path can step, as sqrt(max(v, 0)) for a variance v that may fall below 0."
        )


class _Ends(eqx.Module):
    law: AbstractLaw

    def __call__(self, s: Array, x: Array, key: Array) -> Array:
        paths = Stepped(dynamics=self.law.dynamics, scheme="euler", steps=FEWEST_STEPS)
        keys = jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"), PROBES)
        return jax.vmap(lambda key: paths.jump(key, s, x, self.law.horizon - s, False).x)(keys)


def _gradients(
    problem: AbstractLaw,
    law: AbstractLaw,
    estimator: AbstractEstimator,
    t: NDArray[Any],
    x: NDArray[Any],
    seed: int,
    gradient: bool,
) -> NDArray[Any]:
    """The first of path derivatives, path derivatives of g and the residual alone, and weights that is right at each point."""
    if estimator.gradient != "auto":
        return np.full(len(t), estimator.gradient, object)
    order = estimator.derivatives(problem, gradient)
    # With a surrogate F stands in the residual, and is differentiated as often as g; without one, once less.
    kinks = order >= (3 if law is problem else 2) and problem.uses_z and nonlinearity_may_be_rough(problem)
    names = np.full(len(t), "mixed" if kinks else "pathwise", object)
    if order > 0 and terminal_may_be_rough(problem):
        double = np.dtype(np.float64)
        with precision(double):
            law64, ts, xs = cast((problem, t, x), double)
            paths = law64.dynamics.exact or Stepped(dynamics=law64.dynamics, scheme="euler", steps=FEWEST_STEPS)
            rough = classify(*at_points(Probe(law64, paths), ts, xs, point_keys(seed, t, x)))
        names[rough == JUMPS] = "centred"
        names[(rough == KINKS) & (order > 1)] = "mixed"
    return names


def _steps(
    law: AbstractLaw,
    surrogate: AbstractSurrogate | None,
    estimator: AbstractEstimator,
    t: NDArray[Any],
    x: NDArray[Any],
    points: NDArray[np.int64],
    seed: int,
    gradient: bool,
    budget: Budget,
    deadline: float,
) -> list[Share]:
    """Fine and coarse paths, coupled, tell the bias at each number of steps; "auto" goes on until it is below half a standard error."""
    asked = estimator.steps
    waiting = {FEWEST_STEPS if asked == "auto" else asked: points}
    shares = []
    while waiting:
        steps = min(waiting)
        points = waiting.pop(steps)
        settled = estimator.settle(steps=steps)
        pilot = _pilot(law, surrogate, settled, t[points], x[points], seed, gradient, budget)
        excess = pilot.bias / (0.5 * pilot.stderr)
        enough = ~(excess > 1) | (steps >= MOST_STEPS) | (asked != "auto")  # a NaN will not mend by more steps
        enough |= time.monotonic() > deadline
        shares.append(Share(settled, points[enough], pilot.bias[enough], pilot.gradient_bias[enough], pilot.replicates))
        # The bias falls as 1/steps: go where it should be small enough, and look again.
        for point, times in zip(points[~enough], excess[~enough], strict=True):
            leaps = max(1, int(np.ceil(np.log(times) / np.log(STEPS_FACTOR))))
            to = min(steps * STEPS_FACTOR**leaps, MOST_STEPS)
            waiting[to] = np.append(waiting.get(to, np.zeros(0, np.int64)), point)
    return [share for share in shares if len(share.points)]


@dataclass(frozen=True)
class _Pilot:
    bias: Floats
    gradient_bias: Floats
    stderr: Floats  # what the whole budget should come to
    replicates: int


def _pilot(
    law: AbstractLaw,
    surrogate: AbstractSurrogate | None,
    estimator: AbstractEstimator,
    t: NDArray[Any],
    x: NDArray[Any],
    seed: int,
    gradient: bool,
    budget: Budget,
) -> _Pilot:
    count = max(PILOT_REPLICATES, (budget.replicates or 0) // PILOT_SHARE)
    kernel = Kernel(law, estimator, t, x, seed=seed, gradient=gradient, surrogate=surrogate)
    base = np.zeros(len(t))

    def run(version: int) -> tuple[Floats, Floats]:
        values, slopes = np.zeros((count, len(t))), np.zeros((count, *x.shape))
        point, replicate = np.tile(np.arange(len(t)), count), np.repeat(np.arange(count), len(t))
        for part, row in kernel.run(point, PILOT + replicate, np.full(len(point), version)):
            values[replicate[part], point[part]] = row.value
            if row.surrogate is not None:
                base[point[part]] = row.surrogate[0]
            if gradient:
                slopes[replicate[part], point[part]] = row.gradient
        return values, slopes

    (fine, fine_slope), (coarse, coarse_slope) = run(ORDINARY), run(HALF_THE_STEPS)
    # Weak order one: halving the steps doubles the bias, so what it changes is the bias.
    with np.errstate(invalid="ignore"):  # a NaN is an outcome here, reported in the status
        size = lambda a: np.abs(a.mean(0)) + a.std(0, ddof=1) / np.sqrt(count)
        stderr = budget.expected_stderr(base + fine.mean(0), fine.std(0, ddof=1), kernel.seconds_per_row * len(t))
        return _Pilot(size(fine - coarse), size(fine_slope - coarse_slope), stderr, count)
