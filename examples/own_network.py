"""Train a network of your own: any module with ``features`` and ``head`` will do.

Four clients tell the same three classes apart, but each sees them with a shift and stretch of its own. Run it with
``python examples/own_network.py``; it takes a few seconds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedtrain.backends.serial import SerialBackend
from fedtrain.config.local import LocalSettings
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS

CLASSES, DIM = 3, 8


class MyNet(nn.Module):
    """What is in the two parts is up to you; batch norm is found by its type, wherever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(DIM, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x))


def client(name: str, centres: Tensor, chance: torch.Generator) -> ClientData:
    """A client that sees the classes through its own lens."""
    stretch, shift = torch.randn(DIM, generator=chance).exp(), 3 * torch.randn(DIM, generator=chance)

    def samples(n: int) -> Samples:
        labels = torch.randint(CLASSES, (n,), generator=chance)
        return Samples((centres[labels] + torch.randn(n, DIM, generator=chance)) * stretch + shift, labels)

    return ClientData(name, train=samples(60), test=samples(200))


def main() -> None:
    """Train three methods and print the test accuracy of each client."""
    chance = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, DIM, generator=chance)
    clients = [client(name, centres, chance) for name in ("north", "east", "south", "west")]
    for name in ("fedavg", "fedbn", "fedco2"):
        method = METHODS[name]()
        fleet = SerialBackend(
            ClientTrainer(method, MyNet, CLASSES, local=LocalSettings(lr=0.05, batch_size=20)), clients
        )
        *_, last = federate(fleet, fleet.initial_broadcast(), rounds=15)
        scores = fleet.evaluate(last.message, splits=["test"])
        accuracy = {client: each["test"]["fused"].accuracy for client, each in scores.items()}
        told = "  ".join(f"{client} {value:.3f}" for client, value in accuracy.items())
        print(f"{method.title:8}{told}  mean {sum(accuracy.values()) / len(accuracy):.3f}")


if __name__ == "__main__":
    main()
