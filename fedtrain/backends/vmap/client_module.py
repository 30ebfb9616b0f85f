"""One client as the losses see it while many are computed as one (see `fedtrain.backends.vmap.stacked_clients`)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from fedtrain.methods.base import Batch, LossFunction, Peers, RoundContext
from fedtrain.parameters import StateDict


class StackedPeers(Peers):
    """All published heads, of which each client hears the others': so no client needs copies of its own."""

    def __init__(self, heads: Sequence[nn.Module], which: Tensor) -> None:
        super().__init__(heads)
        self.indices = which

    def __len__(self) -> int:
        return len(self.indices)

    def __call__(self, z: Tensor) -> Tensor:
        """What the others say of these features."""
        return super().__call__(z)[self.indices]


class ClientModule(nn.Module):
    """A client's module and the model at the start of the round as one: one call fills both with its tensors."""

    def __init__(self, module: nn.Module, round_start_model: nn.Module | None = None) -> None:
        super().__init__()
        self.module, self.round_start_model = module, round_start_model

    def forward(self, loss: LossFunction[nn.Module], batch: Batch, view: RoundContext[nn.Module]) -> Tensor:
        """The loss of the client whose tensors these are."""
        return loss(self.module, batch, view)

    def named_tensors(self) -> StateDict:
        """All parameters and buffers, each once."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}
