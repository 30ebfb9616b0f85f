"""How ``fedco2 data`` shows tables and progress: for people on a terminal, in plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from cli.console import make_console

Progress = Callable[[str, int, int], None]


def format_size(count: int) -> str:
    """Bytes as people say them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB" if count else ""


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table; without a terminal one line a row, in columns."""
    screen = make_console()
    texts = [[str(cell) for cell in row] for row in rows]
    if screen.is_terminal:
        from rich import box
        from rich.table import Table

        table = Table(*header, box=box.SIMPLE_HEAD)
        for row in texts:
            table.add_row(*row)
        screen.print(table)
        return
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    for row in [list(header), *texts]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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
