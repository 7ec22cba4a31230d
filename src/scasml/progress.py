"""A progress bar on the terminal. rich is imported when one is asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import missing_extra

Report = Callable[[int, int | None], None]


@contextmanager
def bar(text: str) -> Iterator[Report]:
    """Yields report(done, total); a total of None shows a pulse."""
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError as error:
        raise missing_extra("rich", "cli", "progress=True") from error
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
