"""What all commands share: how they speak, and their exit codes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

CHECK_FAILED = 1
BAD_INPUT = 2
DATA_MISSING = 3
BUG = 70
INTERRUPTED = 130
PIPE_CLOSED = 141


def make_console(stderr: bool = False) -> Console:
    """A console that prints text as it is, and in colour only on a terminal without NO_COLOR."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            """Leave a closed pipe to `cli.main`; rich would exit with 1, which means a failed check here."""
            raise BrokenPipeError

    return Ours(stderr=stderr, markup=False, highlight=False, emoji=False)


def show_status_line(message: str) -> AbstractContextManager[Any]:
    """Shows on a terminal that something is being done; elsewhere nothing."""
    screen = make_console(stderr=True)
    return screen.status(message) if screen.is_terminal else nullcontext()
