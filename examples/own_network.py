"""Train a network of your own on data of your own: any module with ``features`` and ``head`` will do.

Four clients tell the same three classes apart, but each sees them with a shift and stretch of its own. Run it with
``python examples/own_network.py``; it takes some seconds and writes three run folders into ``runs/``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import fedtrain

CLASSES, DIM = 3, 8


class MyNet(nn.Module):
    """What is in the two parts is up to you; batch norm is found by its type, wherever it is."""

    def __init__(self, classes: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(shape[0], 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x))


def draw_client(name: str, centres: Tensor, rng: torch.Generator) -> fedtrain.ClientData:
    """A client that sees the classes through its own lens."""
    stretch, shift = torch.randn(DIM, generator=rng).exp(), 3 * torch.randn(DIM, generator=rng)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(CLASSES, (n,), generator=rng)
        return (centres[labels] + torch.randn(n, DIM, generator=rng)) * stretch + shift, labels

    return fedtrain.ClientData.from_arrays(name, train=draw(60), test=draw(200))


def main() -> None:
    """Train three methods and print the test accuracy of each client."""
    rng = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, DIM, generator=rng)
    clients = [draw_client(name, centres, rng) for name in ("north", "east", "south", "west")]
    for method in (fedtrain.FedAvg(), fedtrain.FedBN(), fedtrain.FedCO2(mu=0.5)):
        run = fedtrain.train(clients=clients, model=MyNet, method=method, rounds=15, lr=0.05, batch_size=20, quiet=True)
        print(run.accuracy())


if __name__ == "__main__":
    main()
