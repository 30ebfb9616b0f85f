"""All clients in this process, one after the other on one bench."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedtrain.bench import Bench
from fedtrain.data.clients import ClientData
from fedtrain.partition import StateDict
from fedtrain.protocol import Broadcast, Scores, Split, Update
from theory.errors import InputError


class LocalFleet:
    """Keeps what is personal, and the data, on the bench's device."""

    def __init__(self, bench: Bench, clients: Sequence[ClientData]) -> None:
        if len({client.name for client in clients}) < len(clients):
            raise InputError("two clients have the same name; give each its own")
        self.bench = bench
        self.clients = {client.name: client.to(bench.device) for client in clients}
        self.personal: dict[str, StateDict] = {name: bench.start(name) for name in self.clients}

    @property
    def names(self) -> Sequence[str]:
        """The clients, in the order of the data set."""
        return list(self.clients)

    def opening(self) -> Broadcast:
        """The first message."""
        return self.bench.opening(self.names)

    def train(self, message: Broadcast, cohort: Collection[str]) -> list[Update]:
        """Each in turn; what they keep changes when all are done, so that a round can be abandoned."""
        turns = [self.bench.train(self.clients[name], self.personal[name], message) for name in cohort]
        self.personal |= {update.client: kept for update, kept in turns}
        return [update for update, _ in turns]

    def evaluate(self, message: Broadcast, splits: Collection[Split]) -> dict[str, Scores]:
        """Each in turn."""
        return {
            name: self.bench.evaluate(data, self.personal[name], message, splits) for name, data in self.clients.items()
        }
