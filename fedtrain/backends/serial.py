"""All clients in this process, one after the other on one trainer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fedtrain.config.schema import ServerSettings
from fedtrain.data.client_data import ClientData
from fedtrain.errors import TrainingError
from fedtrain.extensions.errors import describe_code_error
from fedtrain.federated.backend import TrainerBackend
from fedtrain.federated.client import ClientTrainer, OffloadFunction
from fedtrain.federated.delivery import Delivery
from fedtrain.federated.messages import Broadcast, Failure, Scores, Split, Update
from fedtrain.parameters import StateDict
from fedtrain.runs.checkpoint import RunState
from fedtrain.runs.folder import LAST_CHECKPOINT, RunFolder
from theory.errors import InputError

T = TypeVar("T")
TrainedClient = tuple[Update, StateDict]
"""What a client sends when it has trained, and what it keeps."""


class SerialBackend(TrainerBackend):
    """Keeps the data on the trainer's device, and what is personal too, unless told where to keep that."""

    def __init__(
        self,
        trainer: ClientTrainer,
        clients: Sequence[ClientData],
        *,
        skip_failures: bool = False,
        keep: OffloadFunction = dict,
        delivery: ServerSettings | None = None,
    ) -> None:
        if len({client.name for client in clients}) < len(clients):
            raise InputError("two clients have the same name; give each its own")
        self.trainer, self.skip_failures, self.offload = trainer, skip_failures, keep
        self.delivery = Delivery(trainer.starting_entries.get_shared, delivery or ServerSettings(), trainer.seed)
        self.clients = {client.name: client.to(trainer.device) for client in clients}
        self.client_names = list(self.clients)
        self.client_states: dict[str, StateDict] = trainer.initial_client_states(self.clients, keep)
        self.last_trained_round: dict[str, int] = {}

    def resume(self, state: RunState, folder: RunFolder) -> RunState:
        """Go on from a checkpoint, whichever backend made it."""
        own = {
            name: state.load_client_state(name, folder.client_state_store, self.trainer.initial_client_state)
            for name in self.client_names
        }
        shared = state.message.shared
        if shared.keys() != self.trainer.shared_names or not all(
            self.trainer.is_compatible({**kept, **shared}) for kept in own.values()
        ):
            raise InputError(
                f"{folder.path / LAST_CHECKPOINT}: of another network or other clients; start the run anew"
            )
        state = replace(state, client_states=own, last_trained_round={}).to(
            self.trainer.device, client_states=self.offload is dict
        )
        self.client_states = self._offload_together(state.client_states)
        return replace(state, client_states=dict(self.client_states))

    def _offload_together(self, states: Mapping[str, StateDict]) -> dict[str, StateDict]:
        """As one: thousands of files would take longer to make than all else that there is to do."""
        names = {client: {name: f"{i}/{name}" for name in kept} for i, (client, kept) in enumerate(states.items())}
        held = self.offload({key: states[client][name] for client, keys in names.items() for name, key in keys.items()})
        return {client: {name: held[key] for name, key in keys.items()} for client, keys in names.items()}

    def persist_client_state(self, turns: Mapping[str, int]) -> None:
        """Nothing to do: what clients keep is in the checkpoint."""

    def train(self, message: Broadcast, cohort: Collection[str]) -> list[Update | Failure]:
        """Everyone named."""

        def turn(trainer: ClientTrainer, name: str) -> TrainedClient:
            return trainer.train(self.clients[name], self.client_states[name], sent[name])

        sent = {name: self.delivery.receive_for_training(message, name) for name in cohort}
        return self.collect_answers(turn, message.round + 1, list(cohort))

    def collect_answers(
        self, turn: Callable[[ClientTrainer, str], TrainedClient], round: int, cohort: Sequence[str]
    ) -> list[Update | Failure]:
        """All answers; what clients keep changes when all are done, so that a round can be abandoned."""

        def one(trainer: ClientTrainer, name: str) -> tuple[Update | Failure, StateDict | None]:
            try:
                answer, kept = turn(trainer, name)
            except Exception as error:
                reason = wrap_client_error(error, name, round)
                if not self.skip_failures:
                    raise reason from error
                text = str(reason)  # a MemoryError says nothing at all
                known = text.startswith(f"client {name}")
                return Failure(name, text if known else f"client {name}: {text or 'out of memory'}"), None
            return answer, self.offload(kept)

        answers = self.map_clients(one, cohort)
        self.client_states |= {answer.client: kept for answer, kept in answers if kept is not None}
        return [answer for answer, _ in answers]

    def evaluate(
        self, message: Broadcast, splits: Collection[Split], clients: Collection[str] | None = None
    ) -> dict[str, Scores]:
        """Everyone, or everyone named."""

        def one(trainer: ClientTrainer, name: str) -> Scores:
            return trainer.evaluate(self.clients[name], self.client_states[name], sent[name], splits)

        names = [name for name in self.clients if clients is None or name in clients]
        sent = {name: self.delivery.receive_for_prediction(message, name) for name in names}
        return dict(zip(names, self.map_clients(one, names), strict=True))

    def request_stop(self) -> None:
        """From another thread: end all turns at the next batch."""
        self.trainer.stop_requested.set()

    def map_clients(self, work: Callable[[ClientTrainer, str], T], names: Sequence[str]) -> list[T]:
        """Do this for every client named: here, in turn."""
        return [work(self.trainer, name) for name in names]


def wrap_client_error(error: Exception, client: str, round: int) -> Exception:
    """The error with the client's name; what speaks for itself, or of the whole machine, as it is."""
    if isinstance(error, InputError | MemoryError) or "tried to allocate" in str(error).lower():
        return error
    return TrainingError(f"client {client}, round {round}: {describe_code_error(error)}")
