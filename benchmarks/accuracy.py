"""Error against CPU time of every method, on one surrogate at the same points, in one interleaved run.

`scasml bench accuracy` makes the table of docs/accuracy.md: surrogates trained, trained briefly, spoiled to a relative error of about 0.5, and very good ones.
`scasml bench accuracy FILE [POINTS]` does so for a saved surrogate, at the points of a file or at random ones of its problem.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import scasml
from scasml import Linearised, Picard, problems, surrogates
from scasml._io import tables
from scasml._planning.auto import controls
from scasml._sampling.designs import SAMPLINGS
from scasml._support.precision import cast, use_dtype
from scasml.execution import Kernel, surrogate_at
from scasml.surrogates.wrapping import wrap
from surrogates import queries

# The cheaper the more, so that a call is not all Python: up to so many dimensions so many.
POINTS = {10: 96, 20: 24, 1000: 8}
# CPU seconds for one method, without compilation; and replicates, at least and at most.
SECONDS, FEWEST, MOST = 3.0, 4, 256
PAPER = "Picard n=2 M=10 as published"
REFERENCE = "Picard(2, 10)"
ROUNDS = 4
SIZES = (32, 128, 512, 2048)
# Paths of a replicate that is not to be good but quick.
FEW = 4
# Of a path, where two are too few.
MORE_STEPS = 8
# Calls as a user makes them are asked for the error of the surrogate over so much, and at most so much; with so many seeds, each call once to compile and once
# for its time; and the others get so many times what `auto` takes, in seconds; to compile, so many seconds at most.
TIGHTER, CALLS, PATIENCE, COMPILES = ((4, 1e-2), (16, 1e-3)), 3, 3, 30.0


def methods(
    problem: scasml.Problem, samplings: tuple[str, ...] = SAMPLINGS
) -> dict[str, list[Any]]:
    """Families by name; those of one family differ in size."""
    picard = lambda samples, **options: Picard(2, samples, gradient="pathwise", **options)
    made: dict[str, list[Any]] = {
        PAPER: [Picard(2, 10, gradient="weights", threshold=0.01)],
        REFERENCE: [picard(10)],
    }
    for sampling in samplings:
        if sampling != "mc":
            made[f"Picard(2, 8), {sampling}"] = [picard(8, sampling=sampling)]
        made[f"Linearised, {sampling}"] = _linearised(problem, sampling)
        if sampling == "rqmc":
            made[f"Linearised, {sampling}, no remainder"] = _without_remainder(problem, sampling)
            if not problem.is_linear:
                made[f"Linearised, {sampling}, no remainder, {MORE_STEPS} steps"] = [
                    each.settle(steps=MORE_STEPS) for each in _without_remainder(problem, sampling)
                ]
    return made


def _without_remainder(problem: scasml.Problem, sampling: Any) -> list[Any]:
    few = Linearised(
        "auto" if problem.is_linear else 2, FEW, 0, gradient="pathwise", sampling=sampling
    )
    return [few, *_linearised(problem, sampling, 0)]


def _linearised(problem: scasml.Problem, sampling: Any, remainder: int = 1) -> list[Any]:
    """Of every size. How many is data: one program for all of them."""
    steps = "auto" if problem.is_linear else 2
    method = Linearised(steps, 128, gradient="pathwise", sampling=sampling)
    counts = [[samples, samples, remainder * max(2, samples // 64)] for samples in SIZES]
    return [method.allot(np.array(each, np.int32)) for each in counts]


@dataclass
class Run:
    """Replicates of one method at every point, as they come, and the CPU seconds of one at one point."""

    kernel: Kernel
    values: list[Any]
    seconds: float = 0.0

    def add(self, replicates: int) -> None:
        points, done = len(self.kernel.t), len(self.values)
        point = np.tile(np.arange(points), replicates)
        replicate = np.repeat(done + np.arange(replicates), points)
        values = np.zeros((replicates, points))
        began = time.process_time()
        for part, row in self.kernel.run(point, replicate, np.zeros(len(point), np.int64)):
            values[replicate[part] - done, point[part]] = row.value
        self.seconds += time.process_time() - began
        self.values += list(values)

    @property
    def each(self) -> float:
        return self.seconds / (len(self.values) * len(self.kernel.t))

    def errors(self, defect: Any) -> Iterator[tuple[float, float]]:
        """(CPU seconds a point, rms error) of the mean of 1, 2, 4, ... replicates, over all disjoint groups of so many."""
        values, size = np.array(self.values), 1
        while size <= len(values):
            groups = values[: len(values) // size * size].reshape(-1, size, values.shape[1]).mean(1)
            yield size * self.each, float(np.sqrt(np.mean((groups - defect) ** 2)))
            size *= 2


class Pair(NamedTuple):
    name: str
    problem: scasml.Problem
    surrogate: Any
    points: tuple[Any, Any] | None = None


Curve = list[tuple[float, float]]


class Line(NamedTuple):
    """Of one family: the ratio of errors after and before at the CPU time of the reference, and CPU time to the error of the paper's."""

    name: str
    ratio: float
    to_paper: float
    curves: list[Curve]


@dataclass
class Call:
    """Calls of `correct` as a user makes them, pilots included, compilation not: with one tolerance for every method."""

    name: str
    method: Any
    surrogate: Any
    rtol: float
    seconds: float = 0.0  # of CPU, a point
    error: float = np.inf  # rms, over that of the surrogate
    met: bool = True
    control: str = ""

    def run(self, pair: Pair, t: Any, x: Any, exact: Any, seed: int, seconds: float | None) -> None:
        began = time.process_time()
        answer = scasml.correct(
            pair.problem,
            self.surrogate,
            t,
            x,
            method=self.method,
            rtol=self.rtol,
            seconds=seconds,
            with_gradient=False,
            safe=False,
            seed=seed,
        )
        self.seconds = (time.process_time() - began) / len(t)
        self.error = float(np.sqrt(np.mean((answer.value - exact) ** 2)))
        # Not by an interval that leaves out a bias that cannot be told.
        self.met = bool(((answer.status == "converged") & np.isfinite(answer.bias)).all())
        self.control = " and ".join(sorted({choice.control for choice in answer.choices}))


class Table(NamedTuple):
    pair: str
    before: float  # relative
    milliseconds: float  # of the reference, a point
    lines: list[Line]
    calls: list[list[Call]]  # at each tolerance, `auto` first

    def __str__(self) -> str:
        rows = [
            f"{self.pair}: relative error {self.before:.1e}; {REFERENCE} takes {self.milliseconds:.1f} CPU ms a point",
            f"    {'':56} {'after/before then':>18} {'time to the error of the published':>36}",
        ]
        rows += [
            f"    {line.name:56} {line.ratio:>18.3f} {line.to_paper:>36.3f}" for line in self.lines
        ]
        for auto, *others in self.calls:
            met = [call for call in others if call.met]
            best = min(met, key=lambda call: call.seconds, default=None)
            beside = f"no other call met it in {PATIENCE} times that"
            if best is not None:
                beside = f"{auto.seconds / best.seconds:.2f} times {best.name}, which came to {best.error:.4f}"
            rows.append(
                f"    auto, rtol={auto.rtol:.0e}: after/before {auto.error:.4f} in {1e3 * auto.seconds:.1f} CPU ms a point"
                f"{'' if auto.met else ', not met'}, from {auto.control}; {beside}"
            )
        return "\n".join(rows)


def points_of(problem: scasml.Problem) -> int:
    return next(count for dim, count in POINTS.items() if problem.dim <= dim)


def measure(pair: Pair, samplings: tuple[str, ...] = SAMPLINGS) -> Table:
    problem, kind = pair.problem, np.dtype(np.float32)
    t, x = pair.points or queries(problem, None, points_of(problem))
    t, x = (0.9 * t if pair.points is None else t).astype(kind), x.astype(kind)
    with use_dtype(kind):
        model = wrap(cast(pair.surrogate, kind), problem)
        first, *others = controls(cast(problem, kind), model, None)
        kernel = lambda control, method: Kernel(
            control.equation,
            method,
            t,
            x,
            seed=0,
            gradient=False,
            surrogate=model,
            control=control.model,
        )
        families = {
            name: [Run(kernel(first, each), []) for each in sizes]
            for name, sizes in methods(problem, samplings).items()
        }
        for other in others:
            name = f"Linearised, rqmc, from {other.name}"
            for family, make in (
                (name, _linearised),
                (f"{name}, no remainder", _without_remainder),
            ):
                families[family] = [Run(kernel(other, each), []) for each in make(problem, "rqmc")]
        runs = [run for family in families.values() for run in family]
        for run in runs:
            run.add(1)  # compiles
            run.values, run.seconds = [], 0.0
            run.add(1)
        for _ in range(ROUNDS):
            for run in (run for run in runs if run.seconds < SECONDS):
                share = SECONDS / ROUNDS / (run.each * len(t))
                run.add(int(np.clip(share, FEWEST / ROUNDS, MOST / ROUNDS)))
    exact = problem.exact(t, x)
    defect = exact - surrogate_at(model, t, x)[0]
    size = float(np.sqrt(np.mean(defect**2)))
    relative = size / float(np.sqrt(np.mean(exact**2)))
    tolerances = [min(relative / times, most) for times, most in TIGHTER]
    table = _table(pair.name, families, relative, defect)
    return table._replace(calls=[_calls(pair, t, x, exact, size, rtol) for rtol in tolerances])


def _calls(pair: Pair, t: Any, x: Any, exact: Any, size: float, rtol: float) -> list[Call]:
    """`auto` beside methods that are named, each for the tolerance, in turns."""
    linear, model = Linearised(), pair.surrogate
    sized = lambda samples: linear.allot(np.array([samples, samples, samples // 64], np.int32))
    made = {
        "auto": ("auto", model),
        REFERENCE: (Picard(2, 10), model),
        "Linearised()": (linear, model),
        "Linearised(samples=1024)": (sized(1024), model),
        "Linearised() from nothing": (linear, None),
        "Linearised(samples=1024) from nothing": (sized(1024), None),
    }
    calls = [Call(name, method, start, rtol) for name, (method, start) in made.items()]
    total = np.zeros((CALLS, len(calls), 2))
    for k in range(CALLS):
        for i, call in enumerate(calls):
            run = functools.partial(call.run, pair, t, x, exact, k)
            if call.met:
                run(None if i == 0 else COMPILES)  # what this seed takes
                run(None if i == 0 else PATIENCE * total[k, 0, 0] * len(t))
            total[k, i] = call.seconds, call.error / size
    for call, (seconds, error) in zip(calls, total.mean(0), strict=True):
        call.seconds, call.error = float(seconds), float(error)
    return calls


def _table(name: str, families: dict[str, list[Run]], relative: float, defect: Any) -> Table:
    size = float(np.sqrt(np.mean(defect**2)))
    curves = {
        name: [[(s, e / size) for s, e in run.errors(defect)] for run in runs]
        for name, runs in families.items()
    }
    budget, paper = curves[REFERENCE][0][0][0], curves[PAPER][0][0]
    lines = [
        Line(name, _at(of, budget), _reach(of, paper[1]) / paper[0], of)
        for name, of in curves.items()
    ]
    return Table(name, relative, 1e3 * budget, lines, [])


def _at(curves: list[Curve], seconds: float) -> float:
    """The least error of the family at that time, between two numbers of replicates by the power law through them; infinite before the first."""
    found = []
    for curve in curves:
        times, errors = (np.log([max(point[k], 1e-300) for point in curve]) for k in (0, 1))
        found.append(np.exp(np.interp(np.log(seconds), times, errors, left=np.inf)))
    return float(min(found))


def _reach(curves: list[Curve], error: float) -> float:
    """The least time at which the family has an error no larger, by the power law where it lies between; infinite if it has not."""
    return min(_cross(curve, error) for curve in curves)


def _cross(curve: Curve, error: float) -> float:
    before = None
    for seconds, reached in curve:
        if reached <= error:
            if before is None or reached == before[1]:
                return seconds
            share = np.log(error / before[1]) / np.log(max(reached, 1e-300) / before[1])
            return float(before[0] * (seconds / before[0]) ** share)
        before = seconds, reached
    return float("inf")


def spoiled(model: Callable[..., Any], size: float, dim: int) -> Callable[..., Any]:
    """Off by up to that share of itself."""
    return lambda t, x: model(t, x) * (1 + size * jnp.sin(jnp.sum(x) / np.sqrt(dim) + 2 * t + 0.5))


def pairs() -> Iterator[Pair]:
    """Trained, trained briefly, spoiled and very good surrogates of the five problems of the paper."""
    makers: dict[str, scasml.Problem] = {
        "convection-diffusion 10d": problems.convection_diffusion(10),
        "Burgers 20d, sigma0 0.25": problems.burgers(20),
        "Burgers 20d, sigma0 sqrt 2": problems.burgers(20, problems.BURGERS_PAPER),
        "LQG 100d": problems.lqg(100),
        "diffusion-reaction 100d": problems.diffusion_reaction(100),
    }
    for name, problem in makers.items():
        # Our own network has the solution of the first in its offset, to 1e-7.
        options: dict[str, Any] = {"preset": "paper", "steps": 1000} if "convection" in name else {}
        good = surrogates.pinn(problem, seed=0, **options)
        best = (
            _logistic
            if "Burgers" in name
            else surrogates.pinn(problem, seed=0)
            if options
            else good
        )
        yield Pair(f"{name}, trained", problem, good)
        yield Pair(
            f"{name}, trained briefly",
            problem,
            surrogates.pinn(problem, seed=0, **{**options, "steps": 60}),
        )
        yield Pair(f"{name}, spoiled", problem, spoiled(good, 0.7, problem.dim))
        yield Pair(f"{name}, very good", problem, spoiled(best, 0.0014, problem.dim))


def _logistic(t: Any, x: Any) -> Any:
    """The travelling wave that solves Burgers' equation."""
    return jax.nn.sigmoid(t + jnp.sum(x))


def main(*arguments: str) -> None:
    if len(arguments) > 0:
        model = surrogates.load(arguments[0])
        points = tables.read_points(arguments[1], model.problem.dim) if len(arguments) > 1 else None
        table = measure(Pair(Path(arguments[0]).stem, model.problem, model, points))
        print(table)
        print(picture(table, Path("accuracy.png")))
        return
    for pair in pairs():
        print(measure(pair, ("rqmc",)), flush=True)


def picture(table: Table, path: Path) -> str:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(10.0, 4.8), layout="constrained")
    colours = plt.get_cmap("tab20").colors
    for line, colour in zip(
        table.lines, itertools.cycle((*colours[::2], *colours[1::2])), strict=False
    ):
        for curve in line.curves:
            points = np.array(curve).T * [[1e3], [1.0]]
            ax.loglog(
                *points,
                "o-",
                color=colour,
                markersize=3,
                label=line.name if curve is line.curves[0] else None,
            )
    stars = np.array([(1e3 * auto.seconds, auto.error) for auto, *_ in table.calls]).T
    ax.loglog(*stars, "k*-", label="auto, pilots included")
    ax.axhline(1.0, color="black", linewidth=0.8, label="surrogate")
    ax.set_xlabel("CPU ms a point")
    ax.set_ylabel("rms error / that of the surrogate")
    ax.set_title(table.pair)
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)
    return f"picture: {path}"
