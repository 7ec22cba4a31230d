"""How a run is getting on, and a bar of it on the terminal. rich is imported when one is asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .._support.errors import missing_extra


class Progress(NamedTuple):
    """What a `progress` function is called with, a few times a second."""

    points_done: int
    points: int
    rows: int  # replicates at points, so far
    worst: float  # half of the widest 95 % interval over its value, among points not done; NaN while unknown
    seconds: float
    seconds_left: float  # by the 1/sqrt(N) law; infinite where no rule or no number of replicates ends the run


Report = Callable[[Progress], object]


class Training(NamedTuple):
    """What the `progress` function of a training run is called with, after every chunk of steps."""

    step: int
    steps: int  # at which it ends, if the residual does not stop falling before
    loss: float
    residual: float  # root mean square
    seconds: float


TrainingReport = Callable[[Training], object]


@contextmanager
def bar(text: str) -> Iterator[Callable[[float, float | None, str], object]]:
    """Yields a report that draws: how much is done, of how much if that is known, and words."""
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

        yield lambda done, whole, words: progress.update(
            task, completed=done, total=whole, state=words
        )


@contextmanager
def correction_bar(progress: bool | Report) -> Iterator[Report | None]:
    """The user's own function, a bar, or nothing."""
    if not isinstance(progress, bool):
        yield progress
    elif progress:
        with bar("correcting") as draw:

            def report(now: Progress) -> None:
                whole = now.seconds + now.seconds_left
                draw(now.seconds, whole if 0 < whole < float("inf") else None, describe(now))

            yield report
    else:
        yield None


@contextmanager
def training_bar(progress: bool | TrainingReport) -> Iterator[TrainingReport | None]:
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
    """`812/1000 points, worst error 3.1 %, 12 s left`."""
    parts = [f"{now.points_done}/{now.points} points"]
    if now.worst == now.worst:
        parts.append(f"worst error {100 * now.worst:.2g} %")
    if now.seconds_left < float("inf"):
        parts.append(f"{duration(now.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """`12 s`, `3 min`, `5 hours`, `2 days`."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
