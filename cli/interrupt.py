"""How a long command is stopped: Ctrl-C and SIGTERM alike, with a word on how to go on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The user stopped the command; the message says how to go on."""


@contextmanager
def handle_interrupts(state: Callable[[], str]) -> Iterator[None]:
    """Turn an interruption into `Interrupted`, once all within has saved what it had; ``state`` is asked then."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted {state()}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
