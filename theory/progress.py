"""Show the progress of a verification on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from theory.study import ProgressCallback

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def show_progress(screen: Console | None) -> Iterator[ProgressCallback]:
    """A bar while there is a terminal to see it."""
    if screen is None or not screen.is_terminal:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("preparing", total=1)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def make_stderr_screen() -> Console:
    """A console for what is said while the work goes on."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False, emoji=False)
