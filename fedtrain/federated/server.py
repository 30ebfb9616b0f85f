"""The loop of rounds: draw a cohort, let it train, aggregate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite

import torch

from fedtrain.config.schema import ClientWeighting
from fedtrain.errors import TrainingError
from fedtrain.federated.aggregation import aggregate
from fedtrain.federated.backend import Backend
from fedtrain.federated.messages import Broadcast, Failure, RoundResult, Update
from fedtrain.parameters import is_finite
from fedtrain.rng import make_generator


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
