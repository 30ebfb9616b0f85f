"""What an aggregator is: how the server makes one model of what the clients of a round made of the last one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from fedtrain.parameters import EntryNames, StateDict
from theory.errors import InputError

ServerState = Mapping[str, StateDict]
"""What a server remembers from round to round, by what it is (``momentum``); it goes into checkpoints."""


@dataclass(frozen=True)
class CohortReplies:
    """What the server has in hand when the clients of a round have answered. It is read, never written into."""

    before: StateDict
    """The shared entries that the clients were sent."""
    states: Sequence[StateDict]
    """What each client made of them, in the order of the clients' names."""
    weights: Sequence[float]
    """How much each client counts: alike, or by its number of samples (``server.weights``)."""
    parameters: EntryNames = frozenset()
    """Those entries that are trained by gradients; the others are statistics and counters."""
    remembered: ServerState = field(default_factory=dict)
    """What the server remembers; nothing in the first round."""


@dataclass(frozen=True)
class Aggregate:
    """What came of it."""

    shared: StateDict
    """What the clients are sent next: the same entries as before."""
    remembered: ServerState = field(default_factory=dict)


@dataclass(frozen=True)
class Aggregator(ABC):
    """A frozen dataclass; its fields are its options. It sees shared entries only, and keeps nothing in itself."""

    title: ClassVar[str]

    @abstractmethod
    def combine(self, replies: CohortReplies) -> Aggregate:
        """One model of many."""


@torch.no_grad()
def average_states(states: Sequence[StateDict], weights: Sequence[float]) -> StateDict:
    """Σ w_k s_k / Σ w_k, summed in the order given; whole numbers (batch counters) are those of the first."""
    total = sum(weights)
    result = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            entry = first * (weights[0] / total)
            for state, weight in zip(states[1:], weights[1:], strict=True):
                entry.add_(state[name], alpha=weight / total)
        else:
            entry = first.clone()
        result[name] = entry
    return result


def check_positive(name: str, value: float) -> None:
    """Refuse a step that would stand still or go back."""
    if not 0 < value < float("inf"):
        raise InputError(f"aggregator.{name} is {value}; it must be above 0")


def check_decay(name: str, value: float) -> None:
    """Refuse a memory that grows."""
    if not 0 <= value < 1:
        raise InputError(f"aggregator.{name} is {value}; choose it in [0, 1)")
