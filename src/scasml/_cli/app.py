"""The commands of `scasml`."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from .. import _api, _bench, problems
from .._equations.generator import Hutchinson
from .._io import tables
from .._support.errors import ArgumentError, first_line
from ..surrogates.trained import train_kind
from . import cache
from . import options as o
from .inputs import read_method, read_model, read_points, read_problem
from .output import console, show

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
# Benchmarks that run if none is named.
DEFAULT_BENCHMARKS = ("residual", "correction")


@app.callback()
def _start(
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import", help="Import this module first, such as one that registers a problem."
        ),
    ] = None,
) -> None:
    """Correct any surrogate of a high-dimensional semilinear PDE, with error bars."""
    cache.keep_compiled_programs()
    for name in modules or []:
        # Modules of the current folder can be imported, as with `python -m`.
        sys.path.insert(0, "")
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise ArgumentError(
                f"import must name a module that can be imported, got {name!r} "
                f"({first_line(error)}): check its name and its code."
            ) from error


def _shows_progress(quiet: bool) -> bool:
    return not quiet and sys.stderr.isatty()


@app.command("problems")
def list_problems() -> None:
    """List the zoo: each problem with its parameters and its reference."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "parameters", "what it is", "reference, and its error"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for name, make in problems.catalogue().items():
        parameters = inspect.signature(make).parameters.values()
        defaults = ", ".join(f"{p.name}={_short(p.default)}" for p in parameters)
        reference = make().reference
        known = "none" if reference is None else f"{reference.source} ({reference.error:.0e})"
        table.add_row(name, defaults, (inspect.getdoc(make) or "").split("\n")[0], known)
    console.print(table)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command()
def correct(
    problem: Annotated[
        str, typer.Argument(help="A name that `scasml problems` lists, or a surrogate.safetensors.")
    ],
    surrogate: Annotated[
        str | None,
        typer.Option(
            help="model.py:u, a function u(t, x) of one point; a surrogate.safetensors; or `none`."
        ),
    ] = None,
    points: o.Points = None,
    output: o.Output = None,
    dim: o.Dim = None,
    param: o.Param = None,
    t: o.Time = None,
    inputs: Annotated[
        str | None, typer.Option(help='How the model is called: "t, x", "tx" or "xt".')
    ] = None,
    method: o.Method = "auto",
    levels: o.Levels = None,
    samples: o.Samples = None,
    sampling: Annotated[str | None, typer.Option(help="mc, antithetic or rqmc.")] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="For picard: independent halves inside F.")
    ] = False,
    allocation: Annotated[
        str | None, typer.Option(help="For picard, samples per level: paper or measured.")
    ] = None,
    remainder: Annotated[
        int | None, typer.Option(help="For linearised, paths inside the remainder, or 0.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="full-history or quadrature.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of the quadrature.")] = None,
    gradient: Annotated[
        str | None, typer.Option(help="auto, pathwise, mixed, centred or weights.")
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="Such as euler or milstein, for paths not drawn exactly.")
    ] = None,
    steps: Annotated[str | None, typer.Option(help="Steps of such a path, or auto.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Clip every component to this size.")
    ] = None,
    hutchinson: Annotated[
        int | None, typer.Option(help="Estimate the trace from this number of coordinates.")
    ] = None,
    rtol: o.Rtol = None,
    atol: o.Atol = None,
    seconds: o.Seconds = None,
    replicates: o.Replicates = None,
    raw: o.Raw = False,
    diagnose: o.Diagnose = False,
    seed: o.Seed = 0,
    dtype: o.Dtype = None,
    quiet: o.Quiet = False,
) -> None:
    """Correct a surrogate at the points of a file; write the answers, show the first of them."""
    if output is not None:
        tables.check_writable(output)
    equation, model = read_model(problem, surrogate, dim, param or [], inputs)
    ts, xs = read_points(points, equation, t)
    is_number = steps is not None and steps.lstrip("-").isdigit()
    answer = _api.correct(
        equation,
        model,
        ts,
        xs,
        method=read_method(
            method,
            levels=levels,
            samples=samples,
            sampling=sampling,
            pairs=pairs or None,
            allocation=allocation,
            remainder=remainder,
            time=time,
            nodes=nodes,
            gradient=gradient,
            threshold=threshold,
            scheme=scheme,
            steps=int(steps) if is_number else steps,  # type: ignore[arg-type]
        ),
        rtol=rtol,
        atol=atol,
        seconds=seconds,
        replicates=replicates,
        safe=not raw,
        seed=seed,
        laplacian="exact" if hutchinson is None else Hutchinson(hutchinson),
        dtype=dtype,
        progress=_shows_progress(quiet),
    )
    show(answer, output, diagnose)


@app.command()
def train(
    problem: o.ProblemName,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to write the surrogate: .safetensors.")
    ],
    dim: o.Dim = None,
    param: o.Param = None,
    kind: o.Kind = "pinn",
    preset: Annotated[
        str | None, typer.Option(help="default, or paper for the published settings.")
    ] = None,
    iterations: o.Iterations = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="About how long the iterations of a PINN may take, with their compilation."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="A picture of the residual during training: .png, .pdf, .svg."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Continue from this file, and keep the run in it.")
    ] = None,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Train a surrogate where answers are wanted and where paths from there go."""
    equation = read_problem(problem, dim, param or [])
    tables.check_writable(output, (".safetensors",))
    if plot is not None:
        tables.check_writable(plot, (".png", ".pdf", ".svg"), "plot")
    options = {
        "preset": preset,
        "iterations": iterations,
        "seconds": seconds,
        "checkpoint": checkpoint,
    }
    given = {name: value for name, value in options.items() if value is not None}
    model = train_kind(equation, kind, seed=seed, progress=_shows_progress(quiet), **given)
    model.save(output)
    if plot is not None:
        model.plot().figure.savefig(plot, dpi=150)
    typer.echo(f"Trained a {model.described()}.")
    typer.echo(f"Wrote {output}.")


@app.command()
def solve(
    problem: o.ProblemName,
    points: o.Points = None,
    output: o.Output = None,
    dim: o.Dim = None,
    param: o.Param = None,
    t: o.Time = None,
    must_train: Annotated[
        bool, typer.Option("--train", help="Train, even if a surrogate is shipped.")
    ] = False,
    kind: o.Kind = "auto",
    iterations: o.Iterations = None,
    method: o.Method = "auto",
    levels: o.Levels = None,
    samples: o.Samples = None,
    rtol: o.Rtol = None,
    atol: o.Atol = None,
    seconds: o.Seconds = None,
    replicates: o.Replicates = None,
    raw: o.Raw = False,
    diagnose: o.Diagnose = False,
    seed: o.Seed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Solve a problem from nothing: load the shipped surrogate or train one, and correct it."""
    if output is not None:
        tables.check_writable(output)
    equation = read_problem(problem, dim, param or [])
    ts, xs = read_points(points, equation, t)
    answer = _api.solve(
        equation,
        ts,
        xs,
        kind="pinn" if must_train and kind == "auto" else kind,
        training=None if iterations is None else {"iterations": iterations},
        method=read_method(method, levels=levels, samples=samples),
        rtol=rtol,
        atol=atol,
        seconds=seconds,
        replicates=replicates,
        safe=not raw,
        seed=seed,
        progress=_shows_progress(quiet),
    )
    show(answer, output, diagnose)
    typer.echo(answer.shares() + ".")


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Which of {', '.join(_bench.names())}, each followed by its own arguments if it "
            f"takes any; by default {' and '.join(DEFAULT_BENCHMARKS)}."
        ),
    ] = None,
) -> None:
    """Print ratios of CPU time, each from one interleaved run, and the published tables."""
    commands: list[list[str]] = []
    for word in names or DEFAULT_BENCHMARKS:
        if word in _bench.BENCHMARKS:
            commands.append([word])
        elif commands and _bench.BENCHMARKS[commands[-1][0]].arguments:
            commands[-1].append(word)
        else:
            known = ", ".join(_bench.names())
            raise ArgumentError(f"bench must be one of {known}, got {word!r}: name one of these.")
    for command in commands:
        subprocess.run([sys.executable, "-m", "scasml._bench", *command], check=True)
