"""All clients in this process, one after the other on one bench."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedtrain.bench import Bench
from fedtrain.data.clients import ClientData
from fedtrain.errors import TrainingError
from fedtrain.partition import StateDict
from fedtrain.protocol import Broadcast, Failure, Scores, Split, Update
from theory.errors import InputError


class LocalFleet:
    """Keeps what is personal, and the data, on the bench's device."""

    def __init__(self, bench: Bench, clients: Sequence[ClientData], *, skip_failures: bool = False) -> None:
        if len({client.name for client in clients}) < len(clients):
            raise InputError("two clients have the same name; give each its own")
        self.bench, self.skip_failures = bench, skip_failures
        self.clients = {client.name: client.to(bench.device) for client in clients}
        self.personal: dict[str, StateDict] = bench.starts(self.clients)

    @property
    def names(self) -> Sequence[str]:
        """The clients, in the order of the data set."""
        return list(self.clients)

    def opening(self) -> Broadcast:
        """The first message."""
        return self.bench.opening(self.names)

    def train(self, message: Broadcast, cohort: Collection[str]) -> list[Update | Failure]:
        """Each in turn; what they keep changes when all are done, so that a round can be abandoned."""
        answers: list[Update | Failure] = []
        kept: dict[str, StateDict] = {}
        for name in cohort:
            try:
                update, kept[name] = self.bench.train(self.clients[name], self.personal[name], message)
                answers.append(update)
            except Exception as error:
                reason = told(error, name, message.round + 1)
                if not self.skip_failures:
                    raise reason from error
                said = str(reason)  # a MemoryError says nothing at all
                known = said.startswith(f"client {name}")
                answers.append(Failure(name, said if known else f"client {name}: {said or 'out of memory'}"))
        self.personal |= kept
        return answers

    def evaluate(self, message: Broadcast, splits: Collection[Split]) -> dict[str, Scores]:
        """Each in turn."""
        return {
            name: self.bench.evaluate(data, self.personal[name], message, splits) for name, data in self.clients.items()
        }


def told(error: Exception, client: str, round: int) -> Exception:
    """The error with the client's name; what speaks for itself, or of the whole machine, as it is."""
    if isinstance(error, InputError | MemoryError) or "tried to allocate" in str(error).lower():
        return error
    return TrainingError(f"client {client}, round {round}: {type(error).__name__}: {error} (--debug shows where)")
