"""Progress of long work on data: who is told, and what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and how much there is (0: unknown)."""


def ignore_progress(what: str, done: int, total: int) -> None:
    """Tell nobody."""


_follower: ContextVar[Progress] = ContextVar("follower", default=ignore_progress)


def tell_progress(what: str, done: int, total: int) -> None:
    """Tell whoever follows, if anybody does."""
    _follower.get()(what, done, total)


@contextmanager
def follow_progress(progress: Progress) -> Iterator[None]:
    """Within, hear of data that are looked for and read, however deep in a call."""
    token = _follower.set(progress)
    try:
        yield
    finally:
        _follower.reset(token)
