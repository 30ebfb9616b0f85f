"""Ports of this machine that nobody listens on."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from random import SystemRandom

from fedtrain.errors import TrainingError

LOOPBACK = "127.0.0.1"
PORT_RANGE = range(
    20_000, 32_000
)  # below those that a system hands out by itself, so that a part can have its own again


def find_free_ports(count: int) -> list[int]:
    """So many different ones, all free at the same moment."""
    found: list[int] = []
    with ExitStack() as held:
        for port in SystemRandom().sample(PORT_RANGE, len(PORT_RANGE)):
            if len(found) == count:
                break
            listener = held.enter_context(socket.socket())
            try:
                listener.bind((LOOPBACK, port))
                found.append(port)
            except OSError:
                listener.close()
    if len(found) < count:
        raise TrainingError(f"{count} free ports are wanted and only {len(found)} are there; start fewer clients")
    return found
