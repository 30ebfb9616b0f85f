"""What travels between the server and the clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedtrain.aggregators import ServerState
from fedtrain.methods.base import AnyMethod
from fedtrain.parameters import StateDict

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class Broadcast:
    """Server to clients: the averaged entries, and what each client last published."""

    round: int
    """How many rounds were made."""
    shared: StateDict
    peers: Mapping[str, StateDict]


@dataclass(frozen=True)
class Update:
    """One client to the server, after local training."""

    client: str
    shared: StateDict
    published: StateDict
    num_examples: int
    loss: float
    """Mean of the training loss over the last pass."""


@dataclass(frozen=True)
class Failure:
    """One client to the server, when it could not train."""

    client: str
    reason: str


@dataclass(frozen=True)
class Score:
    """How one branch of a client's model does on one of its splits."""

    accuracy: float
    loss: float
    n: int
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Further scores by name, as far as they are wanted; None where the labels do not define one."""


Scores = Mapping[Split, Mapping[str, Score]]
"""By split and branch; the branch ``fused`` is the prediction."""


@dataclass(frozen=True)
class RoundResult:
    """One round when it is over: what was answered, and what is sent next."""

    updates: tuple[Update, ...]
    message: Broadcast
    failures: tuple[Failure, ...] = ()
    """Clients of the cohort that are not in the mean."""
    remembered: ServerState = field(default_factory=dict)
    """What the server's aggregator remembers; it is not sent."""


def extract_published(method: AnyMethod, entries: StateDict) -> StateDict:
    """Those of the published submodule, named within it; the tensors are the same, for nobody writes into them."""
    path = f"{method.published}."
    return {name.removeprefix(path): value for name, value in entries.items() if name.startswith(path)}
