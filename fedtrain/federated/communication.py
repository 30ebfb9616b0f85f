"""How many bytes travel: what a client in the cohort receives, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from fedtrain.federated.codec.states import get_entry_name
from fedtrain.federated.messages import Broadcast, Failure, Update
from fedtrain.parameters import EntryNames, StateDict


@dataclass(frozen=True)
class PayloadBytes:
    """Bytes of averaged entries, of averaged batch norm, and of published heads."""

    shared: int = 0
    bn: int = 0
    head: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.shared + self.bn + self.head

    def to_dict(self) -> dict[str, int]:
        """By kind, and together."""
        return {**asdict(self), "total": self.total}

    def __add__(self, other: PayloadBytes) -> PayloadBytes:
        return PayloadBytes(self.shared + other.shared, self.bn + other.bn, self.head + other.head)


@dataclass(frozen=True)
class CommunicationCost:
    """Both directions; evaluation is measurement, not communication, and costs nothing here."""

    up: PayloadBytes = PayloadBytes()
    down: PayloadBytes = PayloadBytes()

    def to_dict(self) -> dict[str, dict[str, int]]:
        """By direction and kind."""
        return {"up": self.up.to_dict(), "down": self.down.to_dict()}

    def __add__(self, other: CommunicationCost) -> CommunicationCost:
        return CommunicationCost(self.up + other.up, self.down + other.down)


def count_bytes(state: StateDict) -> int:
    """Bytes of its tensors."""
    return sum(value.numel() * value.element_size() for value in state.values())


def measure_exchange(message: Broadcast, answer: Update | Failure, batch_norm_names: EntryNames) -> CommunicationCost:
    """What one client received (the heads of all others with it) and answered."""
    down = measure_message(
        message.shared, batch_norm_names, (head for name, head in message.peers.items() if name != answer.client)
    )
    return CommunicationCost(
        measure_message(answer.shared, batch_norm_names, [answer.published])
        if isinstance(answer, Update)
        else PayloadBytes(),
        down,
    )


def measure_message(shared: StateDict, batch_norm_names: EntryNames, heads: Iterable[StateDict]) -> PayloadBytes:
    """The bytes of one message; ``norm`` names the batch-norm entries."""
    bn = count_bytes({part: value for part, value in shared.items() if get_entry_name(part) in batch_norm_names})
    return PayloadBytes(count_bytes(shared) - bn, bn, sum(count_bytes(head) for head in heads))
