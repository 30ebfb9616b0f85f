"""What the server asks of clients, wherever they run; fedtrain/backends and fedtrain/flower answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.delivery import Delivery
from fedtrain.federated.messages import Broadcast, Failure, Scores, Split, Update
from fedtrain.parameters import EntryNames, StateDict


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
    def parameter_names(self) -> EntryNames:
        """The entries of a client's module that are trained by gradients."""
        ...

    @property
    def client_states(self) -> Mapping[str, StateDict]:
        """What clients keep, as far as it is held here."""
        ...

    @property
    def last_trained_round(self) -> Mapping[str, int]:
        """Clients that hold it where they train: the round in which each trained last, 0 for none yet."""
        ...

    @property
    def delivery(self) -> Delivery:
        """What of a message is sent to each client."""
        ...

    def initial_broadcast(self) -> Broadcast:
        """The first message."""
        ...

    def train(self, message: Broadcast, cohort: Collection[str]) -> Sequence[Update | Failure]:
        """One round on the clients named; a backend that does not tolerate failures raises them."""
        ...

    def evaluate(
        self, message: Broadcast, splits: Collection[Split], clients: Collection[str] | None = None
    ) -> dict[str, Scores]:
        """The prediction of these clients, or of all, and each branch of it, on their own data."""
        ...


class TrainerBackend:
    """What a backend knows from the client trainer that it has."""

    trainer: ClientTrainer
    client_names: Sequence[str]

    @property
    def batch_norm_names(self) -> EntryNames:
        """The batch-norm entries of a client's module."""
        return self.trainer.batch_norm_names

    @property
    def parameter_names(self) -> EntryNames:
        """The entries of a client's module that are trained by gradients."""
        return self.trainer.parameter_names

    def initial_broadcast(self) -> Broadcast:
        """The first message."""
        return self.trainer.initial_broadcast(self.client_names)
