"""MOON: contrast features with the global and the previous local model (Li, He & Song, 2021)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtrain.methods.base import Batch, Method, ModelFactory, RoundContext, check_non_negative
from fedtrain.models import Net, SplitPoint
from fedtrain.parameters import EntryNames, entries_under
from theory.errors import InputError


class MoonModel(nn.Module):
    """A network, and one that this client trained before."""

    def __init__(self, model: Net, previous: Net) -> None:
        super().__init__()
        self.model, self.previous = model, previous.requires_grad_(False)


@dataclass(frozen=True)
class Moon(Method[MoonModel]):
    """Cross entropy - μ log[ e^{cos(z, z_glob)/τ} / (e^{cos(z, z_glob)/τ} + e^{cos(z, z_prev)/τ}) ]."""

    mu: float = 1.0
    """Weight of the contrast."""
    tau: float = 0.5
    """Its temperature."""
    previous: Literal["last", "initial"] = "last"
    """initial: the previous model is for ever a random one, as in the published code for label skew."""
    title: ClassVar[str] = "MOON"
    network: ClassVar[str] = "model"
    split_at: ClassVar[SplitPoint] = "last"

    def __post_init__(self) -> None:
        check_non_negative("mu", self.mu)
        if not self.tau > 0:
            raise InputError(f"method.tau is {self.tau}; it must be above 0")

    def build(self, factory: ModelFactory) -> MoonModel:
        """Before it trained anything, a client remembers the common start."""
        model = factory.build_common()
        return MoonModel(model, copy.deepcopy(model) if self.previous == "last" else factory.build_own("previous"))

    def shared(self, module: MoonModel) -> EntryNames:
        """The network, not the memory."""
        return entries_under(module, "model")

    def needs_round_start(self, round: int) -> bool:
        """The global model is the one that the round began with."""
        return self.mu != 0

    def loss(self, module: MoonModel, batch: Batch, context: RoundContext[MoonModel]) -> Tensor:
        """Cross entropy plus the contrast."""
        x, y = batch
        z = module.model.features(x)
        own = context.cross_entropy(module.model.head(z), y)
        if self.mu == 0:
            return own
        near = F.cosine_similarity(z, context.round_start_model.model.features(x), dim=-1)
        far = F.cosine_similarity(z, context.round_start_model.previous.features(x), dim=-1)
        contrast = -F.log_softmax(torch.stack([near, far], -1) / self.tau, dim=-1)[:, 0].mean()
        return own + self.mu * contrast

    def finish(self, module: MoonModel, context: RoundContext[MoonModel]) -> None:
        """Remember the network just trained."""
        if self.previous == "last":
            module.previous.load_state_dict(module.model.state_dict())

    def branches(self, module: MoonModel, x: Tensor, context: RoundContext[MoonModel]) -> Mapping[str, Tensor]:
        """The network."""
        return {"model": module.model(x)}
