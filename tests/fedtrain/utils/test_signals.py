"""Signals: a handler while something runs, an interruption that waits."""

from __future__ import annotations

import signal
import threading

import pytest

from fedtrain.utils.signals import defer_interrupts, handle_signals


def test_a_handler_holds_within_and_the_old_one_after():
    before, came = signal.getsignal(signal.SIGTERM), []
    with handle_signals(lambda number, frame: came.append(number)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert came == [signal.SIGTERM, signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_old_handler_is_back_after_an_error_too():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), handle_signals(lambda number, frame: None, [signal.SIGTERM]):
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_get_no_signals_and_no_error():
    done = []

    def work() -> None:
        with handle_signals(lambda number, frame: None), defer_interrupts():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_an_interruption_waits_for_the_end():
    steps = []

    def work() -> None:
        with defer_interrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("finished")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["finished"]
