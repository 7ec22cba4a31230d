"""method="auto": a pilot of a few replicates tells, at each point for itself, what to start from and how many paths of each kind to take.

The work that an error bar of one takes, of paths of variance v_k at c_k operations each, is W = (sum_k sqrt(v_k c_k))^2, with N_k in
proportion to sqrt(v_k/c_k) of them. The variances come from the pilot, the operations from the code: both are the same in every run.
The law of first order about the surrogate is tried first. Where the defect is no small part of the solution the surrogate may be worse than
none, and other things to start from are tried too; the one of the least W is taken. After the deadline nothing more is tried.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .budget import Budget
from .coefficients import Coefficient, diffuse_transposed
from .defect import Defect
from .estimators import Linearised, Picard
from .generator import Hutchinson
from .plan import Control, Pilot, Setting, Share, check, gradients, pilot, plan, slopes_jump, steps
from .problem import AbstractLaw, Problem
from .roughness import terminal_may_be_rough
from .statistics import Floats
from .steepness import steepness
from .surrogate import AbstractSurrogate, wrap
from .surrogates.terminal import DRAWS, Base, directions

# Of the solution: a defect that is larger makes the surrogate suspect.
SUSPECT = 0.1
# Of the standard error that is aimed at: a bias that is larger shows.
SHOWS = 0.25
# Starts from an estimate of one's own, one after the other.
ROUNDS = 3
# More operations than anybody has.
HOPELESS = 1e30
# Of the value: no error bar is smaller in float32.
SMALLEST = 1e-7
# Replicates that a tolerance should take: enough for an error bar, few enough for nets to be large.
REPLICATES = 32
JUMP = "the slopes of F in u or z jump where paths go, and cannot be differentiated along them"
# Paths of a replicate where no tolerance says, and the fewest and the most of each kind.
PATHS, FEWEST, MOST = 128, np.array([32, 32, 2]), np.array([8192, 8192, 1024])


def controls(law: AbstractLaw, model: AbstractSurrogate | None, hutchinson: Hutchinson | None) -> list[Control]:
    """What there is to start from: the surrogate, g where paths end (if g is smooth, and F no mere source), nothing."""
    found = [] if model is None else [Control("the surrogate", Defect(law, model, hutchinson), model)]
    if isinstance(law, Problem) and not law.is_linear and not terminal_may_be_rough(law):
        base = wrap(Base(law, directions(law.dim, DRAWS, 0)), law)
        found.append(Control("g where paths end", Defect(law, base, hutchinson), base))
    return [*found, Control("nothing", law, None)]


def choose(setting: Setting, controls: Sequence[Control]) -> list[Share]:
    """The best of the controls at every point, the first of which is the surrogate if there is one."""
    first, method = controls[0], Linearised()
    jumping = np.zeros(len(setting.t), bool)
    if method.differentiates(setting.problem, setting.gradient):
        jumping = slopes_jump(setting, first)  # before anything dear is compiled
    return [
        *_moved(np.flatnonzero(jumping), lambda there: _by_picard(there, first, JUMP), setting),
        *_moved(np.flatnonzero(~jumping), lambda there: _linearised(there, controls, method), setting),
    ]


def _moved(points: NDArray[np.int64], serve: Callable[[Setting], list[Share]], setting: Setting) -> list[Share]:
    """The shares of these points alone, in the numbers of all."""
    if not len(points):
        return []
    return [replace(share, points=points[share.points]) for share in serve(setting.at(points))]


def _by_picard(setting: Setting, control: Control, why: str) -> list[Share]:
    shares = plan(setting, control, Picard(2, 10))
    return [replace(share, reason=f"Picard from {control.name}, since {why}") for share in shares]


def _linearised(setting: Setting, controls: Sequence[Control], method: Linearised) -> list[Share]:
    check(setting, controls[0], method)
    tried = [_try(setting, controls[0], method, np.arange(len(setting.t)))]
    is_suspect = tried[0].is_suspect()
    sure = f"started from {controls[0].name}, whose defect is a small part of the solution"
    shares = tried[0].shares(setting, np.flatnonzero(~is_suspect), sure)
    suspects = np.flatnonzero(is_suspect)
    if len(suspects):
        for other in controls[1:]:
            if time.monotonic() < setting.deadline:
                tried.append(_try(setting, other, method, suspects))
        for _ in range(ROUNDS):
            tried += _again(setting, tried, method, suspects)
        scores = np.stack([each.score for each in tried])
        best, is_lost = np.argmin(scores, 0), np.isinf(scores.min(0))
        for k, each in enumerate(tried):
            shares += each.shares(setting, np.flatnonzero(is_suspect & ~is_lost & (best == k)), _reason(tried, k))
        lost = np.flatnonzero(is_suspect & is_lost)
        shares += _moved(
            lost, lambda there: _by_picard(there, controls[0], "F is too steep in u to be linearised"), setting
        )
    return shares


class Tangent(eqx.Module):
    """The plane of that value and slope at (t0, x0), at the rate in time that the law has there without curvature: a surrogate of a neighbourhood."""

    law: AbstractLaw
    t0: Coefficient
    x0: Coefficient
    value: Coefficient
    slope: Coefficient

    def __call__(self, t: Array, x: Array) -> Array:
        t0, x0, value, slope = (jnp.asarray(a, x.dtype) for a in (self.t0, self.x0, self.value, self.slope))
        z = diffuse_transposed(self.law.diffusion(t0, x0), slope)
        # Only a source that is estimated draws from a key, and the law here is that of the problem.
        rate = -self.law.drift(t0, x0) @ slope - self.law.nonlinearity(t0, x0, value, z, jax.random.key(0))
        return value + rate * (t - t0) + slope @ (x - x0)


def _again(
    setting: Setting, tried: Sequence["_Tried"], method: Linearised, suspects: NDArray[np.int64]
) -> list["_Tried"]:
    """Where the bias of the best would show, a start from its own estimate: about it the remainder is smaller."""
    further, law = [], setting.problem
    for i in suspects:
        best = min(tried, key=lambda each: each.score[i])
        shows = np.isfinite(best.score[i]) and best.bias[i] > SHOWS * best.stderr[i]
        if not shows or time.monotonic() > setting.deadline:
            continue
        settled, run = best.pilot(i)
        if law.uses_z and not setting.gradient:
            sloped = replace(setting.at(np.array([i])), gradient=True)
            run = pilot(sloped, best.control, settled.settle(steps=settled.fewest_steps), np.zeros(1, np.int64))
        kind = setting.x.dtype
        plane = Tangent(law, setting.t[i], setting.x[i], np.asarray(run.value[0], kind), run.slope[0].astype(kind))
        model = wrap(plane, law)
        further.append(
            _try(setting, Control("its own first estimate", Defect(law, model), model), method, np.array([i]))
        )
    return further


def _reason(tried: Sequence["_Tried"], k: int) -> str:
    name = f"started from {tried[k].control.name}"
    if len(tried) == 1:
        return name
    others = dict.fromkeys(each.control.name for each in tried if each.control.name != tried[k].control.name)
    return f"{name}, which takes less work for one error bar than {' or '.join(others)}"


class _Tried:
    """What the pilot of one control says: `score` is the operations that the error bar takes, and more where the bias would show;
    infinite where it was not tried, or cannot be trusted."""

    def __init__(self, control: Control, points: int):
        self.control, self.score = control, np.full(points, np.inf)
        self.bias, self.stderr = np.zeros(points), np.zeros(points)
        self.pilots: list[tuple[Linearised, NDArray[np.int64], Pilot, NDArray[np.int32]]] = []

    def is_suspect(self) -> NDArray[np.bool_]:
        suspect = np.zeros(len(self.score), bool)
        for _, points, run, _ in self.pilots:
            noise = 2 * np.sqrt(np.sum(run.variance, 1) / run.replicates)
            with np.errstate(invalid="ignore"):
                small = np.abs(run.defect) + noise <= SUSPECT * np.abs(run.value)
            suspect[points] = ~(small & np.isfinite(self.score[points]))
        return suspect

    def pilot(self, point: int) -> tuple[Linearised, Pilot]:
        """Of one point."""
        method, points, run, _ = next(each for each in self.pilots if point in each[1])
        return method, run.at(np.flatnonzero(points == point))

    def shares(self, setting: Setting, mine: NDArray[np.int64], reason: str) -> list[Share]:
        shares = []
        for method, points, run, counts in self.pilots:
            chosen = np.isin(points, mine)
            for each in np.unique(counts[chosen], axis=0):
                at = np.flatnonzero(chosen & (counts == each).all(1))
                settled = method.allot(each)
                shares += steps(setting, self.control, settled, points[at], run.at(at))
        return [replace(share, reason=reason) for share in shares]


def _try(setting: Setting, control: Control, method: Linearised, points: NDArray[np.int64]) -> _Tried:
    tried, law = _Tried(control, len(setting.t)), control.law
    for name, here in gradients(setting, control, method).items():
        here = np.intersect1d(here, points)
        if not len(here):
            continue
        settled = method.settle(gradient=name)
        thin = settled.settle(steps=settled.fewest_steps).thinned()[0]
        run = pilot(setting, control, thin, here)
        work, variance = thin.work(law, setting.gradient), run.variance * thin.counts
        with np.errstate(invalid="ignore", divide="ignore"):
            counts, stderr = _counts(setting.budget, run.value, variance, work)
            least = np.sum(np.sqrt(variance * work), 1) ** 2  # W
            bias = np.nan_to_num(thin.bias(law, run.increments, run.sizes))
            operations = np.maximum(least / stderr**2, REPLICATES * np.sum(FEWEST * work))
            # Where the bias is larger than the error bar that is aimed at, it alone decides.
            score = np.where(bias > stderr, HOPELESS * bias / stderr, operations * (1 + (2 * bias / stderr) ** 2))
        nothing = np.zeros(len(here)), np.zeros((len(here), law.dim))
        lost = thin.is_lost(*steepness(law, setting.t[here], setting.x[here], *nothing))
        if thin.differentiates(setting.problem, setting.gradient):
            lost |= slopes_jump(setting.at(here), control)
        tried.score[here] = np.where(np.isfinite(score) & ~lost, score, np.inf)
        tried.bias[here], tried.stderr[here] = bias, stderr
        tried.pilots.append((settled, here, run, counts))
    return tried


def _counts(budget: Budget, value: Floats, variance: Floats, work: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Paths of each kind in a replicate, powers of 2, and the standard error that is aimed at: of the tolerance, or of REPLICATES of them."""
    variance = np.maximum(np.nan_to_num(variance), np.finfo(np.float32).tiny)
    share = np.sqrt(variance / work)
    target = np.maximum(budget.tolerance(value) / 2, SMALLEST * np.abs(value) + np.finfo(np.float32).tiny)
    if budget.has_tolerance:
        scale = np.sum(np.sqrt(variance * work), 1) / (REPLICATES * target**2)
    else:
        scale = PATHS / np.max(share[:, :2], 1)
    counts = np.clip(share * np.nan_to_num(scale)[:, None], FEWEST, MOST)
    counts = (2 ** np.round(np.log2(counts))).astype(np.int32)
    if budget.has_tolerance:
        return counts, target
    return counts, np.maximum(np.sqrt(np.sum(variance / counts, 1) / REPLICATES), target)
