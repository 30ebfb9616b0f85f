"""Three small clients and a small network, on which a method is put to the test within a second."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.local import LocalSettings
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.federated.client import ClientTrainer, Precision
from fedtrain.federated.messages import Broadcast, RoundResult
from fedtrain.federated.server import federate
from fedtrain.methods.base import AnyMethod
from fedtrain.models import Net
from fedtrain.parameters import StateDict
from fedtrain.rng import make_generator

NAMES, SIZES, DIM, CLASSES = ("b", "a", "c"), (14, 11, 12), 6, 3
"""The order of the clients is not that of the alphabet."""


def build_network() -> Net:
    """Batch norm in both parts; no bias where batch norm would take it out again."""
    features = nn.Sequential(nn.Linear(DIM, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU())
    return Net(
        features, nn.Sequential(nn.Linear(12, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))
    )


def build_clients() -> list[ClientData]:
    """The same classes, seen through different lenses."""
    chance = make_generator("clients of the checker")
    centres = 3 * torch.randn(CLASSES, DIM, generator=chance)

    def draw(n: int, stretch: Tensor, shift: Tensor) -> Samples:
        labels = torch.arange(n) % CLASSES
        return Samples((centres[labels] + 0.5 * torch.randn(n, DIM, generator=chance)) * stretch + shift, labels)

    clients = []
    for name, size in zip(NAMES, SIZES, strict=True):
        stretch, shift = 0.5 + torch.rand(2, DIM, generator=chance)
        clients.append(ClientData(name, draw(size, stretch, shift), draw(30, stretch, shift)))
    return clients


@dataclass
class SmallRun:
    """A backend after its rounds, and every round of it."""

    backend: SerialBackend
    start: Broadcast
    history: list[RoundResult]

    @property
    def message(self) -> Broadcast:
        """The last one of the server."""
        return self.history[-1].message if self.history else self.start

    def load_entries(self, client: str) -> StateDict:
        """All that a client's module holds when it predicts."""
        data = self.backend.clients[client]
        self.backend.trainer.predict(data, self.backend.client_states[client], self.message, data.test.inputs[:2])
        return copy_state(self.backend.trainer.module.state_dict())


def build_trainer(
    method: AnyMethod, seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> ClientTrainer:
    """Where the clients take turns."""
    local = LocalSettings(lr=0.1, momentum=0.5, weight_decay=1e-3, batch_size=8)
    return ClientTrainer(
        method,
        build_network,
        CLASSES,
        local=local,
        seed=seed,
        device=device,
        precision=Precision(dtype),
        fast_path=False,
    )


def train(
    method: AnyMethod,
    rounds: int = 2,
    *,
    clients: Sequence[ClientData] | None = None,
    seed: int = 0,
    kind: type[SerialBackend] | type[VmapBackend] = SerialBackend,
    dtype: torch.dtype = torch.float32,
) -> SmallRun:
    """Train from the start."""
    backend = kind(build_trainer(method, seed, dtype=dtype), list(clients or build_clients()))
    start = backend.initial_broadcast()
    return SmallRun(backend, start, list(federate(backend, start, rounds, seed=seed)))


def copy_state(state: Mapping[str, Tensor]) -> StateDict:
    """Entries that later training does not change."""
    return {name: value.detach().clone() for name, value in state.items()}


def copy_states(states: Mapping[str, StateDict]) -> dict[str, StateDict]:
    """The same by client."""
    return {client: copy_state(state) for client, state in states.items()}


def find_difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float = 0.0) -> str | None:
    """The first entry that differs."""
    if one.keys() != other.keys():
        return ", ".join(sorted(one.keys() ^ other.keys()))
    for name, value in one.items():
        if not torch.allclose(value.double(), other[name].double(), rtol=tolerance, atol=tolerance):
            return name
    return None


def clone_run_state(run: SmallRun) -> tuple[Broadcast, dict[str, StateDict]]:
    """What a checkpoint would have."""
    return copy.deepcopy(run.message), copy_states(run.backend.client_states)
