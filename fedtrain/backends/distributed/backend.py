"""All clients, divided among the ranks of a process group (torchrun); this is how rank 0 sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from fedtrain.backends.distributed.rank_worker import RankWorker
from fedtrain.backends.distributed.tensor_channel import TensorChannel
from fedtrain.errors import TrainingError
from fedtrain.federated.backend import TrainerBackend
from fedtrain.federated.messages import Broadcast, Failure, Scores, Split, Update
from fedtrain.parameters import StateDict
from fedtrain.runs.checkpoint import RunState
from fedtrain.runs.folder import RunFolder
from fedtrain.serialization.message_codec import (
    EncodedMessage,
    decode_replies,
    decode_scores,
    encode_broadcast,
    flatten_groups,
)
from fedtrain.utils.signals import defer_interrupts
from theory.errors import InputError


class DistributedBackend(TrainerBackend):
    """Messages and updates travel; what clients keep does not: each rank has its own, and writes it when told.

    The sum is rank 0's, over updates in the order of the clients' names, as in one process: so are its bits.
    """

    def __init__(self, worker: RankWorker, names: Sequence[str], channel: TensorChannel) -> None:
        self.worker, self.client_names, self.channel = worker, list(names), channel
        self.trainer, self.delivery = worker.backend.trainer, worker.backend.delivery
        self.client_states: dict[str, StateDict] = {}
        self.last_trained_round = dict.fromkeys(names, 0)
        self.last_broadcast: Broadcast | None = None
        self.pending_ranks: list[int] = []
        """Ranks whose answer to the last call was not heard yet."""

    def train(self, message: Broadcast, cohort: Collection[str]) -> list[Update | Failure]:
        """Everyone named, each on its rank."""
        replies = self._call_ranks({"do": "train", "cohort": list(cohort), "turns": self.last_trained_round}, message)
        answers = {answer.client: answer for reply in replies for answer in decode_replies(*reply)}
        self.last_trained_round |= {
            name: message.round + 1 for name, answer in answers.items() if isinstance(answer, Update)
        }
        return [answers[name] for name in cohort]

    def evaluate(
        self, message: Broadcast, splits: Collection[Split], clients: Collection[str] | None = None
    ) -> dict[str, Scores]:
        """Everyone, or everyone named."""
        names = [name for name in self.client_names if clients is None or name in clients]
        replies = self._call_ranks(
            {"do": "evaluate", "splits": list(splits), "clients": names, "turns": self.last_trained_round}, message
        )
        scores = {name: score for note, _ in replies for name, score in decode_scores(note["scores"]).items()}
        return {name: scores[name] for name in names}

    def resume(self, state: RunState, folder: RunFolder) -> RunState:
        """Go on from a checkpoint, whichever backend made it; every rank reads what is its own."""
        self.last_trained_round = {
            name: state.last_trained_round.get(name, state.message.round) for name in self.client_names
        }
        self._call_ranks({"do": "restore", "turns": self.last_trained_round})
        there = state.to(self.channel.device, client_states=False)
        return replace(there, client_states={}, last_trained_round=dict(self.last_trained_round))

    def persist_client_state(self, turns: Mapping[str, int]) -> None:
        """Every rank writes down what its clients became in these turns."""
        self._call_ranks({"do": "keep", "turns": turns})

    def release_ranks(self) -> None:
        """Let the other ranks go."""
        with defer_interrupts():
            self._drain_replies()
            self.channel.broadcast({"do": "end"}, {})
            self.channel.wait_for_all()

    def _call_ranks(self, note: Mapping[str, Any], message: Broadcast | None = None) -> list[EncodedMessage]:
        """Tell everyone, do this rank's part, and hear what the others say; the message is sent but once."""
        about, groups = (
            encode_broadcast(message) if message is not None and message is not self.last_broadcast else ({}, {})
        )
        entries = flatten_groups(groups)
        with defer_interrupts():
            self._drain_replies()
            self.channel.broadcast({**note, **about}, entries)
            self.pending_ranks = list(range(1, dist.get_world_size()))
        self.last_broadcast = message or self.last_broadcast
        replies = [self.worker.execute({**note, **about}, entries)]
        with defer_interrupts():
            while self.pending_ranks:
                replies.append(self.channel.receive(self.pending_ranks[0]))
                self.pending_ranks.pop(0)
        for note, _ in replies:
            if "error" in note:
                raise InputError(note["text"]) if note["error"] == "InputError" else TrainingError(note["text"])
        return replies

    def _drain_replies(self) -> None:
        """Hear out who still had to answer to a call that was given up."""
        while self.pending_ranks:
            self.channel.receive(self.pending_ranks[0])
            self.pending_ranks.pop(0)
