"""Aggregate the answers of a round into the next message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedtrain.aggregators import Aggregate, Aggregator, average_states
from fedtrain.config.schema import ClientWeighting
from fedtrain.errors import TrainingError
from fedtrain.extensions.source import locate_definition
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.parameters import StateDict, is_finite

CombineFunction = Callable[[Sequence[StateDict], Sequence[float]], StateDict]
"""Makes one state of many, of which each has its weight."""


def aggregate(
    message: Broadcast,
    updates: Sequence[Update],
    weights: ClientWeighting,
    combine: CombineFunction = average_states,
) -> Broadcast:
    """The next message. Replies are put in the order of their names, so that their arrival does not matter."""
    replies = sorted(updates, key=lambda update: update.client)
    each = [float(u.num_examples) if weights == "size" else 1.0 for u in replies]
    shared = combine([u.shared for u in replies], each)
    heads = {u.client: u.published for u in replies if u.published}
    return Broadcast(message.round + 1, shared, {**message.peers, **heads})


def check_combined(aggregator: Aggregator, before: StateDict, made: Aggregate) -> None:
    """Refuse what the clients could not load, before a client is blamed for it."""
    if not isinstance(made, Aggregate):
        place = locate_definition(type(aggregator))
        raise TrainingError(
            f"aggregator {aggregator.title} ({place}): combine gives an instance of {type(made).__name__}; return "
            "fedtrain.Aggregate(shared)"
        )
    combined = made.shared
    if combined.keys() != before.keys():
        other = ", ".join(sorted(combined.keys() ^ before.keys()))
        raise TrainingError(f"aggregator {aggregator.title}: its entries are others than those it was given: {other}")
    for name, value in combined.items():
        if (value.dtype, value.shape) != (before[name].dtype, before[name].shape):
            forms = [f"{one.dtype} {tuple(one.shape)}" for one in (value, before[name])]
            raise TrainingError(f"aggregator {aggregator.title}: {name} is {forms[0]}, not {forms[1]}")
        if not is_finite(value):
            raise TrainingError(f"aggregator {aggregator.title}: {name} is not finite; lower aggregator.lr or local.lr")
