"""The options that several commands share. An option has one meaning in all commands."""

from pathlib import Path
from typing import Annotated

import typer

ProblemName = Annotated[str, typer.Argument(help="A name that `scasml problems` lists.")]
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
Seconds = Annotated[float | None, typer.Option(help="Stop after this time, compilation included.")]
Replicates = Annotated[
    int | None,
    typer.Option(help="Stop after this number of independent repeats; no rule means 1 second."),
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
    int | None, typer.Option(help="Paths of a replicate; for Picard, base of the samples.")
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw", help="Do not shrink corrections that are hardly larger than their noise."
    ),
]
Diagnose = Annotated[bool, typer.Option("--diagnose", help="Say in plain words what is wrong.")]
Seed = Annotated[int, typer.Option(help="Fixes all draws: surrogate and replicates, bit for bit.")]
Dtype = Annotated[str | None, typer.Option(help="float32 or float64; by default that of JAX.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
Kind = Annotated[str, typer.Option(help="The kind of surrogate to train, such as pinn.")]
Iterations = Annotated[int | None, typer.Option(help="Iterations of training, at most.")]
