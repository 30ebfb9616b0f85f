"""Stands between one node and its SuperLink on 127.0.0.1, and counts what passes."""

from __future__ import annotations

import socket
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from threading import Thread

LOOPBACK = "127.0.0.1"
CHUNK_SIZE = 2**18


@dataclass
class ByteCounter:
    """Bytes one way, and when."""

    chunks: list[tuple[float, int]] = field(default_factory=list)

    def count_between(self, marks: list[float]) -> list[int]:
        """From each of these moments to the next."""
        pieces = sorted(self.chunks)
        times, sums = [at for at, _ in pieces], [0, *accumulate(count for _, count in pieces)]
        upto = [sums[bisect_right(times, mark)] for mark in marks]
        return [later - earlier for earlier, later in pairwise(upto)]


class Proxy:
    """Up is to the SuperLink."""

    def __init__(self, listener: socket.socket, port: int) -> None:
        self.listener, self.port = listener, port
        self.up, self.down = ByteCounter(), ByteCounter()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{LOOPBACK}:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        """Until the listener is closed."""
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection((LOOPBACK, self.port))
                except OSError:
                    near.close()
                    continue
                Thread(target=self._relay, args=(near, far), daemon=True).start()

    def _relay(self, near: socket.socket, far: socket.socket) -> None:
        """Until both have nothing more to say."""
        with near, far:
            back = Thread(target=_forward_bytes, args=(far, near, self.down), daemon=True)
            back.start()
            _forward_bytes(near, far, self.up)
            back.join()


def _forward_bytes(one: socket.socket, other: socket.socket, passed: ByteCounter) -> None:
    with suppress(OSError):
        while piece := one.recv(CHUNK_SIZE):
            passed.chunks.append((time.perf_counter(), len(piece)))
            other.sendall(piece)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)  # pass on that this was all


@contextmanager
def open_proxy(port: int) -> Iterator[Proxy]:
    """One before this port."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        made = Proxy(listener, port)
        serving = Thread(target=made.serve, daemon=True)
        serving.start()
        try:
            yield made
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # to close it would not wake who waits for a connection
            serving.join()
