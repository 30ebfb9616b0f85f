"""Encode messages for travel and rest: a note that JSON can hold, and tensors by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedtrain.federated.messages import Broadcast, Failure, Score, Scores, Update
from fedtrain.parameters import StateDict

EncodedMessage = tuple[dict[str, Any], StateDict]


def flatten_groups(groups: Mapping[str, StateDict]) -> StateDict:
    """The tensors of all groups: ``group/name``."""
    return {f"{group}/{name}": value for group, state in groups.items() for name, value in state.items()}


def group_entries(entries: StateDict) -> Mapping[str, StateDict]:
    """By whose they are: ``shared``, ``peers/3``, ``personal/3``, ``0/published``."""
    groups: defaultdict[str, StateDict] = defaultdict(dict)
    for key, value in entries.items():
        *group, name = key.split("/", 1 if key.startswith("shared/") else 2)
        groups["/".join(group)][name] = value
    return groups


def encode_broadcast(message: Broadcast) -> tuple[dict[str, Any], dict[str, StateDict]]:
    """The note and the groups of a message; peers go by their place, for their names may hold anything."""
    places = {f"peers/{i}": head for i, head in enumerate(message.peers.values())}
    return {"round": message.round, "peers": list(message.peers)}, {"shared": message.shared, **places}


def decode_broadcast(note: Mapping[str, Any], entries: StateDict) -> Broadcast:
    """Undo `encode_broadcast`."""
    groups = group_entries(entries)
    return Broadcast(
        note["round"], groups["shared"], {name: groups[f"peers/{i}"] for i, name in enumerate(note["peers"])}
    )


def encode_replies(answers: Sequence[Update | Failure]) -> EncodedMessage:
    """What clients answer to a message."""
    notes, groups = [], {}
    for i, answer in enumerate(answers):
        if isinstance(answer, Update):
            groups[f"{i}/shared"], groups[f"{i}/published"] = answer.shared, answer.published
            notes.append({"client": answer.client, "num_examples": answer.num_examples, "loss": answer.loss})
        else:
            notes.append(asdict(answer))
    return {"answers": notes}, flatten_groups(groups)


def decode_replies(note: Mapping[str, Any], entries: StateDict) -> list[Update | Failure]:
    """Undo `encode_replies`."""
    groups = group_entries(entries)
    return [
        Failure(**answer)
        if "reason" in answer
        else Update(
            answer["client"],
            groups[f"{i}/shared"],
            # a head is kept for long, and with it would be the block that all came in
            {name: value.clone() for name, value in groups[f"{i}/published"].items()},
            answer["num_examples"],
            answer["loss"],
        )
        for i, answer in enumerate(note["answers"])
    ]


def encode_scores(scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Scores by client, split and branch; JSON holds every digit of them."""
    return {
        client: {
            split: {branch: asdict(score) for branch, score in branches.items()} for split, branches in splits.items()
        }
        for client, splits in scores.items()
    }


def decode_scores(note: Mapping[str, Any]) -> dict[str, Scores]:
    """The scores that became this note."""
    return {
        client: {
            split: {branch: Score(**score) for branch, score in branches.items()} for split, branches in splits.items()
        }
        for client, splits in note.items()
    }
