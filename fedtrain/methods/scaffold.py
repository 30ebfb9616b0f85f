"""SCAFFOLD: FedAvg whose steps are corrected for what the client's data pull it to (Karimireddy et al., 2020)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedtrain.methods.base import Batch, Method, ModelFactory, RoundContext
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, entries_under


class ScaffoldModel(nn.Module):
    """A network, and the control variates: what gradients are like for all clients, and for this one."""

    server_variate: Tensor
    client_variate: Tensor

    def __init__(self, model: Net) -> None:
        super().__init__()
        self.model = model
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        nothing = trained[0].new_zeros(sum(weight.numel() for weight in trained))
        self.register_buffer("server_variate", nothing)
        self.register_buffer("client_variate", nothing.clone())


@dataclass(frozen=True)
class Scaffold(Method[ScaffoldModel]):
    """Every step adds c - c_i to the gradient; after the round c_i is the mean gradient of its steps (option II)."""

    title: ClassVar[str] = "SCAFFOLD"
    network: ClassVar[str] = "model"
    needs_sgd: ClassVar[bool] = True

    def build(self, factory: ModelFactory) -> ScaffoldModel:
        """The network; the variates begin at zero."""
        return ScaffoldModel(factory.build_common())

    def shared(self, module: ScaffoldModel) -> EntryNames:
        """The network and the server's variate."""
        return entries_under(module, "model") | {"server_variate"}

    def needs_round_start(self, round: int) -> bool:
        """The way from there to the end of the round is the sum of its gradients."""
        return True

    def loss(self, module: ScaffoldModel, batch: Batch, context: RoundContext[ScaffoldModel]) -> Tensor:
        """Cross entropy plus a term that is zero and whose gradient is c - c_i."""
        x, y = batch
        weights = flatten_trained(module.model, module.model.parameters())
        correction = (weights - weights.detach()) * (module.server_variate - module.client_variate)
        return context.cross_entropy(module.model(x), y) + correction.sum()

    @torch.no_grad()
    def finish(self, module: ScaffoldModel, context: RoundContext[ScaffoldModel]) -> None:
        """New c_i = c_i - c + (w_start - w) / Σ lr; the mean of what clients send becomes c + Σ_S Δc_i / N."""
        start = flatten_trained(module.model, context.round_start_model.model.parameters())
        way = (start - flatten_trained(module.model, module.model.parameters())) / context.total_lr
        change = way - module.server_variate
        module.client_variate.add_(change)
        module.server_variate.add_(change, alpha=context.participation)

    def branches(self, module: ScaffoldModel, x: Tensor, context: RoundContext[ScaffoldModel]) -> Mapping[str, Tensor]:
        """The network."""
        return {"model": module.model(x)}


def flatten_trained(model: nn.Module, values: Iterable[Tensor]) -> Tensor:
    """The values of those parameters that the model trains, one after the other."""
    pairs = zip(model.parameters(), values, strict=True)
    return torch.cat([value.flatten() for weight, value in pairs if weight.requires_grad])
