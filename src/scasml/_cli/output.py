"""How the command line shows an answer."""

import sys
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from .._answer.correction import Correction

# Width of tables that are not printed to a terminal.
LOG_WIDTH = 120
console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)


def show(answer: Correction, output: Path | None, diagnose: bool) -> None:
    """Write the answer to the file `output`, if any, and print its first points and its cost.

    With `diagnose`, the diagnosis is printed too.
    """
    if output is not None:
        answer.save(output)
    console.print(_table(answer))
    cost = answer.cost
    console.print(
        f"{cost.replicates:,} replicates in {cost.seconds:.1f} s ({answer.stopped}); "
        f"{cost.functions:,} evaluations of F and g, {cost.random_numbers:,} random numbers."
    )
    if diagnose:
        typer.echo(str(answer.diagnose()))
    if output is not None:
        # rich would wrap the path, and read a [b] in it as markup.
        typer.echo(f"Wrote {len(answer.value)} answers to {output}.")


def _table(answer: Correction, shown: int = 12) -> Table:
    """Return a table of the first `shown` points, with errors where the exact value is known."""
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
            str(answer.statuses[i]),
        )
    if len(answer.value) > shown:
        table.add_row("...", *[""] * 8, f"{len(answer.value) - shown} more")
    return table
