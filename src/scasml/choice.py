"""method="auto": a pilot of a few replicates tells, at each point for itself, what to start from and how many paths of each kind to take.

The work that an error bar of one takes, of paths of variance v_k at c_k operations each, is W = (sum_k sqrt(v_k c_k))^2, with N_k in
proportion to sqrt(v_k/c_k) of them. The variances come from the pilot, the operations from the code: both are the same in every run.
The law of first order about the surrogate is tried first. Where the defect is no small part of the solution the surrogate may be worse than
none, and other things to start from are tried too; the one of the least W is taken.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .budget import Budget
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
# Replicates that a tolerance should take: enough for an error bar, few enough for nets to be large.
REPLICATES = 32
JUMP = "the slopes of F in u or z jump where paths go, and cannot be differentiated along them"
# Paths of a replicate where no tolerance says, and the fewest and the most of each kind.
PATHS, FEWEST, MOST = 128, np.array([32, 32, 2]), np.array([8192, 8192, 1024])


def controls(
    problem: AbstractLaw, law: AbstractLaw, model: AbstractSurrogate | None, hutchinson: Hutchinson | None
) -> list[Control]:
    """What there is to start from: the surrogate, g where paths end (if g is smooth, and F no mere source), nothing. `law` is the problem as simulated."""
    found = [] if model is None else [Control("the surrogate", Defect(law, model, hutchinson), model)]
    if isinstance(problem, Problem) and not problem.is_linear and not terminal_may_be_rough(problem):
        base = wrap(Base(law, directions(law.dim, DRAWS, 0)), law)  # type: ignore[arg-type]
        found.append(Control("g where paths end", Defect(law, base, hutchinson), base))
    return [*found, Control("nothing", law, None)]


def choose(setting: Setting, controls: Sequence[Control]) -> list[Share]:
    """The best of the controls at every point, the first of which is the surrogate if there is one."""
    first, method = controls[0], Linearised()
    jumping = np.zeros(len(setting.t), bool)
    if method.differentiates(setting.problem, setting.gradient):
        jumping = slopes_jump(setting, first)
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
        tried += [_try(setting, other, method, suspects) for other in controls[1:]]
        scores = np.stack([each.score for each in tried])
        best, is_lost = np.argmin(scores, 0), np.isinf(scores.min(0))
        for k, each in enumerate(tried):
            shares += each.shares(setting, np.flatnonzero(is_suspect & ~is_lost & (best == k)), _reason(tried, k))
        lost = np.flatnonzero(is_suspect & is_lost)
        shares += _moved(
            lost, lambda there: _by_picard(there, controls[0], "F is too steep in u to be linearised"), setting
        )
    return shares


def _reason(tried: Sequence["_Tried"], k: int) -> str:
    name = f"started from {tried[k].control.name}"
    if len(tried) == 1:
        return name
    others = [each.control.name for i, each in enumerate(tried) if i != k]
    return f"{name}, which takes less work for one error bar than {' or '.join(others)}"


class _Tried:
    """What the pilot of one control says: `score` is W, and more where the bias would show; infinite where it was not tried."""

    def __init__(self, control: Control, points: int):
        self.control, self.score = control, np.full(points, np.inf)
        self.pilots: list[tuple[Linearised, NDArray[np.int64], Pilot, NDArray[np.int32]]] = []

    def is_suspect(self) -> NDArray[np.bool_]:
        suspect = np.zeros(len(self.score), bool)
        for _, points, run, _ in self.pilots:
            noise = 2 * np.sqrt(np.sum(run.variance, 1) / run.replicates)
            with np.errstate(invalid="ignore"):
                small = np.abs(run.defect) + noise <= SUSPECT * np.abs(run.value)
            suspect[points] = ~(small & np.isfinite(self.score[points]))
        return suspect

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
            least = np.sum(np.sqrt(variance * work), 1)  # the root of W
            counts, stderr = _counts(setting.budget, run.value, variance, work)
            bias = np.nan_to_num(thin.bias(law, run.increments, run.sizes))
            score = least**2 * (1 + (2 * bias / stderr) ** 2)
        nothing = np.zeros(len(here)), np.zeros((len(here), law.dim))
        lost = thin.is_lost(*steepness(law, setting.t[here], setting.x[here], *nothing))
        tried.score[here] = np.where(np.isfinite(score) & ~lost, score, np.inf)
        tried.pilots.append((settled, here, run, counts))
    return tried


def _counts(budget: Budget, value: Floats, variance: Floats, work: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Paths of each kind in a replicate, powers of 2, and the standard error that REPLICATES of them should have."""
    variance = np.maximum(np.nan_to_num(variance), np.finfo(np.float32).tiny)
    share = np.sqrt(variance / work)
    if budget.has_tolerance:
        target = np.maximum(budget.tolerance(value) / 2, np.finfo(np.float32).tiny)
        scale = np.sum(np.sqrt(variance * work), 1) / (REPLICATES * target**2)
    else:
        scale = PATHS / np.max(share[:, :2], 1)
    counts = np.clip(share * np.nan_to_num(scale)[:, None], FEWEST, MOST)
    counts = (2 ** np.round(np.log2(counts))).astype(np.int32)
    return counts, np.sqrt(np.sum(variance / counts, 1) / REPLICATES)
