"""The loop of rounds: draw a cohort, let it train, aggregate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite

import torch

from fedtrain.aggregators import Aggregator, CohortReplies, ServerState
from fedtrain.aggregators.mean import Mean
from fedtrain.config.schema import ClientWeighting
from fedtrain.errors import TrainingError
from fedtrain.extensions.errors import explain_failure
from fedtrain.federated.aggregate import aggregate, check_combined
from fedtrain.federated.backend import Backend
from fedtrain.federated.codec.states import decode_state, decode_update
from fedtrain.federated.messages import Broadcast, Failure, RoundResult, Update
from fedtrain.parameters import StateDict
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


def sample_evaluated_clients(names: Sequence[str], count: int, seed: int) -> list[str]:
    """Who is evaluated, of all (``count`` is 0) or a sample: the same ones in every round, or curves would be noise."""
    if not count or count >= len(names):
        return list(names)
    ranked = sorted(names)
    drawn = torch.randperm(len(ranked), generator=make_generator(seed, "evaluated clients"))[:count]
    chosen = {ranked[i] for i in drawn.tolist()}
    return [name for name in names if name in chosen]


def validate_update(
    update: Update, client: str, message: Broadcast, codec: str = "none", head: StateDict | None = None
) -> str | None:
    """Why an answer from afar must not enter the mean; None if it may.

    ``head`` has the forms of what is to be published; without it that is as it was published before.
    """
    if update.client != client:
        return f"it speaks for {update.client}"
    if not isinstance(update.num_examples, int) or update.num_examples < 1:
        return f"it has {update.num_examples} examples"
    if not isinstance(update.loss, float) or not isfinite(update.loss):
        return f"its loss is {update.loss}"
    known, way = (message.peers.get(client, {}), "none") if head is None else (head, codec)
    try:
        decode_state(update.shared, message.shared, codec)
        decode_state(update.published, known, way)
    except ValueError as error:
        return str(error)
    return None


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
    aggregator: Aggregator | None = None,
    remembered: ServerState | None = None,
    codec: str = "none",
    seed: int = 0,
) -> Iterator[RoundResult]:
    """Make rounds until there were ``rounds``, and yield each as it ends.

    The ``aggregator`` makes one model of many, by default their mean; what it remembers of earlier rounds goes on from
    ``remembered``.
    """
    server, memory = aggregator or Mean(), remembered or {}

    def combine(states: Sequence[StateDict], weights: Sequence[float]) -> StateDict:
        nonlocal memory
        replies = CohortReplies(message.shared, states, weights, backend.parameter_names, memory)
        with explain_failure(f"aggregator {server.title}"):
            made = server.combine(replies)
        if not isinstance(server, Mean):
            check_combined(server, states[0], made)
        memory = made.remembered
        return made.shared

    while message.round < rounds:
        chosen = sample_cohort(backend.client_names, participation, seed, message.round)
        answers = backend.train(message, chosen)
        updates = tuple(answer for answer in answers if isinstance(answer, Update))
        failures = tuple(answer for answer in answers if isinstance(answer, Failure))
        if not updates:
            raise TrainingError(f"round {message.round + 1}: no client could train; {failures[0].reason}")
        decoded = [replace(one, shared=decode_update(one.shared, message.shared, codec)) for one in updates]
        message = aggregate(message, decoded, weights, combine)
        yield RoundResult(updates, message, failures, memory)
