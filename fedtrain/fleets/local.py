"""All clients in this process, one after the other on one bench."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from fedtrain.bench import Bench, Keep
from fedtrain.data.clients import ClientData
from fedtrain.errors import TrainingError
from fedtrain.partition import StateDict
from fedtrain.protocol import Broadcast, Failure, Scores, Split, Update
from theory.errors import InputError

T = TypeVar("T")
Turn = tuple[Update, StateDict]
"""What a client sends when it has trained, and what it keeps."""


class LocalFleet:
    """Keeps the data on the bench's device, and what is personal too, unless told where to keep that."""

    def __init__(
        self, bench: Bench, clients: Sequence[ClientData], *, skip_failures: bool = False, keep: Keep = dict
    ) -> None:
        if len({client.name for client in clients}) < len(clients):
            raise InputError("two clients have the same name; give each its own")
        self.bench, self.skip_failures, self.keep = bench, skip_failures, keep
        self.clients = {client.name: client.to(bench.device) for client in clients}
        self.personal: dict[str, StateDict] = bench.starts(self.clients, keep)

    @property
    def names(self) -> Sequence[str]:
        """The clients, in the order of the data set."""
        return list(self.clients)

    def opening(self) -> Broadcast:
        """The first message."""
        return self.bench.opening(self.names)

    def train(self, message: Broadcast, cohort: Collection[str]) -> list[Update | Failure]:
        """Everyone named."""

        def turn(bench: Bench, name: str) -> Turn:
            return bench.train(self.clients[name], self.personal[name], message)

        return self.gather(turn, message.round + 1, list(cohort))

    def gather(self, turn: Callable[[Bench, str], Turn], round: int, cohort: Sequence[str]) -> list[Update | Failure]:
        """All answers; what clients keep changes when all are done, so that a round can be abandoned."""

        def one(bench: Bench, name: str) -> tuple[Update | Failure, StateDict | None]:
            try:
                answer, kept = turn(bench, name)
            except Exception as error:
                reason = told(error, name, round)
                if not self.skip_failures:
                    raise reason from error
                said = str(reason)  # a MemoryError says nothing at all
                known = said.startswith(f"client {name}")
                return Failure(name, said if known else f"client {name}: {said or 'out of memory'}"), None
            return answer, self.keep(kept)

        answers = self.each(one, cohort)
        self.personal |= {answer.client: kept for answer, kept in answers if kept is not None}
        return [answer for answer, _ in answers]

    def evaluate(self, message: Broadcast, splits: Collection[Split]) -> dict[str, Scores]:
        """Everyone."""

        def one(bench: Bench, name: str) -> Scores:
            return bench.evaluate(self.clients[name], self.personal[name], message, splits)

        return dict(zip(self.names, self.each(one, self.names), strict=True))

    def each(self, work: Callable[[Bench, str], T], names: Sequence[str]) -> list[T]:
        """Do this for every client named: here, in turn."""
        return [work(self.bench, name) for name in names]


def told(error: Exception, client: str, round: int) -> Exception:
    """The error with the client's name; what speaks for itself, or of the whole machine, as it is."""
    if isinstance(error, InputError | MemoryError) or "tried to allocate" in str(error).lower():
        return error
    return TrainingError(f"client {client}, round {round}: {type(error).__name__}: {error} (--debug shows where)")
