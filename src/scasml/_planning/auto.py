"""method="auto": a pilot of a few replicates tells, at each point for itself, what to start from and how many paths of each kind to take.

Starts are tried in the order of what their pilots take: the problem itself as a rule, g where paths end, the surrogate. Where one takes no more work than
a few pilots of the next, that is all. The last of them is kept where its defect is a small part of the solution and there is not much to do; else it may be worse
than none, and all of them are tried. The one whose `allocation` takes the least work
is taken. After the deadline nothing more is tried.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.defect import Defect
from .._equations.generator import Hutchinson
from .._equations.problem import AbstractEquation, Problem
from .._equations.smoothness import terminal_may_be_rough
from .._support.tracing import cached_by_structure
from ..estimators import AbstractEstimator, Linearised, Picard
from ..estimators.base import ORDINARY
from ..execution import surrogate_at
from ..execution.moments import Floats
from ..execution.stopping import FIRST
from ..paths.coefficients import Coefficient, diffuse_transposed
from ..surrogates.terminal import turned
from ..surrogates.wrapping import AbstractSurrogate, wrap
from .allocation import REPLICATE
from .pilots import PILOT, STEPS_FACTOR, Pilot, pilot, times_more_steps
from .task import Control, Setting, Share
from .tuning import SURE, Trial, check, gradients, plan, slopes_jump

# Of the solution: a defect that is larger makes the surrogate suspect; and so do so many operations before it that other programs are worth compiling:
# a network fitted at few points may have a small defect and a residual of many times that, of either sign.
SUSPECT, MUCH = 0.1, 5e9
# Of the solution: what is missing of it where a surrogate is not tried before what costs less.
USELESS = 0.15
# A pilot is worth running where there is so many times its work to do.
WORTH = 4.0
# A start is taken at once where it takes so many times the least that the next would take: its pilot, and the fewest replicates of the fewest paths.
AT_ONCE = 4.0
# Of the standard error that is aimed at: a bias that is larger shows.
SHOWS = 0.25
# A plane leaves out the curvature of the solution, which paths see more of than the levels tell: its bias was up to twice what they did.
DOUBT = 2.0
# Starts from an estimate of one's own, one after the other.
ROUNDS = 3
# Steps of a pilot where fewer are too few, at most.
MOST_FINER = 128
# Replicates of a pilot where what it says of the bias decides; and of a second look, at starts that seem so many times dearer than the best, at most.
SURER, SECOND, NEARLY = 64, 16, 10.0
# More operations than anybody has.
HOPELESS = 1e30
CHEAP = "which takes less work than to try anything else"
JUMP = "the slopes of F in u or z jump where paths go, and cannot be differentiated along them"


def given(
    equation: AbstractEquation, model: AbstractSurrogate | None, hutchinson: Hutchinson | None
) -> Control:
    """What an estimator that was asked for starts from: the surrogate, or nothing if there is none."""
    if model is None:
        return Control("nothing", equation, None)
    return Control("the surrogate", Defect(equation, model, hutchinson), model)


def controls(
    equation: AbstractEquation, model: AbstractSurrogate | None, hutchinson: Hutchinson | None
) -> list[Control]:
    """What there is to start from: the surrogate, g where paths end (if g is smooth, and F no mere source), nothing."""
    found = [] if model is None else [given(equation, model, hutchinson)]
    if (
        isinstance(equation, Problem)
        and not equation.is_linear
        and not terminal_may_be_rough(equation)
    ):
        base = wrap(turned(equation), equation)
        found.append(Control("g where paths end", Defect(equation, base, hutchinson), base))
    return [*found, given(equation, None, hutchinson)]


def choose(setting: Setting, controls: Sequence[Control]) -> list[Share]:
    """The best of the controls at every point, the first of which is the surrogate if there is one."""
    first, method = controls[0], Linearised()
    jumping, known = np.zeros(len(setting.t), bool), np.ones(len(setting.t), bool)
    # Before anything dear is compiled.
    if setting.surrogate is not None:
        value, slope = surrogate_at(setting.surrogate, setting.t, setting.x)
        known = np.isfinite(value) & np.isfinite(slope).all(1)
    if method.differentiates(setting.problem, setting.gradient):
        jumping = slopes_jump(setting, first)
    return [
        *_moved(np.flatnonzero(~known), lambda there: _in_vain(there, first, method), setting),
        *_moved(
            np.flatnonzero(known & jumping),
            lambda there: _by_picard(there, controls, JUMP),
            setting,
        ),
        *_moved(
            np.flatnonzero(known & ~jumping),
            lambda there: _linearised(there, controls, method),
            setting,
        ),
    ]


def _in_vain(setting: Setting, first: Control, method: Linearised) -> list[Share]:
    """Where the surrogate itself is not finite no start will help: what there is to say of it is that."""
    shares = plan(setting, first, method.settle(steps=method.fewest_steps))
    return [replace(share, reason="the surrogate is not finite there") for share in shares]


def _moved(
    points: NDArray[np.int64], serve: Callable[[Setting], list[Share]], setting: Setting
) -> list[Share]:
    """The shares of these points alone, in the numbers of all."""
    if not len(points):
        return []
    return [replace(share, points=points[share.points]) for share in serve(setting.at(points))]


def _by_picard(setting: Setting, controls: Sequence[Control], why: str) -> list[Share]:
    """Two levels from the first start; where they leave too much, three from nothing, which is less to compile. And the paper's two, which state
    no bias, where F is too steep for any."""
    first, nothing = controls[0], controls[-1]
    check(setting, first, Picard())
    everywhere = np.arange(len(setting.t))
    tried = _Tried(setting, first, _picard(2), everywhere)
    lost, biased = np.isinf(tried.score), tried.bias > tried.stderr
    steep = _moved(everywhere[lost], lambda there: plan(there, first, Picard(2, 10)), setting)
    shares = [
        replace(each, reason=f"Picard, since {why}; F is too steep for its bias to be told")
        for each in steep
    ]
    if (
        (biased & ~lost).any()
        and setting.budget.has_tolerance
        and time.monotonic() < setting.deadline
    ):
        deeper = _Tried(setting, nothing, _picard(3), everywhere[biased & ~lost])
        better = deeper.bias < tried.bias
        lost |= np.isfinite(deeper.score) & better  # served now
        shares += deeper.shares(
            everywhere[np.isfinite(deeper.score) & better],
            f"3 Picard levels from nothing, since {why}",
        )
    return shares + tried.shares(
        everywhere[~lost], f"2 Picard levels from {first.name}, since {why}"
    )


def _picard(levels: int) -> Picard:
    return Picard(levels, 16, pairs=True, allocation="measured")


def _linearised(setting: Setting, controls: Sequence[Control], method: Linearised) -> list[Share]:
    """By the first start that will do, else by whatever takes the least work."""
    check(setting, controls[0], method)
    starts = _starts(setting, controls, method)
    shares, tried, points = [], [], np.arange(len(setting.t))
    for start, following in itertools.zip_longest(starts, starts[1:]):
        least = np.min([np.full(len(setting.t), np.inf), *(each.score for each in tried)], 0)[
            points
        ]
        is_worth = least > WORTH * _pilot_work(setting, start, method)
        if is_worth.any() and (not tried or time.monotonic() < setting.deadline):
            served, tried, suspects = _led_by(
                setting, start, following, method, tried, points[is_worth]
            )
            shares, points = shares + served, np.sort(np.concatenate([points[~is_worth], suspects]))
    return shares + (_least_work(setting, controls, method, tried, points) if len(points) else [])


def _starts(setting: Setting, controls: Sequence[Control], method: Linearised) -> list[Control]:
    """In the order in which they are tried: by what a pilot takes, where all that is asked for is a value to a tolerance; else the first alone, whose slope
    is as a rule the best. Nothing only where it costs little beside the first, or F is a mere source."""
    if len(controls) == 1 or not setting.budget.has_tolerance or setting.gradient:
        return [controls[0]]
    work = lambda control: _pilot_work(setting, control, method)
    *others, nothing = controls
    itself = (
        [nothing] if WORTH * work(nothing) <= work(controls[0]) or setting.problem.is_linear else []
    )
    return itself + sorted(others, key=work)


def _led_by(
    setting: Setting,
    start: Control,
    following: Control | None,
    method: Linearised,
    tried: Sequence["_Tried"],
    points: NDArray[np.int64],
) -> tuple[list[Share], list["_Tried"], NDArray[np.int64]]:
    """Those of these points that this start serves; all that was tried; and the points at which another should be tried, or did better."""
    everywhere = np.arange(len(setting.t))
    is_useless = _is_useless(setting, start, method, points)
    led = [_Tried(setting, start, method, points[~is_useless[points]])]
    led = led if start.model is None else _finer(led[0], setting, method)
    _distrust([*led, *tried])
    newest = np.max([k * np.isin(everywhere, each.points) for k, each in enumerate(led)], 0)
    score, seems_bad = (
        np.choose(newest, a) for a in zip(*((f.score, f.is_suspect()) for f in led), strict=True)
    )
    is_beaten = np.min([score, *(each.score for each in tried)], 0) < score
    why = "whose defect is a small part of the solution"
    if following is not None:
        seems_bad, why = score > AT_ONCE * _least_of(setting, following, method), CHEAP
    is_suspect = is_useless | is_beaten | seems_bad
    shares = [
        share
        for k, each in enumerate(led)
        for share in each.shares(
            points[~is_suspect[points] & (newest[points] == k)], f"started from {start.name}, {why}"
        )
    ]
    return shares, [*led, *tried], points[is_suspect[points]]


def _least_work(
    setting: Setting,
    controls: Sequence[Control],
    method: Linearised,
    tried: list["_Tried"],
    points: NDArray[np.int64],
) -> list[Share]:
    """By whatever takes the least work at these points: the controls that were not tried, in the order of what their pilots cost; then its own
    estimates; then Picard."""
    for other in sorted(controls, key=lambda control: _pilot_work(setting, control, method)):
        # Another pilot where it is a small part of what there is to do.
        least, dear = (
            np.min([each.score for each in tried], 0),
            WORTH * _pilot_work(setting, other, method),
        )
        known = [each.points for each in tried if each.control is other]
        there = np.setdiff1d(
            points[least[points] > dear], np.concatenate([*known, np.zeros(0, int)])
        )
        if len(there) and (other is controls[0] or time.monotonic() < setting.deadline):
            tried.append(_Tried(setting, other, method, there))
    tried += _second_looks(setting, tried, method, points)
    _distrust(tried)
    older, further = 0, points
    for _ in range(ROUNDS):
        # From the second round on, where the last one paid.
        best = np.argmin([each.score for each in tried], 0)
        further = further[best[further] >= older]
        older = len(tried)
        tried += _again(setting, tried, method, further)
    least = np.min([each.score for each in tried], 0)[points]
    lost, biased = np.isinf(least), np.isfinite(least) & (least >= HOPELESS)
    shares = _best(setting, tried, points[~lost & ~biased])
    if biased.any():
        there, deeper = points[biased], _deeper(setting, controls, tried, points[biased])
        told = np.isfinite(np.min([each.score for each in deeper], 0)[there])
        shares += _best(setting, deeper, there[told]) + _best(setting, tried, there[~told])
    steep = lambda there: _by_picard(there, controls, "F is too steep in u to be linearised")
    return shares + _moved(points[lost], steep, setting)


def _second_looks(
    setting: Setting, tried: Sequence["_Tried"], method: Linearised, points: NDArray[np.int64]
) -> list["_Tried"]:
    """The starts that may be the best, once more with a larger pilot, wherever that is a small part of what there is to do: four replicates tell a variance to
    a factor of three, and a tail not at all. What the first look said there is forgotten."""
    looks, least, surer = (
        [],
        np.min([each.score for each in tried], 0),
        replace(setting, pilots=SECOND),
    )
    for each in tried:
        known = points[np.isin(points, each.points) & (least[points] < HOPELESS)]
        dear = WORTH * SECOND / setting.pilots * _pilot_work(setting, each.control, method)
        there = known[(each.score[known] < NEARLY * least[known]) & (least[known] > dear)]
        if len(there) and time.monotonic() < setting.deadline:
            looks.append(_Tried(surer, each.control, each.method, there))
            each.score[there] = np.inf
    return looks


def _distrust(tried: Sequence["_Tried"]) -> None:
    """Of two starts whose estimates contradict each other the nearer one is believed: what is left of F is larger about the other, and a few samples
    of it may miss most of it."""
    for one, other in itertools.combinations(tried, 2):
        if one.control is other.control:
            continue
        with np.errstate(invalid="ignore"):
            apart = (
                np.abs(one.value - other.value)
                - one.bias
                - other.bias
                - one.steps_bias
                - other.steps_bias
            )
            contradict = apart > SURE * np.hypot(one.noise, other.noise)
        contradict &= np.isfinite(one.score) & np.isfinite(
            other.score
        )  # not by one that cannot be trusted itself
        for this, that in ((one, other), (other, one)):
            this.score[contradict & (this.distance > that.distance)] = np.inf


def _finer(first: "_Tried", setting: Setting, method: Linearised) -> list["_Tried"]:
    """And again with more steps where it is for want of steps that the levels tell of a large bias."""
    found, steps = [first], method.fewest_steps
    while (steps := STEPS_FACTOR * steps) <= MOST_FINER and time.monotonic() < setting.deadline:
        last = found[-1]
        wants = last.steps_bias > SHOWS * last.stderr
        wants &= np.isfinite(last.score) & ((last.score >= HOPELESS) | (len(found) > 1))
        if not wants.any():
            break
        found.append(
            _Tried(setting, first.control, method.settle(steps=steps), np.flatnonzero(wants))
        )
    return found


def _best(setting: Setting, tried: Sequence["_Tried"], points: NDArray[np.int64]) -> list[Share]:
    """By the least score; where that comes to more steps, and so to more work, than the score of the next, by the one of the two that takes less then."""
    scores = np.array([each.score for each in tried])

    def served(points: NDArray[np.int64]) -> tuple[list[Share], Floats]:
        best, work = np.argmin(scores, 0), np.full(len(setting.t), np.inf)
        by_start = [
            each.shares(points[best[points] == k], _reason(tried, k))
            for k, each in enumerate(tried)
        ]
        shares = [share for some in by_start for share in some]
        for share in shares:
            work[share.points] = share.work
        np.put_along_axis(scores, best[None], np.inf, 0)
        return shares, work

    shares, work = served(points)
    least = np.min(scores, 0)[points]
    is_dearer = (work[points] > least) & (least < HOPELESS) & (time.monotonic() < setting.deadline)
    others, instead = served(points[is_dearer])
    is_less = instead < work
    kept = [share.at(~is_less[share.points]) for share in shares] + [
        share.at(is_less[share.points]) for share in others
    ]
    return [share for share in kept if len(share.points)]


def _deeper(
    setting: Setting,
    controls: Sequence[Control],
    tried: Sequence["_Tried"],
    points: NDArray[np.int64],
) -> Sequence["_Tried"]:
    """Where every start leaves a bias that is larger than the error bar, all of them once more with a larger pilot, and three levels of Picard."""
    if time.monotonic() > setting.deadline or not setting.budget.has_tolerance:
        return tried
    surer = replace(setting, pilots=SURER)
    there = [np.intersect1d(points, np.flatnonzero(np.isfinite(each.score))) for each in tried]
    again = [
        _Tried(surer, each.control, each.method, at)
        for each, at in zip(tried, there, strict=True)
        if len(at)
    ]
    return [*again, _Tried(surer, controls[-1], _picard(3), points)]


class Tangent(eqx.Module):
    """The plane of that value and slope at (t0, x0), at the rate in time that the law has there without curvature: a surrogate of a neighbourhood."""

    equation: AbstractEquation
    t0: Coefficient
    x0: Coefficient
    value: Coefficient
    slope: Coefficient

    def __call__(self, t: Array, x: Array) -> Array:
        t0, x0, value, slope = (
            jnp.asarray(a, x.dtype) for a in (self.t0, self.x0, self.value, self.slope)
        )
        z = diffuse_transposed(self.equation.diffusion(t0, x0), slope)
        # Only a source that is estimated draws from a key, and the law here is that of the problem.
        rate = -self.equation.drift(t0, x0) @ slope - self.equation.nonlinearity(
            t0, x0, value, z, jax.random.key(0)
        )
        return value + rate * (t - t0) + slope @ (x - x0)


def _again(
    setting: Setting, tried: Sequence["_Tried"], method: Linearised, suspects: NDArray[np.int64]
) -> list["_Tried"]:
    """Where the bias of the best would show, a start from its own estimate: about it the remainder is smaller."""
    further, equation = [], setting.problem
    for i in suspects:
        best = min(tried, key=lambda each: each.score[i])
        shows = np.isfinite(best.score[i]) and best.bias[i] > SHOWS * best.stderr[i]
        if not shows or time.monotonic() > setting.deadline:
            continue
        settled, run = best.pilot(i)
        if equation.uses_z and not setting.gradient:
            sloped = replace(setting.at(np.array([i])), gradient=True)
            run = pilot(
                sloped,
                best.control,
                settled.settle(steps=settled.fewest_steps),
                np.zeros(1, np.int64),
            )
        kind = setting.x.dtype
        plane = Tangent(
            equation,
            setting.t[i],
            setting.x[i],
            np.asarray(run.value[0], kind),
            run.slope[0].astype(kind),
        )
        model = wrap(plane, equation)
        plane = Control("its own first estimate", Defect(equation, model), model, DOUBT)
        further.append(_Tried(setting, plane, method, np.array([i])))
    return further


def _is_useless(
    setting: Setting, control: Control, method: Linearised, points: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Where one replicate of first order says that much of the solution is missing, of these points."""
    useless = np.zeros(len(setting.t), bool)
    if (
        setting.surrogate is None
        or control.model is not setting.surrogate
        or not setting.budget.has_tolerance
    ):
        return useless
    for name, here in gradients(setting, control, method).items():
        there = np.intersect1d(here, points)
        thin = method.settle(gradient=name, steps=method.fewest_steps).thinned()[0]
        thin, each = thin.allot(thin.counts * np.array([1, 1, 0], np.int32)), np.arange(len(there))
        kernel = setting.kernel(control, thin, there)
        setting.spent.extend(thin.spent(control.equation, np.ones_like(each)))
        for part, row in kernel.run(each, np.full(len(each), PILOT), np.full(len(each), ORDINARY)):
            base, defect = np.asarray(row.surrogate[0], float), np.asarray(row.value, float)
            small = np.abs(defect) <= USELESS * np.minimum(np.abs(base), np.abs(base + defect))
            useless[there[part]] = ~small
    return useless


def _pilot_work(setting: Setting, control: Control, method: Linearised) -> float:
    """At one point, in operations."""
    return setting.pilots * _thinned_work(method, control.equation, setting.gradient)


def _least_of(setting: Setting, control: Control, method: Linearised) -> float:
    """The least that a correction takes at one point, its pilot included."""
    fewest = method.bounds[0] * (np.arange(len(method.names)) < method.steps_tell)
    each = (
        fewest @ method.settle(steps=method.fewest_steps).work(control.equation, setting.gradient)
        + REPLICATE
    )
    return _pilot_work(setting, control, method) + FIRST * float(each)


@cached_by_structure
def _thinned_work(method: Linearised, equation: AbstractEquation, gradient: bool) -> float:
    """Of one replicate of a pilot."""
    thin = method.settle(steps=method.fewest_steps).thinned()[0]
    return float(thin.counts @ thin.work(equation, gradient))


def _reason(tried: Sequence["_Tried"], k: int) -> str:
    name = f"started from {tried[k].name}"
    if len(tried) == 1:
        return name
    others = dict.fromkeys(each.name for each in tried if each.name != tried[k].name)
    return f"{name}, which takes less work for one error bar, or leaves less bias, than {' or '.join(others)}"


class _Tried:
    """What the pilots of one control say: `score` is the operations that the error bar takes, and more where the bias would show;
    infinite where it was not tried, or cannot be trusted."""

    def __init__(
        self,
        setting: Setting,
        control: Control,
        method: AbstractEstimator,
        points: NDArray[np.int64],
    ):
        self.control, self.method, self.score = control, method, np.full(len(setting.t), np.inf)
        self.name = f"{control.name}, by Picard" if isinstance(method, Picard) else control.name
        self.points = points
        self.bias, self.stderr, self.steps_bias = (np.zeros(len(setting.t)) for _ in range(3))
        # The estimate of u, and how far it is from what was started from.
        self.value, self.noise, self.distance = (np.full(len(setting.t), np.nan) for _ in range(3))
        self.trials = [
            Trial(setting, control, method.settle(gradient=name), there)
            for name, here in gradients(setting, control, method).items()
            if len(there := np.intersect1d(here, points))
        ]
        for trial in self.trials:
            bias, (_, stderr, work, _) = np.nan_to_num(trial.bias), trial.allocation
            # Of as many steps as it would come to.
            if method.steps == "auto" and method.discretises(control.equation):
                work = work * times_more_steps(
                    trial.run.bias_of_many, stderr, method.order(control.equation)
                )
            # Where the bias is larger than the error bar that is aimed at, it alone decides.
            score = np.where(
                bias > stderr, HOPELESS * bias / stderr, work * (1 + (2 * bias / stderr) ** 2)
            )
            lost = trial.is_lost
            if isinstance(method, Linearised) and method.differentiates(
                setting.problem, setting.gradient
            ):
                lost = lost | slopes_jump(setting.at(trial.points), control)
            self.score[trial.points] = np.where(np.isfinite(score) & ~lost, score, np.inf)
            self.bias[trial.points], self.stderr[trial.points] = bias, stderr
            self.steps_bias[trial.points] = trial.run.bias
            self.value[trial.points], self.distance[trial.points] = (
                trial.run.value,
                np.abs(trial.run.defect),
            )
            self.noise[trial.points] = np.sqrt(np.sum(trial.run.variance, 1) / trial.run.replicates)

    def is_suspect(self) -> NDArray[np.bool_]:
        suspect = np.zeros(len(self.score), bool)
        for trial in self.trials:
            run = trial.run
            noise = 2 * np.sqrt(np.sum(run.variance, 1) / run.replicates)
            with np.errstate(invalid="ignore"):
                small = np.abs(run.defect) + noise <= SUSPECT * np.abs(run.value)
                small &= trial.allocation.work < MUCH
            suspect[trial.points] = ~(small & np.isfinite(self.score[trial.points]))
        return suspect

    def pilot(self, point: int) -> tuple[AbstractEstimator, Pilot]:
        """Of one point."""
        trial = next(each for each in self.trials if point in each.points)
        return trial.estimator, trial.run.at(np.flatnonzero(trial.points == point))

    def shares(self, points: NDArray[np.int64], reason: str) -> list[Share]:
        return [
            replace(share, reason=reason) for trial in self.trials for share in trial.shares(points)
        ]
