"""What a verification may take of the machine: how many threads, how much memory, and how long it will be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from theory.assumptions import refuse_parallel_samples
from theory.claims import Claim
from theory.config import TheoryConfig
from theory.cost import predict_cost, refuse_if_too_large
from theory.errors import InputError
from theory.memory import get_available_memory
from theory.text import format_duration

if TYPE_CHECKING:
    from rich.console import Console

SINGLE_THREAD_LIMIT = 2**21
"""Samples times hidden units below which one thread is the fastest."""
REPORT_SECONDS = 4
"""Figures and page, whatever the setting."""


@contextmanager
def allot_resources(
    settings: Sequence[TheoryConfig],
    claims: Sequence[Claim],
    *,
    figures: bool = True,
    allow_parallel: bool = False,
    threads: int | None = None,
    screen: Console | None = None,
) -> Iterator[None]:
    """Check that the settings can be examined, and set torch's threads while they are; tell the ``screen`` the cost."""
    with use_threads(choose_threads(settings, threads)):
        check_cost(settings, claims, figures, screen)
        if not allow_parallel:
            refuse_parallel_samples(settings)
        yield


def choose_threads(settings: Sequence[TheoryConfig], threads: int | None = None) -> int:
    """As many as asked for; else one for small problems, where waking others for each short product takes longer."""
    if threads is not None:
        if threads < 1:
            raise InputError(f"threads is {threads}; it must be at least 1", ["threads"])
        return threads
    largest = max(one.size.n * one.width for one in settings)
    small = largest < SINGLE_THREAD_LIMIT and "OMP_NUM_THREADS" not in os.environ
    return 1 if small else torch.get_num_threads()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_cost(
    settings: Sequence[TheoryConfig], claims: Sequence[Claim], figures: bool = True, screen: Console | None = None
) -> None:
    """Refuse what cannot fit in memory, and say what the rest will take."""
    costs = [predict_cost(one, {claim.id for claim in claims}, figures) for one in settings]
    largest = max(costs, key=lambda cost: cost.bytes)
    available = get_available_memory()
    refuse_if_too_large(largest.bytes, available, largest.remedy, largest.options)
    if screen is not None:
        seconds = REPORT_SECONDS + sum(cost.seconds for cost in costs)
        screen.print(
            f"needs about {max(largest.bytes / 2**20, 1):.0f} MiB of {available / 2**30:.0f} GiB and "
            f"roughly {format_duration(seconds)}"
        )
