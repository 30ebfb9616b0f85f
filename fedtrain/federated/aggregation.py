"""How the server makes one model of the clients' answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedtrain.config.schema import ClientWeighting
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.parameters import StateDict


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
