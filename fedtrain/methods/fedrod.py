"""FedRoD: a generic head and a personal one on shared features (Chen & Chao, 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from fedtrain.methods.base import Batch, ModelFactory, RoundContext
from fedtrain.methods.fusion import FusingMethod
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, entries_under
from fedtrain.registry import FusionRule


class TwoHeadModel(nn.Module):
    """The generic network, and a personal head beside its own."""

    def __init__(self, generic: Net, personal: nn.Module) -> None:
        super().__init__()
        self.generic, self.personal = generic, personal


@dataclass(frozen=True)
class FedRoD(FusingMethod[TwoHeadModel]):
    """The personal head corrects the generic logits and sends no gradient back."""

    balanced: bool = False
    """Generic loss with balanced softmax (logits plus log class frequencies) instead of plain cross entropy."""
    fusion: FusionRule = "logits"
    """What is made of the two heads' logits: their sum, as published, or another rule."""
    personal_sgd: Literal["same", "plain"] = "same"
    """plain: the personal head is trained without momentum and weight decay, as in the published code."""
    title: ClassVar[str] = "FedRoD"
    network: ClassVar[str] = "generic"

    @property
    def branch_names(self) -> Sequence[str]:
        """Both heads."""
        return ("generic", "personal")

    def build(self, factory: ModelFactory) -> TwoHeadModel:
        """The personal head is drawn apart, alike for all clients."""
        return TwoHeadModel(factory.build_common(), factory.build_common("personal head").head)

    def shared(self, module: TwoHeadModel) -> EntryNames:
        """The generic network."""
        return entries_under(module, "generic")

    def plain_sgd_parameters(self, module: TwoHeadModel) -> Sequence[nn.Parameter]:
        """The personal head, if so wanted."""
        return list(module.personal.parameters()) if self.personal_sgd == "plain" else ()

    def loss(self, module: TwoHeadModel, batch: Batch, context: RoundContext[TwoHeadModel]) -> Tensor:
        """Generic loss plus personal loss; the two touch disjoint weights."""
        x, y = batch
        z = module.generic.features(x)
        generic = module.generic.head(z)
        fused = generic.detach() + module.personal(z.detach())
        prior = (context.class_counts.to(generic) / context.class_counts.sum()).log() if self.balanced else 0.0
        return context.cross_entropy(generic + prior, y) + context.cross_entropy(fused, y)

    def branches(self, module: TwoHeadModel, x: Tensor, context: RoundContext[TwoHeadModel]) -> Mapping[str, Tensor]:
        """Both heads."""
        z = module.generic.features(x)
        return {"generic": module.generic.head(z), "personal": module.personal(z)}
