"""Damage, drawn at random: to a whole file, or to one of its parts before it is put together."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

from fuzzing.seed_file import Seed

MAX_INPUT_SIZE = 2**20  # bytes of an input: damage shall be small, so that many can be tried
EXTREME_VALUES = [
    struct.pack(order + code, number)
    for order in "<>"
    for code, numbers in {
        "B": (0, 0x7F, 0x80, 0xFF),
        "H": (0, 2**15, 2**16 - 1),
        "I": (0, 1, 2**31 - 1, 2**31, 2**32 - 1),
        "Q": (0, 1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
    }.items()
    for number in numbers
]
"""What a field of a header may hold at most, least, and one beyond; -1 is all ones."""


def mutate_seed(seeds: Sequence[Seed], rng: Random, words: Sequence[bytes] = ()) -> bytes:
    """A file with one to four kinds of damage; ``words`` mean something in its format."""
    seed, other = rng.choice(seeds), rng.choice(seeds)
    parts = list(seed.parts)
    whole = len(parts) == 1 and rng.random() < 0.5
    if not whole and rng.random() < 0.75:
        for _ in range(rng.choice((1, 1, 1, 2))):
            at = rng.randrange(len(parts))
            parts[at] = _mutate_bytes(parts[at], rng.choice(other.parts), rng, words)
        if rng.random() < 0.1:
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(parts))
        if rng.random() < 0.1:
            parts.pop(rng.randrange(len(parts)))
        try:
            return seed.build(parts)[:MAX_INPUT_SIZE]
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            struct.error,
        ):  # no such file can be built: damage one instead
            pass
    return _mutate_bytes(seed.content, other.content, rng, words)[:MAX_INPUT_SIZE]


def _mutate_bytes(data: bytes, other: bytes, rng: Random, words: Sequence[bytes]) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.choice(MUTATIONS)
        data = kind(data, other, rng)
        if words and rng.random() < 0.5:
            data = _overwrite_with_word(data, rng.choice(words), rng)
    return data


def _pick_position(data: bytes, rng: Random) -> int:
    """Anywhere, but half the time near the start, where headers are."""
    return rng.randrange(min(len(data), 256 if rng.random() < 0.5 else len(data)) + 1)


def _overwrite_with_word(data: bytes, word: bytes, rng: Random) -> bytes:
    at = _pick_position(data, rng)
    return data[:at] + word + data[at + (len(word) if rng.random() < 0.5 else rng.randrange(8)) :]


def _flip(data: bytes, other: bytes, rng: Random) -> bytes:
    flipped = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if flipped:
            flipped[min(_pick_position(data, rng), len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _insert(data: bytes, other: bytes, rng: Random) -> bytes:
    at = _pick_position(data, rng)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 8, 64))) + data[at:]


def _delete(data: bytes, other: bytes, rng: Random) -> bytes:
    at = _pick_position(data, rng)
    return data[:at] + data[at + rng.choice((1, 2, 4, 8, 64, 512)) :]


def _truncate(data: bytes, other: bytes, rng: Random) -> bytes:
    return data[: _pick_position(data, rng)]


def _splice(data: bytes, other: bytes, rng: Random) -> bytes:
    return data[: _pick_position(data, rng)] + other[_pick_position(other, rng) :]


def _overwrite_with_extreme(data: bytes, other: bytes, rng: Random) -> bytes:
    value, at = rng.choice(EXTREME_VALUES), _pick_position(data, rng)
    at -= at % rng.choice((1, len(value)))
    return data[:at] + value + data[at + len(value) :]


def _duplicate(data: bytes, other: bytes, rng: Random) -> bytes:
    start, end = sorted((_pick_position(data, rng), _pick_position(data, rng)))
    at = rng.choice((end, _pick_position(data, rng)))
    return data[:at] + data[start:end] * rng.choice((1, 1, 2, 50)) + data[at:]


MUTATIONS: list[Callable[[bytes, bytes, Random], bytes]] = [
    _flip,
    _insert,
    _delete,
    _truncate,
    _splice,
    _overwrite_with_extreme,
    _duplicate,
]
