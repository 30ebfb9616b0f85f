"""Signals: what is done on Ctrl-C and SIGTERM while something runs, and Ctrl-C put off to a better moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

INTERRUPT_SIGNALS = (signal.SIGINT, signal.SIGTERM)


SignalHandler = Callable[[int, FrameType | None], None]


@contextmanager
def handle_signals(handler: SignalHandler, numbers: Sequence[signal.Signals] = INTERRUPT_SIGNALS) -> Iterator[None]:
    """Within, these signals are for the handler; then for whom they were before. Only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Finish first what must not be torn apart: within, an interruption waits; at the end it is delivered."""
    came: list[int] = []
    try:
        with handle_signals(lambda number, frame: came.append(number)):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])
