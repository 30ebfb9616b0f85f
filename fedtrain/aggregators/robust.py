"""Servers that a few clients cannot lead astray, whatever finite numbers they send.

What a client says of its own size is its own claim too: the median and the trimmed mean count all clients alike,
whatever ``server.weights`` says. Statistics are treated like parameters, for huge ones do as much harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import torch

from fedtrain.aggregators.base import Aggregate, Aggregator, CohortReplies, average_states, check_positive
from fedtrain.parameters import StateDict
from theory.errors import InputError


@dataclass(frozen=True)
class CoordinateMedian(Aggregator):
    """Of every number the median over clients (Yin et al., 2018)."""

    title: ClassVar[str] = "coordinate median"

    def combine(self, replies: CohortReplies) -> Aggregate:
        """Every entry by itself."""
        return Aggregate(average_middle(replies.states, cut=(len(replies.states) - 1) // 2))


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """Of every number the mean over clients without the largest and the smallest ones (Yin et al., 2018)."""

    trim: float = 0.2
    """The share of the clients that is left out at each end: rounded down, but one if there are three or more."""
    title: ClassVar[str] = "trimmed mean"

    def __post_init__(self) -> None:
        if not 0 < self.trim < 0.5:
            raise InputError(f"aggregator.trim is {self.trim}; it is a share at each end: choose it in (0, 0.5)")

    def combine(self, replies: CohortReplies) -> Aggregate:
        """Every entry by itself."""
        clients = len(replies.states)
        cut = min(max(1, int(self.trim * clients + 1e-9)), (clients - 1) // 2)
        return Aggregate(average_middle(replies.states, cut))


@dataclass(frozen=True)
class NormClipping(Aggregator):
    """The mean of the clients' updates, each shortened to a length that it may not exceed (Sun et al., 2019)."""

    max_norm: float | None = None
    """The length: Euclidean, over all entries together; none for the median of this round's lengths."""
    title: ClassVar[str] = "norm clipping"

    def __post_init__(self) -> None:
        if self.max_norm is not None:
            check_positive("max_norm", self.max_norm)

    def combine(self, replies: CohortReplies) -> Aggregate:
        """Shorten, then average; an update that is short enough is taken as it is."""
        norms = [measure_update(replies.before, state) for state in replies.states]
        limit = median(norms) if self.max_norm is None else self.max_norm
        clipped = [
            state if norm <= limit else shorten_update(replies.before, state, limit / norm)
            for state, norm in zip(replies.states, norms, strict=True)
        ]
        return Aggregate(average_states(clipped, replies.weights))


@torch.no_grad()
def average_middle(states: Sequence[StateDict], cut: int) -> StateDict:
    """Number by number the mean of those that remain when so many are cut at each end; a counter is one of them."""
    result = {}
    for name, first in states[0].items():
        ranked = torch.stack([state[name] for state in states]).sort(0).values
        middle = ranked[cut : len(states) - cut]
        result[name] = middle.mean(0) if first.is_floating_point() else middle[0].clone()
    return result


@torch.no_grad()
def measure_update(before: StateDict, after: StateDict) -> float:
    """‖after - before‖ in double precision: a client may have sent numbers whose squares overflow."""
    squares = [
        (value.double() - before[name].double()).square().sum()
        for name, value in after.items()
        if value.is_floating_point()
    ]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


@torch.no_grad()
def shorten_update(before: StateDict, after: StateDict, factor: float) -> StateDict:
    """before + factor · (after - before); counters as they are."""
    return {
        name: (before[name].double() + factor * (value.double() - before[name].double())).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in after.items()
    }
