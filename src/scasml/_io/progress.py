"""Progress of a run: the records that a `progress` function receives, and a bar on the terminal.

`correction_bar` and `training_bar` turn the option `progress` into a function to call, or None.
rich is imported inside `bar` because it is an optional dependency.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .._support.errors import missing_extra


class Progress(NamedTuple):
    """The progress of a correction. Its `progress` function receives it several times a second.

    - `points_done`, `points`: the number of points that are done, and of all points.
    - `rows`: the number of replicates so far, summed over the points.
    - `worst`: the largest ratio of the half width of the 95 % interval to the value, among the
      points that are not done; NaN while it is unknown.
    - `seconds`: since the start of the run.
    - `seconds_left`: predicted from the decay of the half width as 1/sqrt(replicates). Infinite if
      it is unknown, or if neither a clock nor a reachable rule ends the run.
    """

    points_done: int
    points: int
    rows: int
    worst: float
    seconds: float
    seconds_left: float


Report = Callable[[Progress], object]


class Training(NamedTuple):
    """The progress of a training run. Its `progress` function receives it after some steps."""

    step: int
    steps: int  # the last step; training may end before it if the residual stops falling
    loss: float
    residual: float  # root mean square
    seconds: float


TrainingReport = Callable[[Training], object]


@contextmanager
def bar(text: str) -> Iterator[Callable[[float, float | None, str], object]]:
    """Show a progress bar with the title `text` on stderr, and yield the function that updates it.

    The function takes the amount done, the total amount (None if unknown), and a text to show
    beside the bar. Raises MissingExtraError if rich is not installed.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
    except ImportError as error:
        raise missing_extra("rich", "cli", "progress=True") from error
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None, state="compiling")

        yield lambda done, total, state: progress.update(
            task, completed=done, total=total, state=state
        )


@contextmanager
def correction_bar(progress: bool | Report) -> Iterator[Report | None]:
    """Yield the function to call with each `Progress`, or None.

    `progress` is the option of the user: True shows a bar, False yields None, and a function is
    yielded as it is.
    """
    if not isinstance(progress, bool):
        yield progress
    elif progress:
        with bar("correcting") as draw:

            def report(now: Progress) -> None:
                total = now.seconds + now.seconds_left
                draw(now.seconds, total if 0 < total < float("inf") else None, describe(now))

            yield report
    else:
        yield None


@contextmanager
def training_bar(progress: bool | TrainingReport) -> Iterator[TrainingReport | None]:
    """Yield the function to call with each `Training`, or None; see `correction_bar`."""
    if not isinstance(progress, bool):
        yield progress
    elif progress:
        with bar("training") as draw:
            yield lambda now: draw(
                now.step,
                now.steps,
                f"step {now.step} of {now.steps}, loss {now.loss:.2e}, residual {now.residual:.2e}",
            )
    else:
        yield None


def describe(now: Progress) -> str:
    """Describe progress in words, such as `812/1000 points, worst error 3.1 %, 12 s left`."""
    parts = [f"{now.points_done}/{now.points} points"]
    if now.worst == now.worst:  # False for NaN
        parts.append(f"worst error {100 * now.worst:.2g} %")
    if now.seconds_left < float("inf"):
        parts.append(f"{duration(now.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Format a duration, such as `12 s`, `3 min`, `5 hours` or `2 days`."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
