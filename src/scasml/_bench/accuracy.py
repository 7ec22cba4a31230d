"""Error against CPU time of every method, on one surrogate at the same points.

`scasml bench accuracy` prints the table of docs/accuracy.md, for several surrogates.
`scasml bench accuracy FILE [POINTS]` prints it for one saved surrogate, and draws a picture.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import Problem, problems, surrogates
from .._io import tables
from .._planning.starts import offered_starts
from .._planning.task import Task
from .._sampling.designs import SAMPLINGS, Sampling
from .._support.precision import cast, use_dtype
from .._support.types import Floats
from ..execution.local import LocalExecutor, value_and_gradient
from ..execution.points import Points
from ..execution.stopping import StoppingRule
from ..surrogates import wrap
from .accuracy_calls import PATIENCE, Call, run_calls
from .accuracy_replicates import PUBLISHED, REFERENCE, Curve, Run, error_at, run_all, time_to
from .measuring import FLOAT32, uniform_points

# Number of points for problems of at most that dimension. Points of low dimension need little work,
# so there are more of them, and a call does not spend its time in Python.
POINTS_BY_DIMENSION = {10: 96, 20: 24, 1000: 8}
# Pairs (factor, most). The rtol of a call is the relative error of the surrogate over `factor`, and
# at most `most`.
TOLERANCES = ((4, 1e-2), (16, 1e-3))


class Pair(NamedTuple):
    """A problem, a surrogate of it, and the points at which it is corrected."""

    name: str
    problem: Problem
    surrogate: Any
    points: tuple[Any, Any] | None = None  # t (points,), x (points, d); random points by default


class Line(NamedTuple):
    """The results of one family of estimators, which differ in their size."""

    name: str
    ratio: float  # error after over before correction, at the CPU time of the reference
    to_published: float  # CPU time to reach the error of the published estimator, over its time
    curves: list[Curve]  # of each estimator; errors are divided by that of the surrogate


class Table(NamedTuple):
    """The results for one pair."""

    pair: str
    before: float  # relative error of the surrogate
    milliseconds: float  # CPU time of one replicate of the reference, per point
    lines: list[Line]
    calls: list[list[Call]]  # at each tolerance, `auto` first

    def __str__(self) -> str:
        rows = [
            f"{self.pair}: relative error {self.before:.1e}; "
            f"one replicate of {REFERENCE} takes {self.milliseconds:.1f} CPU ms per point",
            f"    {'':56} {'error after/before':>18} {'time to the published error':>28}",
        ]
        rows += [
            f"    {line.name:56} {line.ratio:>18.3f} {line.to_published:>28.3f}"
            for line in self.lines
        ]
        return "\n".join(rows + [_call_line(*calls) for calls in self.calls])


def _call_line(auto: Call, *others: Call) -> str:
    """Return the text that compares `auto` with the quickest other call that met the tolerance."""
    quickest = min((call for call in others if call.met), key=lambda c: c.seconds, default=None)
    comparison = f"no other call met the tolerance in {PATIENCE} times that time"
    if quickest is not None:
        comparison = (
            f"{auto.seconds / quickest.seconds:.2f} times the time of {quickest.name}, "
            f"which reached {quickest.error:.4f}"
        )
    return (
        f"    auto, rtol={auto.rtol:.0e}: error after/before {auto.error:.4f} in "
        f"{1e3 * auto.seconds:.1f} CPU ms per point{'' if auto.met else ', tolerance not met'}, "
        f"from {auto.start}; {comparison}"
    )


def measure(pair: Pair, samplings: Sequence[Sampling] = SAMPLINGS) -> Table:
    """Run all estimators and all calls for a pair, and return the results.

    `samplings` are the options `sampling` of the estimators. The problem needs an exact solution.
    """
    problem = pair.problem
    if pair.points is None:
        count = next(n for dim, n in POINTS_BY_DIMENSION.items() if problem.dim <= dim)
        t, x = uniform_points(problem, None, count)
        t = 0.9 * t  # there is no defect at the horizon
    else:
        t, x = pair.points
    t, x = t.astype(FLOAT32), x.astype(FLOAT32)
    exact, executor = problem.exact(t, x), LocalExecutor()
    with use_dtype(FLOAT32):
        equation = cast(problem, FLOAT32)
        model = wrap(cast(pair.surrogate, FLOAT32), problem)
        points = Points.of(np.arange(len(t)), t, x, seed=0)
        task = Task(equation, model, points, False, StoppingRule(), executor)
        families = run_all(task, offered_starts(equation, model, None), samplings)
        defect = exact - value_and_gradient(executor, model, t, x)[0]
    size = float(np.sqrt(np.mean(defect**2)))
    relative = size / float(np.sqrt(np.mean(exact**2)))
    tolerances = [min(relative / factor, most) for factor, most in TOLERANCES]
    calls = [run_calls(problem, pair.surrogate, t, x, exact, size, rtol) for rtol in tolerances]
    milliseconds, lines = _lines(families, defect, size)
    return Table(pair.name, relative, milliseconds, lines, calls)


def _lines(families: dict[str, list[Run]], defect: Floats, size: float) -> tuple[float, list[Line]]:
    """Return the CPU milliseconds of one replicate of the reference, and the line of every family.

    `defect` (points,) is the exact solution minus the surrogate, and `size` its root mean square.
    """
    curves = {
        name: [[(seconds, error / size) for seconds, error in run.curve(defect)] for run in runs]
        for name, runs in families.items()
    }
    seconds = curves[REFERENCE][0][0][0]
    published_seconds, published_error = curves[PUBLISHED][0][0]
    lines = []
    for name, family in curves.items():
        to_published = time_to(family, published_error) / published_seconds
        lines.append(Line(name, error_at(family, seconds), to_published, family))
    return 1e3 * seconds, lines


def perturbed(model: Callable[..., Any], size: float, dim: int) -> Callable[..., Any]:
    """Return the model u(t, x) times a wave, which adds a relative error of at most `size`."""
    return lambda t, x: model(t, x) * (1 + size * jnp.sin(jnp.sum(x) / np.sqrt(dim) + 2 * t + 0.5))


def pairs() -> Iterator[Pair]:
    """Yield four surrogates for each of the five problems of the paper.

    They are trained, trained briefly, perturbed to a relative error of about 0.5, and very good.
    """
    zoo: dict[str, Problem] = {
        "convection-diffusion 10d": problems.convection_diffusion(10),
        "Burgers 20d, sigma0 0.25": problems.burgers(20),
        "Burgers 20d, sigma0 sqrt 2": problems.burgers(20, problems.BURGERS_PAPER),
        "LQG 100d": problems.lqg(100),
        "diffusion-reaction 100d": problems.diffusion_reaction(100),
    }
    for name, problem in zoo.items():
        options: dict[str, Any] = {}
        if "convection" in name:
            # The default network of this problem is exact to 1e-7 before training.
            options = {"preset": "paper", "iterations": 1000}
        good = surrogates.pinn(problem, seed=0, **options)
        best = good
        if "Burgers" in name:
            best = _burgers_solution
        elif options:
            best = surrogates.pinn(problem, seed=0)
        brief = surrogates.pinn(problem, seed=0, **{**options, "iterations": 60})
        yield Pair(f"{name}, trained", problem, good)
        yield Pair(f"{name}, trained briefly", problem, brief)
        yield Pair(f"{name}, perturbed", problem, perturbed(good, 0.7, problem.dim))
        yield Pair(f"{name}, very good", problem, perturbed(best, 0.0014, problem.dim))


def _burgers_solution(t: Any, x: Any) -> Any:
    """Return the travelling wave that solves Burgers' equation."""
    return jax.nn.sigmoid(t + jnp.sum(x))


def main(*arguments: str) -> None:
    """Print the table of docs/accuracy.md, or that of a saved surrogate with its picture.

    The arguments are the file of the surrogate and a file of points. Without the latter, random
    points of the problem are used.
    """
    if arguments:
        model = surrogates.load(arguments[0])
        points = tables.read_points(arguments[1], model.problem.dim) if arguments[1:] else None
        table = measure(Pair(Path(arguments[0]).stem, model.problem, model, points))
        print(table)
        draw(table, path := Path("accuracy.png"))
        print(f"picture: {path}")
        return
    for pair in pairs():
        print(measure(pair, ("rqmc",)), flush=True)


def draw(table: Table, path: Path) -> None:
    """Draw the curves of a table to the file `path`."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(10.0, 4.8), layout="constrained")
    # Any to satisfy type checkers: only listed colour maps have `colors`.
    colour_map: Any = plt.get_cmap("tab20")
    colours = itertools.cycle((*colour_map.colors[::2], *colour_map.colors[1::2]))
    for line, colour in zip(table.lines, colours, strict=False):
        for curve in line.curves:
            points = np.array(curve).T * [[1e3], [1.0]]
            label = line.name if curve is line.curves[0] else None
            ax.loglog(*points, "o-", color=colour, markersize=3, label=label)
    stars = np.array([(1e3 * auto.seconds, auto.error) for auto, *_ in table.calls]).T
    ax.loglog(*stars, "k*-", label="auto, pilots included")
    ax.axhline(1.0, color="black", linewidth=0.8, label="surrogate")
    ax.set_xlabel("CPU ms per point")
    ax.set_ylabel("rms error / that of the surrogate")
    ax.set_title(table.pair)
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)
