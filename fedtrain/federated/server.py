"""What travels between the server and the clients, and the loop that moves it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, Protocol

import torch

from fedtrain.config.schema import ClientWeighting
from fedtrain.errors import TrainingError
from fedtrain.methods.base import AnyMethod
from fedtrain.parameters import EntryNames, StateDict, is_finite
from fedtrain.rng import make_generator

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


Scores = Mapping[Split, Mapping[str, Score]]
"""By split and branch; the branch ``fused`` is the prediction."""


class Backend(Protocol):
    """All clients, wherever they run."""

    @property
    def client_names(self) -> Sequence[str]:
        """The clients, in the order of the data set."""
        ...

    @property
    def batch_norm_names(self) -> EntryNames:
        """The batch-norm entries of a client's module."""
        ...

    @property
    def client_states(self) -> Mapping[str, StateDict]:
        """What clients keep, as far as it is held here."""
        ...

    @property
    def last_trained_round(self) -> Mapping[str, int]:
        """Clients that hold it where they train: the round in which each trained last, 0 for none yet."""
        ...

    def initial_broadcast(self) -> Broadcast:
        """The first message."""
        ...

    def train(self, message: Broadcast, cohort: Collection[str]) -> Sequence[Update | Failure]:
        """One round on the clients named; a fleet that does not put up with failures raises them."""
        ...

    def evaluate(self, message: Broadcast, splits: Collection[Split]) -> dict[str, Scores]:
        """Every client's prediction, and each branch of it, on its own data."""
        ...


@dataclass(frozen=True)
class RoundResult:
    """One round when it is over: what was answered, and what is sent next."""

    updates: tuple[Update, ...]
    message: Broadcast
    failures: tuple[Failure, ...] = ()
    """Clients of the cohort that are not in the mean."""


def extract_published(method: AnyMethod, entries: StateDict) -> StateDict:
    """Those of the published submodule, named within it; the tensors are the same, for nobody writes into them."""
    path = f"{method.published}."
    return {name.removeprefix(path): value for name, value in entries.items() if name.startswith(path)}


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


def aggregate(message: Broadcast, updates: Sequence[Update], weights: ClientWeighting) -> Broadcast:
    """The next message. Replies are put in the order of their names, so that their arrival does not matter."""
    replies = sorted(updates, key=lambda update: update.client)
    each = [float(u.num_examples) if weights == "size" else 1.0 for u in replies]
    shared = average_states([u.shared for u in replies], each)
    heads = {u.client: u.published for u in replies if u.published}
    return Broadcast(message.round + 1, shared, {**message.peers, **heads})


def sample_cohort(names: Sequence[str], participation: float, seed: int, round: int) -> list[str]:
    """Who trains in this round: ⌊N · sample⌋ clients (at least one), drawn afresh each time."""
    size = max(1, int(len(names) * participation + 1e-9))
    if size == len(names):
        return list(names)
    ranked = sorted(names)  # so that the order of the clients has no say
    drawn = torch.randperm(len(ranked), generator=make_generator(seed, "cohort", round))[:size]
    chosen = {ranked[i] for i in drawn.tolist()}
    return [name for name in names if name in chosen]


def validate_update(update: Update, client: str, message: Broadcast) -> str | None:
    """Why an answer from afar must not enter the mean; None if it may."""
    if update.client != client:
        return f"it speaks for {update.client}"
    if not isinstance(update.num_examples, int) or update.num_examples < 1:
        return f"it has {update.num_examples} examples"
    if not isinstance(update.loss, float) or not isfinite(update.loss):
        return f"its loss is {update.loss}"
    for sent, known in ((update.shared, message.shared), (update.published, message.peers.get(client, {}))):
        if sent.keys() != known.keys():
            return f"its entries are others: {', '.join(sorted(sent.keys() ^ known.keys()))}"
        for name, value in sent.items():
            if (value.dtype, value.shape) != (known[name].dtype, known[name].shape):
                return (
                    f"{name} is {value.dtype} {tuple(value.shape)}, not {known[name].dtype} {tuple(known[name].shape)}"
                )
            if not is_finite(value):
                return f"{name} is not finite"
    return None


def message_for(message: Broadcast, client: str, peers: int, seed: int) -> Broadcast:
    """What one client is sent: the heads of all others, or of so many of them, drawn afresh each round (0 for all)."""
    if not peers or peers >= len(message.peers):
        return message
    others = sorted(name for name in message.peers if name != client)
    drawn = torch.randperm(len(others), generator=make_generator(seed, "peers", client, message.round))[:peers]
    chosen = {others[i] for i in drawn.tolist()}
    return replace(message, peers={name: head for name, head in message.peers.items() if name in chosen})


def count_heads_sent(clients: int, peers: int) -> int:
    """How many others' heads a client is sent, of so many clients."""
    return min(peers, clients - 1) if peers else clients - 1


def federate(
    backend: Backend,
    message: Broadcast,
    rounds: int,
    *,
    participation: float = 1.0,
    weights: ClientWeighting = "uniform",
    seed: int = 0,
) -> Iterator[RoundResult]:
    """Make rounds until there were ``rounds``, and yield each as it ends."""
    while message.round < rounds:
        chosen = sample_cohort(backend.client_names, participation, seed, message.round)
        answers = backend.train(message, chosen)
        updates = tuple(answer for answer in answers if isinstance(answer, Update))
        failures = tuple(answer for answer in answers if isinstance(answer, Failure))
        if not updates:
            raise TrainingError(f"round {message.round + 1}: no client could train; {failures[0].reason}")
        message = aggregate(message, updates, weights)
        yield RoundResult(updates, message, failures)
