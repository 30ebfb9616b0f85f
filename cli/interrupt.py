"""Stop a long command: Ctrl-C and SIGTERM alike, with a word on how to go on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fedtrain.utils.signals import handle_signals


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The user stopped the command; the message says how to go on."""


@contextmanager
def handle_interrupts(state: Callable[[], str]) -> Iterator[None]:
    """Turn an interruption into `Interrupted`, once all within has saved what it had; ``state`` is asked then."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        with handle_signals(interrupt, [signal.SIGTERM]):
            yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted {state()}") from None
