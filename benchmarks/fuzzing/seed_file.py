"""A valid file that knows its parts, so that damage can be done beneath its checksums and compression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


def join_parts(parts: Sequence[bytes]) -> bytes:
    """One part after another."""
    return b"".join(parts)


@dataclass(frozen=True)
class Seed:
    """``build`` makes the file of the parts: it packs them, and writes lengths and checksums that fit."""

    parts: tuple[bytes, ...]
    build: Callable[[Sequence[bytes]], bytes] = join_parts

    @property
    def content(self) -> bytes:
        """The file without damage."""
        return self.build(self.parts)


def build_plain_seed(data: bytes) -> Seed:
    """A file of one piece."""
    return Seed((data,))
