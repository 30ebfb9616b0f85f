"""How ``fedco2 data`` shows progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from cli.console import make_console

Progress = Callable[[str, int, int], None]


@contextmanager
def show_progress(quiet: bool = False) -> Iterator[Progress]:
    """A bar on stderr; without a terminal one line for each thing that is begun."""
    screen = make_console(stderr=True)
    if quiet:
        yield lambda what, done, total: None
        return
    if not screen.is_terminal:
        begun: set[str] = set()

        def line(what: str, done: int, total: int) -> None:
            if what not in begun:
                begun.add(what)
                click.echo(f"{what} ...", err=True)

        yield line
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("preparing", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)
