"""Chance as a function of its purpose: (seed, what for, client, round, ...), never of what ran before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(*purpose: object) -> int:
    """A seed for one purpose; other purposes have unrelated ones."""
    text = "/".join(str(part) for part in purpose)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def make_generator(*purpose: object) -> torch.Generator:
    """A generator on the CPU, whose draws are moved to where they are needed: all devices see the same numbers."""
    return torch.Generator().manual_seed(derive_seed(*purpose))


@contextmanager
def fork_rng(*purpose: object) -> Iterator[None]:
    """Within, torch's own initialisers draw for this purpose; afterwards the global generator is as it was."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(derive_seed(*purpose))
    try:
        yield
    finally:
        torch.set_rng_state(before)
