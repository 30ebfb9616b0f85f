"""How long work tells that it goes on."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and how much there is (0: unknown)."""


def ignore_progress(what: str, done: int, total: int) -> None:
    """Tell nobody."""
