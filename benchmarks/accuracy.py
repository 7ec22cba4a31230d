"""Error against CPU time of every method, on one surrogate at the same points, in one interleaved run.

`scasml bench accuracy` makes the table of docs/accuracy.md: surrogates trained, trained briefly, and spoiled to a relative error of about 0.5. `scasml bench accuracy FILE [POINTS]` does so for a saved surrogate, at the points of a file or at random ones of its problem.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import scasml
from scasml import Linearised, Picard, problems, surrogates, tables
from scasml.defect import Defect
from scasml.engine import Kernel, surrogate_at
from scasml.precision import cast, precision
from scasml.surrogate import wrap
from surrogates import queries

POINTS = 48
# CPU seconds for one method, without compilation; and replicates, at least and at most.
SECONDS, FEWEST, MOST = 4.0, 4, 256
PAPER = "Picard n=2 M=10 as published"
REFERENCE = "Picard(2, 10)"
ROUNDS = 4
SIZES = (8, 32, 128, 512, 2048)


def methods(law: Any) -> dict[str, Any]:
    """By name; those of one family differ in size."""
    wide = "auto" if law.is_linear else 4
    made: dict[str, Any] = {
        PAPER: Picard(2, 10, gradient="weights", threshold=0.01),
        REFERENCE: Picard(2, 10, gradient="pathwise"),
        "Picard(1, 100)": Picard(1, 100, gradient="pathwise"),
        "Picard(2, 8), antithetic": Picard(2, 8, gradient="pathwise", sampling="antithetic"),
        "Picard(2, 8), rqmc": Picard(2, 8, gradient="pathwise", sampling="rqmc"),
        "Picard(2, 8), rqmc, pairs": Picard(2, 8, gradient="pathwise", sampling="rqmc", pairs=True),
    }
    for sampling in ("mc", "antithetic", "rqmc"):
        method = Linearised(wide, 128, gradient="pathwise", sampling=sampling)
        for samples in SIZES if sampling == "rqmc" else (128,):
            # How many is data: one program for all of them.
            counts = np.array([samples, samples, max(2, samples // 64)], np.int32)
            made[f"Linearised({samples}), {sampling}"] = method.allot(counts)
    return made


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


class Line(NamedTuple):
    """Of one method: the ratio of errors after and before at the CPU time of the reference, and CPU time to the error of the paper's."""

    name: str
    ratio: float
    to_paper: float
    curve: list[tuple[float, float]]


class Auto(NamedTuple):
    """A call of `correct` as a user makes it, its second: compiled, pilots included."""

    rtol: float
    seconds: float  # of CPU, a point
    error: float
    control: str


class Table(NamedTuple):
    pair: str
    before: float  # relative
    milliseconds: float  # of the reference, a point
    lines: list[Line]
    auto: list[Auto]

    def __str__(self) -> str:
        rows = [
            f"{self.pair}: relative error {self.before:.1e}; {REFERENCE} takes {self.milliseconds:.1f} CPU ms a point",
            f"    {'':32} {'after/before then':>18} {'time to the error of the published':>36}",
        ]
        rows += [f"    {line.name:32} {line.ratio:>18.3f} {line.to_paper:>36.3f}" for line in self.lines]
        for auto in self.auto:
            reached = [(_reach(line.curve, auto.error), line.name) for line in self.lines]
            best = min((each for each in reached if each[0] == each[0]), default=None)
            beside = "no other method got there" if best is None else f"{auto.seconds / best[0]:.2f} times {best[1]}"
            rows.append(
                f"    auto, rtol={auto.rtol:.0e}: after/before {auto.error:.4f} in {1e3 * auto.seconds:.1f} CPU ms a point, from {auto.control}; {beside}"
            )
        return "\n".join(rows)


def measure(pair: Pair, seconds: float = SECONDS) -> Table:
    problem, kind = pair.problem, np.dtype(np.float32)
    t, x = pair.points or queries(problem, None, POINTS)
    t, x = (0.9 * t if pair.points is None else t).astype(kind), x.astype(kind)
    with precision(kind):
        model = wrap(cast(pair.surrogate, kind), problem)
        law = Defect(cast(problem, kind), model)
        kernel = lambda method: Kernel(law, method, t, x, seed=0, gradient=False, surrogate=model)
        runs = {name: Run(kernel(method), []) for name, method in methods(problem).items()}
        for run in runs.values():
            run.add(1)  # compiles
            run.values, run.seconds = [], 0.0
            run.add(1)
        for _ in range(ROUNDS):
            for run in runs.values():
                share = seconds / ROUNDS / (run.each * len(t))
                run.add(int(np.clip(share, FEWEST / ROUNDS, MOST / ROUNDS)))
    exact = problem.exact(t, x)
    defect = exact - surrogate_at(model, t, x)[0]
    size = float(np.sqrt(np.mean(defect**2)))
    relative = size / float(np.sqrt(np.mean(exact**2)))
    auto = [_auto(pair, t, x, exact, size, rtol) for rtol in (relative, relative / 3, relative / 10)]
    return _table(pair.name, runs, relative, defect, auto)


def _auto(pair: Pair, t: Any, x: Any, exact: Any, size: float, rtol: float) -> Auto:
    run = lambda: scasml.correct(pair.problem, pair.surrogate, t, x, rtol=rtol, with_gradient=False, safe=False, seed=1)
    run()
    began = time.process_time()
    answer = run()
    spent = (time.process_time() - began) / len(t)
    error = float(np.sqrt(np.mean((answer.value - exact) ** 2))) / size
    return Auto(rtol, spent, error, " and ".join(sorted({choice.control for choice in answer.choices})))


def _table(name: str, runs: dict[str, Run], relative: float, defect: Any, auto: list[Auto]) -> Table:
    size = float(np.sqrt(np.mean(defect**2)))
    curves = {name: [(s, e / size) for s, e in run.errors(defect)] for name, run in runs.items()}
    budget, paper = curves[REFERENCE][0][0], curves[PAPER][0]
    lines = [
        Line(name, _at(curve, budget), _reach(curve, paper[1]) / paper[0], curve) for name, curve in curves.items()
    ]
    return Table(name, relative, 1e3 * budget, lines, auto)


def _at(curve: list[tuple[float, float]], seconds: float) -> float:
    """The error at that time, between two sizes by the power law through them; NaN before the first replicate."""
    times, errors = (np.log([max(point[k], 1e-300) for point in curve]) for k in (0, 1))
    return float(np.exp(np.interp(np.log(seconds), times, errors, left=np.nan)))


def _reach(curve: list[tuple[float, float]], error: float) -> float:
    """The time of the first size whose error is no larger; NaN if there is none."""
    return next((seconds for seconds, e in curve if e <= error), float("nan"))


def spoiled(model: Callable[..., Any], size: float, dim: int) -> Callable[..., Any]:
    """Off by up to that share of itself."""
    return lambda t, x: model(t, x) * (1 + size * jnp.sin(jnp.sum(x) / np.sqrt(dim) + 2 * t + 0.5))


def pairs() -> Iterator[Pair]:
    """Trained, trained briefly and spoiled: of the five problems of the paper."""
    makers: dict[str, tuple[scasml.Problem, dict[str, Any]]] = {
        "convection-diffusion 10d": (problems.convection_diffusion(10), {"preset": "paper", "steps": 1000}),
        "Burgers 20d, sigma0 0.25": (problems.burgers(20), {}),
        "Burgers 20d, sigma0 sqrt 2": (problems.burgers(20, problems.BURGERS_PAPER), {}),
        "LQG 100d": (problems.lqg(100), {}),
        "diffusion-reaction 100d": (problems.diffusion_reaction(100), {}),
    }
    for name, (problem, options) in makers.items():
        good = surrogates.pinn(problem, seed=0, **options)
        poor = surrogates.pinn(problem, seed=0, **{**options, "steps": 60})
        yield Pair(f"{name}, trained", problem, good)
        yield Pair(f"{name}, trained briefly", problem, poor)
        yield Pair(f"{name}, spoiled", problem, spoiled(good, 0.7, problem.dim))


def main(*arguments: str) -> None:
    if arguments:
        model = surrogates.load(arguments[0])
        points = tables.read_points(arguments[1], model.problem.dim) if len(arguments) > 1 else None
        table = measure(Pair(Path(arguments[0]).stem, model.problem, model, points))
        print(table)
        print(picture(table, Path("accuracy.png")))
        return
    for pair in pairs():
        print(measure(pair), flush=True)


def picture(table: Table, path: Path) -> str:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    for line in table.lines:
        ax.loglog(*np.array(line.curve).T * [[1e3], [1.0]], "o-", markersize=3, label=line.name)
    ax.loglog(
        *np.array([(1e3 * auto.seconds, auto.error) for auto in table.auto]).T, "k*-", label="auto, pilots included"
    )
    ax.axhline(1.0, color="black", linewidth=0.8, label="surrogate")
    ax.set_xlabel("CPU ms a point")
    ax.set_ylabel("rms error / that of the surrogate")
    ax.set_title(table.pair)
    ax.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)
    return f"picture: {path}"
