"""The kernel of one model of a federation: what clients share couples them, what is personal does not."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from theory.errors import InputError
from theory.kernels.federated import keep_client_blocks
from theory.kernels.layerwise.ntk import compute_grouped_kernels

SHARED, PERSONAL = "shared", "personal"


@dataclass(frozen=True)
class ClientSamples:
    """What is looked at: samples of each client as its network reads them, their labels, the client's weight."""

    names: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    labels: tuple[Tensor, ...]
    weights: tuple[float, ...]
    """With which the server averages; they add up to 1."""

    def __post_init__(self) -> None:
        sizes = {len(self.names), len(self.inputs), len(self.labels), len(self.weights)}
        if len(sizes) != 1 or not self.names:
            raise InputError("every client needs a name, inputs, labels and a weight, and there must be a client")

    @property
    def total(self) -> int:
        """Samples of all clients."""
        return sum(map(len, self.inputs))


@dataclass(frozen=True)
class FederatedKernel:
    """The tangent kernel of a model over all clients' samples, in the part of what is shared and of what is not."""

    shared: Tensor
    personal: Tensor
    """Zero between clients."""
    owner: Tensor
    """The client of each row."""

    @cached_property
    def whole(self) -> Tensor:
        """The kernel of descent on the pooled loss, as the paper has it."""
        return self.shared + self.personal

    @cached_property
    def blocks(self) -> Tensor:
        """The kernel that the same networks would have if nothing were shared."""
        return keep_client_blocks(self.whole, self.owner)

    @cached_property
    def averaged(self) -> Tensor:
        """What a step and averaging with equal weights descend: K_shared / N + K_personal (claim D3)."""
        return self.shared / (int(self.owner.max()) + 1) + self.personal

    def list_rows(self) -> list[slice]:
        """The rows of each client."""
        counts = torch.bincount(self.owner).tolist()
        ends = [sum(counts[: i + 1]) for i in range(len(counts))]
        return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]

    @property
    def couples_clients(self) -> bool:
        """Whether anything is shared."""
        return bool((self.whole != self.blocks).any())

    def __add__(self, other: FederatedKernel) -> FederatedKernel:
        return FederatedKernel(self.shared + other.shared, self.personal + other.personal, self.owner)


def compute_federated_ntk(
    networks: Sequence[nn.Module],
    samples: ClientSamples,
    shared: Set[str],
    memory: int | None = None,
    outputs: Sequence[int] | None = None,
) -> FederatedKernel:
    """The kernel of client i's network on client i's samples; ``shared`` are the entries that a method averages."""
    names = [name for name, p in networks[0].named_parameters() if p.requires_grad]
    groups = {name: SHARED if name in shared else PERSONAL for name in names}
    found = compute_grouped_kernels(
        networks, samples.inputs, groups, apart=set(names) - shared, outputs=outputs, memory=memory
    )
    first = next(iter(found.values()))
    rows = len(first) // samples.total
    sizes = torch.tensor([rows * len(x) for x in samples.inputs])
    owner = torch.repeat_interleave(torch.arange(len(samples.names)), sizes).to(first.device)
    none = torch.zeros_like(first) if len(found) < 2 else first
    return FederatedKernel(found.get(SHARED, none), found.get(PERSONAL, none), owner)
