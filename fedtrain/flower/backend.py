"""All clients, each on a Flower node of its own; this is how the server sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import RecordDict

from fedtrain.config.schema import Config, serialize_config
from fedtrain.errors import TrainingError
from fedtrain.federated.backend import TrainerBackend
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.delivery import Delivery
from fedtrain.federated.messages import Broadcast, Failure, Score, Scores, Split, Update
from fedtrain.federated.server import sample_cohort, validate_update
from fedtrain.flower.client_manager import ClientManager
from fedtrain.flower.exchange import Exchange
from fedtrain.flower.records import RecordPacker
from fedtrain.flower.replies import build_client_error
from fedtrain.parameters import StateDict
from fedtrain.runs.checkpoint import RunState
from fedtrain.runs.folder import LAST_CHECKPOINT, RunFolder
from fedtrain.serialization.message_codec import EncodedMessage, decode_replies, decode_scores, encode_broadcast
from theory.errors import InputError


@dataclass(frozen=True)
class WaitPolicy:
    """For how many clients to wait, and how long for the others."""

    min_clients: int
    timeout: float


class FlowerBackend(TrainerBackend):
    """One message a round: who is evaluated and trains next does both when asked for the first.

    What clients keep is theirs: the server knows only in which round each trained last, and says so. A turn is thus
    made again, with the same bits, after anything was lost on the way.
    """

    def __init__(
        self,
        client_manager: ClientManager,
        trainer: ClientTrainer,
        config: Config,
        folder: RunFolder,
        patience: WaitPolicy,
    ) -> None:
        self.client_manager, self.trainer, self.config, self.folder, self.wait_policy = (
            client_manager,
            trainer,
            config,
            folder,
            patience,
        )
        self.client_names = sorted(
            client_manager.descriptions, key=lambda name: int(client_manager.descriptions[name]["place"])
        )
        self.delivery = Delivery(trainer.starting_entries.get_shared, config.server, config.seed)
        self.client_states: dict[str, StateDict] = {}
        self.last_trained_round = dict.fromkeys(self.client_names, 0)
        self.previous_last_trained_round = self.last_trained_round
        """The same before the last round: what a checkpoint will speak of if this one is given up."""
        self.prefetched: tuple[Broadcast | None, dict[str, Update | Failure]] = None, {}
        """What was answered to a message when it was evaluated."""

    def train(self, message: Broadcast, cohort: Collection[str]) -> list[Update | Failure]:
        """Everyone named, each on its node."""
        done, answers = self.prefetched
        if done is not message:
            answers, _ = self._exchange(message, cohort, [], cohort, [])
        self.prefetched = None, {}
        trained = {name: message.round + 1 for name in cohort if isinstance(answers[name], Update)}
        self.previous_last_trained_round, self.last_trained_round = (
            self.last_trained_round,
            self.last_trained_round | trained,
        )
        return [answers[name] for name in cohort]

    def evaluate(
        self, message: Broadcast, splits: Collection[Split], clients: Collection[str] | None = None
    ) -> dict[str, Scores]:
        """Everyone, or everyone named; nothing if one of them gave no scores, for a mean over the others misleads."""
        server, (done, answers) = self.config.server, self.prefetched
        names = [name for name in self.client_names if clients is None or name in clients]
        if done is message:  # it is asked for more splits, and has trained ahead already
            _, scores = self._exchange(message, names, splits, [], names)
        else:
            last = message.round >= server.rounds
            next_ones = (
                [] if last else sample_cohort(self.client_names, server.participation, self.config.seed, message.round)
            )
            whom = [name for name in self.client_names if name in {*names, *next_ones}]
            answers, scores = self._exchange(message, whom, splits, next_ones, names)
            self.prefetched = message, answers
        return {name: scores[name] for name in names} if scores.keys() >= set(names) else {}

    def resume(self, state: RunState, folder: RunFolder) -> RunState:
        """Go on from a checkpoint of this backend; what clients keep is on their nodes."""
        if state.client_states:
            raise InputError(
                f"{folder.path}: this run holds what its clients keep; go on with fedco2 train --resume {folder.path}"
            )
        if not self.trainer.is_compatible(
            {**self.trainer.initial_client_state(self.client_names[0]), **state.message.shared}
        ):
            raise InputError(f"{folder.path / LAST_CHECKPOINT}: of another network; start the run anew")
        self.previous_last_trained_round = self.last_trained_round = dict(state.last_trained_round)
        return state

    def persist_client_state(self, turns: Mapping[str, int]) -> None:
        """Nothing to do: a node has on its disk what it answers."""

    def _exchange(
        self,
        message: Broadcast,
        whom: Collection[str],
        splits: Collection[Split],
        training: Collection[str],
        evaluated: Collection[str],
    ) -> tuple[dict[str, Update | Failure], dict[str, Scores]]:
        """Ask, and judge what is answered."""
        packing, needed = RecordPacker(), self.folder.find_needed_rounds()

        def request(name: str) -> RecordDict:
            note, groups = self._build_message(message, name, splits if name in evaluated else (), name in training)
            return packing.pack(
                {**note, "needed": sorted({self.previous_last_trained_round[name], *needed[name]})}, groups
            )

        requests = {name: request(name) for name in whom}
        exchange = Exchange(self.client_manager, requests, self.wait_policy.timeout)
        replies = exchange.run(min(self.wait_policy.min_clients, len(requests)))
        answers: dict[str, Update | Failure] = {}
        scores: dict[str, Scores] = {}
        for name in whom:
            try:
                if name not in replies:
                    raise TrainingError(f"client {name}: no answer within {self.wait_policy.timeout:g} s")
                note, _ = replies[name]
                if "error" in note:
                    raise build_client_error(f"client {name}", note)
                if splits and name in evaluated:
                    scores[name] = parse_client_scores(name, note, splits)
                if name in training:
                    answers[name] = self._parse_answer(name, replies[name], message)
            except (TrainingError, InputError) as error:
                if self.config.server.on_client_failure == "stop" and name in replies:
                    raise
                answers[name] = Failure(name, str(error))
        return answers, scores

    def _build_message(
        self, message: Broadcast, name: str, splits: Collection[Split], train: bool
    ) -> tuple[dict[str, Any], dict[str, StateDict]]:
        """What one client is told: of the message what is its own, and what to do with it."""
        encode = self.delivery.encode_for_prediction if splits else self.delivery.encode_for
        sent = encode(message, name)
        sent = replace(sent, peers={peer: head for peer, head in sent.peers.items() if peer != name})
        note, groups = encode_broadcast(sent)
        about = {
            **self.client_manager.node_query,
            **({"start": self.trainer.starting_entries.compute_digest()} if self.delivery.needs_start else {}),
            "train": train,
            "splits": list(splits),
            "turn": self.last_trained_round[name],
        }
        return {**note, **about}, groups

    def _parse_answer(self, name: str, reply: EncodedMessage, message: Broadcast) -> Update | Failure:
        """The answer, unless it would spoil the mean."""
        try:
            (answer,) = decode_replies(*reply)
        except (KeyError, TypeError, ValueError) as error:
            raise TrainingError(f"client {name}: its answer is none of fedco2's ({error}); update its node") from None
        if isinstance(answer, Failure):
            raise TrainingError(answer.reason)
        head = self.trainer.list_published_forms(message.round)
        if reason := validate_update(answer, name, message, self.config.server.codec, head):
            raise TrainingError(f"client {name}, round {message.round + 1}: refused, {reason}")
        return answer


def parse_client_scores(name: str, note: Mapping[str, Any], splits: Collection[Split]) -> Scores:
    """A client's scores, if they are some; a split that it has no data for is missing."""
    try:
        found = decode_scores(note["scores"])[name]
        good = found.keys() <= set(splits) and all(
            "fused" in branches and all(is_valid_score(score) for score in branches.values())
            for branches in found.values()
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        good = False
    if not good:
        raise TrainingError(f"client {name}: its scores are none; update its node")
    return found


def is_valid_score(score: Score) -> bool:
    """Whether it can be one; a loss may be infinite, for which there are other words."""
    metrics = all(value is None or isinstance(value, float) for value in score.metrics.values())
    counted = isinstance(score.loss, float) and isinstance(score.n, int) and score.n > 0
    return metrics and counted and 0 <= score.accuracy <= 1


def build_node_query(config: Config, run: str) -> dict[str, Any]:
    """What a node must know to find out which client it is."""
    return {"config": serialize_config(config), "run": run}
