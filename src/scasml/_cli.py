"""The command line: the library's words, with files for arrays."""

import difflib
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from . import problems
from ._answer.correction import Correction
from ._correct import correct as run_correct
from ._equations.generator import Hutchinson
from ._equations.problem import Problem
from ._io import tables
from ._solve import solve as run_solve
from ._solve import trained
from ._support.errors import ArgumentError, FileError, brief, first_line, one_of
from .estimators import AbstractEstimator, Linearised, Picard
from .surrogates import load, wrap

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
)
# Tables are for reading in a terminal and in a log alike.
console = Console(width=None if sys.stdout.isatty() else 120)


@app.callback()
def _start() -> None:
    """Correct any surrogate of a high-dimensional semilinear PDE by simulating its defect, with error bars."""
    keep_compiled_programs()


def cache_folder() -> Path:
    """The user's cache folder, by the custom of each system."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "scasml" / "jax"


def keep_compiled_programs() -> None:
    """Keep JAX's compiled programs between starts, unless the user has named a folder of his own."""
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        folder = cache_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return  # a read-only home: slower starts, nothing worse
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@app.command("problems")
def list_problems() -> None:
    """The zoo: each problem with its parameters and its reference."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "parameters", "what it is", "reference, and its error"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for name, make in problems.catalogue().items():
        parameters = ", ".join(
            f"{p.name}={_short(p.default)}" for p in inspect.signature(make).parameters.values()
        )
        reference = make().reference
        known = "none" if reference is None else f"{reference.source} ({reference.error:.0e})"
        table.add_row(name, parameters, (inspect.getdoc(make) or "").split("\n")[0], known)
    console.print(table)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


Dim = Annotated[int | None, typer.Option(help="Dimension of the problem.")]
Param = Annotated[
    list[str] | None,
    typer.Option(help="A parameter of the problem, as name=value; repeat for more."),
]
Points = Annotated[
    Path | None,
    typer.Option(help="Rows t, x1, ..., xd as .csv or .npy; by default its x0 at t = 0."),
]
Time = Annotated[
    float | None, typer.Option(help="One time for all points; the rows are then x1, ..., xd.")
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Where to write: .csv, .npy or .npz.")
]
Rtol = Annotated[
    float | None, typer.Option(help="Stop a point at this relative error, bias included.")
]
Atol = Annotated[float | None, typer.Option(help="Stop a point at this absolute error.")]
Seconds = Annotated[float | None, typer.Option(help="Stop after so long, compilation included.")]
Replicates = Annotated[
    int | None,
    typer.Option(help="Stop after so many independent repeats; with no rule, one second's worth."),
]
Method = Annotated[
    str,
    typer.Option(
        help="auto, picard or linearised; auto with an option of Picard's is picard.",
        show_default=True,
    ),
]
Levels = Annotated[int | None, typer.Option(help="Picard levels.")]
Samples = Annotated[
    int | None, typer.Option(help="Paths of a replicate; of Picard, base of the sample numbers.")
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw", help="Do not shrink corrections that are hardly larger than their noise."
    ),
]
Diagnose = Annotated[bool, typer.Option("--diagnose", help="Say in plain words what is wrong.")]
Seed = Annotated[
    int, typer.Option(help="Fixes the draws: the answer for given replicates, bit for bit.")
]
Dtype = Annotated[str, typer.Option(help="float32 or float64.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
Steps = Annotated[int | None, typer.Option(help="Steps of training, at most.")]


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
    points: Points = None,
    output: Output = None,
    dim: Dim = None,
    param: Param = None,
    t: Time = None,
    inputs: Annotated[
        str | None, typer.Option(help='How the model is called: "t, x", "tx" or "xt".')
    ] = None,
    method: Method = "auto",
    levels: Levels = None,
    samples: Samples = None,
    sampling: Annotated[str | None, typer.Option(help="mc, antithetic or rqmc.")] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Of picard: independent halves inside F.")
    ] = False,
    allocation: Annotated[
        str | None, typer.Option(help="Of picard, its samples per level: paper or measured.")
    ] = None,
    remainder: Annotated[
        int | None, typer.Option(help="Paths inside the remainder of linearised, or 0.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="full-history or quadrature.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of the quadrature.")] = None,
    gradient: Annotated[
        str | None, typer.Option(help="auto, pathwise, mixed, centred or weights.")
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="euler or milstein, for paths not drawn exactly.")
    ] = None,
    steps: Annotated[str | None, typer.Option(help="Steps of such a path, or auto.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Clip every component to this size.")
    ] = None,
    hutchinson: Annotated[
        int | None, typer.Option(help="Estimate the trace from so many coordinates.")
    ] = None,
    rtol: Rtol = None,
    atol: Atol = None,
    seconds: Seconds = None,
    replicates: Replicates = None,
    raw: Raw = False,
    diagnose: Diagnose = False,
    seed: Seed = 0,
    dtype: Dtype = "float32",
    quiet: Quiet = False,
) -> None:
    """Correct a surrogate at the points of a file; write the answers, show the first of them."""
    if output is not None:
        tables.check_writable(output)
    equation, model = _pair(problem, surrogate, dim, param or [], inputs)
    ts, xs = _points(points, equation, t)
    answer = run_correct(
        equation,
        model,
        ts,
        xs,
        method=_method(
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
            steps=int(steps) if steps is not None and steps.lstrip("-").isdigit() else steps,
        ),
        rtol=rtol,
        atol=atol,
        seconds=seconds,
        replicates=replicates,
        safe=not raw,
        seed=seed,
        laplacian="exact" if hutchinson is None else Hutchinson(hutchinson),
        dtype=dtype,
        progress=not quiet and sys.stderr.isatty(),
    )
    _show(answer, output, diagnose)


@app.command()
def train(
    problem: Annotated[str, typer.Argument(help="A name that `scasml problems` lists.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to write the surrogate: .safetensors.")
    ],
    dim: Dim = None,
    param: Param = None,
    surrogate: Annotated[str, typer.Option(help="pinn, gp or tensor_train.")] = "pinn",
    preset: Annotated[
        str | None, typer.Option(help="default, or paper for the published settings.")
    ] = None,
    steps: Steps = None,
    seconds: Annotated[float | None, typer.Option(help="End after about so long.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="A picture of the residual, step by step: .png, .pdf, .svg.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Go on from this file, and keep the run in it.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the surrogate, bit for bit.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Train a surrogate where answers are wanted and where paths from there go."""
    equation = _problem(problem, dim, param or [])
    tables.check_writable(output, (".safetensors",))
    if plot is not None:
        tables.check_writable(plot, (".png", ".pdf", ".svg"), "plot")
    options = {"preset": preset, "steps": steps, "seconds": seconds, "checkpoint": checkpoint}
    given = {name: value for name, value in options.items() if value is not None}
    model = trained(
        equation, surrogate, seed=seed, progress=not quiet and sys.stderr.isatty(), **given
    )
    model.save(output)
    if plot is not None:
        model.plot().figure.savefig(plot, dpi=150)
    typer.echo(f"Trained a {model.described()}.")
    typer.echo(f"Wrote {output}.")


@app.command()
def solve(
    problem: Annotated[str, typer.Argument(help="A name that `scasml problems` lists.")],
    points: Points = None,
    output: Output = None,
    dim: Dim = None,
    param: Param = None,
    t: Time = None,
    from_nothing: Annotated[
        bool, typer.Option("--train", help="Train, even if a surrogate is shipped.")
    ] = False,
    surrogate: Annotated[
        str, typer.Option(help="The kind to train: auto, pinn, gp or tensor_train.")
    ] = "auto",
    steps: Steps = None,
    method: Method = "auto",
    levels: Levels = None,
    samples: Samples = None,
    rtol: Rtol = None,
    atol: Atol = None,
    seconds: Seconds = None,
    replicates: Replicates = None,
    raw: Raw = False,
    diagnose: Diagnose = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """From nothing: take the surrogate that is shipped for a problem, or train one, and correct it."""
    if output is not None:
        tables.check_writable(output)
    equation = _problem(problem, dim, param or [])
    ts, xs = _points(points, equation, t)
    answer = run_solve(
        equation,
        ts,
        xs,
        surrogate="pinn" if from_nothing and surrogate == "auto" else surrogate,  # type: ignore[arg-type]
        training=None if steps is None else {"steps": steps},
        method=_method(method, levels=levels, samples=samples),
        rtol=rtol,
        atol=atol,
        seconds=seconds,
        replicates=replicates,
        safe=not raw,
        seed=seed,
        progress=not quiet and sys.stderr.isatty(),
    )
    _show(answer, output, diagnose)
    typer.echo(answer.shares() + ".")


def _pair(
    problem: str, surrogate: str | None, dim: int | None, param: list[str], inputs: str | None
) -> tuple[Problem, Any]:
    """The problem and its model; a surrogate of ours on disk knows its problem."""
    if problem.endswith(".safetensors"):
        if surrogate is not None or dim is not None or param:
            raise ArgumentError(
                f"problem is given by the file already, got {problem!r} and more: leave out --surrogate, --dim and --param."
            )
        model = load(problem)
        return model.problem, model
    equation = _problem(problem, dim, param)
    if surrogate is None:
        raise ArgumentError(
            "surrogate is missing: pass --surrogate model.py:u, a surrogate.safetensors, or none."
        )
    if surrogate == "none":
        return equation, None
    return equation, load(surrogate, equation) if surrogate.endswith(".safetensors") else wrap(
        _load(surrogate), equation, inputs=inputs
    )


def _method(method: str, **options: Any) -> AbstractEstimator | str:
    """The estimator of that name with the options that were given."""
    one_of("method", method, ("auto", "picard", "linearised"))
    given = {name: value for name, value in options.items() if value is not None}
    if method == "auto" and not given:
        return "auto"
    make = Linearised if method == "linearised" else Picard
    known = inspect.signature(make).parameters
    for name, value in given.items():
        if name not in known:
            raise ArgumentError(
                f"{name} is not an option of {make.__name__}, got {brief(value)}: leave it out."
            )
    return make(**given)


def _points(points: Path | None, equation: Problem, t: float | None) -> tuple[Any, Any]:
    if points is not None:
        return tables.read_points(points, equation.dim, t)
    return np.full(1, t or 0.0), equation.x0[None]


def _show(answer: Correction, output: Path | None, diagnose: bool) -> None:
    if output is not None:
        answer.save(output)
    console.print(_answers(answer))
    evaluations = f"{answer.cost.functions:,} evaluations of F and g, {answer.cost.random_numbers:,} random numbers"
    console.print(
        f"{answer.cost.replicates:,} replicates in {answer.cost.seconds:.1f} s ({answer.stopped}); {evaluations}."
    )
    if diagnose:
        typer.echo(str(answer.diagnose()))
    if output is not None:
        # Not by rich, which would wrap the path and read a [b] in it as markup.
        typer.echo(f"Wrote {len(answer.value)} answers to {output}.")


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Which: residual, correction, paths, naive, published, memory, intervals, never_worse, elastic, deadline, surrogates, gp, "
            "values, accuracy; by default the first two. After accuracy: a saved surrogate, and points; after intervals: methods."
        ),
    ] = None,
) -> None:
    """Side-by-side ratios of CPU time, each from one interleaved run; and the published tables made again."""
    folder = _benchmarks()
    known = sorted(
        path.stem for path in folder.glob("*.py") if "def main(" in path.read_text(encoding="utf-8")
    )
    asked: list[list[str]] = []
    for name in names or ["residual", "correction"]:
        if asked and asked[-1][0] in ("accuracy", "intervals") and name not in known:
            asked[-1].append(str(Path(name).absolute()) if asked[-1][0] == "accuracy" else name)
        elif name in known:
            asked.append([name])
        else:
            raise ArgumentError(
                f"bench must be one of {', '.join(known)}, got {name!r}: name one of these."
            )
    for name, *files in asked:
        command = f"import sys, {name}; {name}.main(*sys.argv[1:])"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        }
        subprocess.run([sys.executable, "-c", command, *files], check=True, env=environment)


def _benchmarks() -> Path:
    """Inside an installed package, or beside the sources."""
    here = Path(__file__).parent
    for folder in (here / "_benchmarks", here.parents[1] / "benchmarks"):
        if folder.is_dir():
            return folder
    raise FileError(
        "bench: the benchmarks are not installed here: reinstall scasml, or run from a checkout."
    )


def _problem(name: str, dim: int | None, parameters: list[str]) -> Problem:
    catalogue = problems.catalogue()
    if name not in catalogue:
        near = ", ".join(difflib.get_close_matches(name, catalogue, n=3, cutoff=0.3)) or "hjb"
        raise ArgumentError(
            f"problem must be one of those that `scasml problems` lists, got {name!r}: take one, such as {near}."
        )
    make = catalogue[name]
    known = inspect.signature(make).parameters
    if dim is not None and "dim" not in known:
        raise ArgumentError(
            f"dim is not a parameter of {name}, got {dim}: leave it out, its dimension is fixed."
        )
    keywords: dict[str, Any] = {} if dim is None else {"dim": dim}
    for text in parameters:
        key, equals, value = text.partition("=")
        if not equals or key not in known:
            raise ArgumentError(
                f"param must be name=value with a name among {', '.join(known)}, got {text!r}: mend it."
            )
        kind = type(known[key].default)
        try:
            keywords[key] = kind(value)
        except ValueError as error:
            raise ArgumentError(
                f"param {key} must be {kind.__name__}, got {value!r}: mend it."
            ) from error
    return make(**keywords)


def _load(reference: str) -> Any:
    """The object `u` of `model.py:u`. The file is the user's own code, and is run."""
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise ArgumentError(
            f"surrogate must be file.py:name or none, got {reference!r}: name a function in a Python file."
        )
    path = Path(file)
    if not path.is_file():
        raise FileError(f"surrogate: there is no file {file!r}: check the path.")
    spec = importlib.util.spec_from_file_location(f"scasml_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = (
        module  # dataclasses, and so equinox modules, look their annotations up there
    )
    sys.path.insert(
        0, str(path.absolute().parent)
    )  # the model may import its neighbours, now or when it is called
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise FileError(
            f"surrogate: running {file!r} failed with {first_line(error)}: mend the file."
        ) from error
    if name not in vars(module):
        raise ArgumentError(f"surrogate: {file!r} defines no {name!r}: name one of its functions.")
    return vars(module)[name]


def _answers(answer: Correction, shown: int = 12) -> Table:
    exact = answer.exact()
    table = Table(box=None, pad_edge=False)
    for heading in (
        "point",
        "t",
        "surrogate",
        "corrected",
        "95 % interval",
        "bias",
        "exact",
        "error: surrogate",
        "corrected",
        "status",
    ):
        table.add_column(heading, justify="left" if heading == "status" else "right")
    lower, upper = answer.interval(0.95)
    for i in range(min(shown, len(answer.value))):
        true = None if exact is None or np.isnan(exact[i]) else exact[i]
        table.add_row(
            str(i),
            f"{answer.t[i]:.3f}",
            f"{answer.surrogate_value[i]:.6g}" if answer.has_surrogate else "none",
            f"{answer.value[i]:.6g}",
            f"[{lower[i]:.6g}, {upper[i]:.6g}]".replace("[", r"\["),
            f"{answer.bias[i]:.1g}",
            "unknown" if true is None else f"{true:.6g}",
            ""
            if true is None or not answer.has_surrogate
            else f"{answer.surrogate_value[i] - true:+.1e}",
            "" if true is None else f"{answer.value[i] - true:+.1e}",
            str(answer.status[i]),
        )
    if len(answer.value) > shown:
        table.add_row("...", *[""] * 8, f"{len(answer.value) - shown} more")
    return table
