"""FedProto: share what the features of each class are like on average, and no weights (Tan et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedtrain.methods.base import Batch, Method, ModelFactory, RoundContext, check_non_negative
from fedtrain.models import Net, SplitPoint
from fedtrain.parameters import EntryNames
from theory.errors import InputError


class PrototypeModel(nn.Module):
    """A network, the features of each class summed over the samples, and the share of each class; both by sample."""

    feature_sums: Tensor
    class_shares: Tensor

    def __init__(self, model: Net) -> None:
        super().__init__()
        self.model = model
        layers = [layer for layer in model.head.modules() if isinstance(layer, nn.Linear)]
        if not layers:
            raise InputError(
                "FedProto sees from the first and the last linear layer of the head how large features are and how "
                "many classes there are, and this head has none; take another network or another method"
            )
        classes, size, like = layers[-1].out_features, layers[0].in_features, layers[0].weight.detach()
        self.register_buffer("feature_sums", like.new_zeros(classes, size))
        self.register_buffer("class_shares", like.new_zeros(classes))

    def compute_prototypes(self) -> Tensor:
        """The mean feature of each class; zero for a class that nobody has shown."""
        return self.feature_sums / self.class_shares.clamp_min(torch.finfo(self.class_shares.dtype).tiny)[:, None]


@dataclass(frozen=True)
class FedProto(Method[PrototypeModel]):
    """CE + λ mean (z - prototype of the sample's class)²; the nearest prototype predicts."""

    lam: float = 1.0
    """λ, how strongly features are pulled to the prototypes of all clients."""
    title: ClassVar[str] = "FedProto"
    network: ClassVar[str] = "model"
    split_at: ClassVar[SplitPoint] = "last"

    def __post_init__(self) -> None:
        check_non_negative("lam", self.lam)

    def build(self, factory: ModelFactory) -> PrototypeModel:
        """The network; there are no prototypes yet."""
        return PrototypeModel(factory.build_common())

    def shared(self, module: PrototypeModel) -> EntryNames:
        """Sums and shares, so that the mean over clients weighs each sample alike, or each client's share of them."""
        return frozenset({"feature_sums", "class_shares"})

    def loss(self, module: PrototypeModel, batch: Batch, context: RoundContext[PrototypeModel]) -> Tensor:
        """Cross entropy plus the pull; a class that has no prototype yet pulls nobody."""
        x, y = batch
        z = module.model.features(x)
        away = z.flatten(1) - module.compute_prototypes()[y]
        known = (module.class_shares[y] > 0)[:, None]
        return context.cross_entropy(module.model.head(z), y) + self.lam * (known * away.square()).mean()

    @torch.no_grad()
    def finish(self, module: PrototypeModel, context: RoundContext[PrototypeModel]) -> None:
        """Measure the client's own classes with the features that it has now."""
        module.eval()
        module.feature_sums.zero_()
        samples = context.class_counts.sum()
        for x, y in context.training_samples():
            module.feature_sums.index_add_(0, y, module.model.features(x).flatten(1))
        module.feature_sums.div_(samples)
        module.class_shares.copy_(context.class_counts).div_(samples)

    def branches(
        self, module: PrototypeModel, x: Tensor, context: RoundContext[PrototypeModel]
    ) -> Mapping[str, Tensor]:
        """The head, and less the squared distances to the prototypes, of which there are some after the first round."""
        z = module.model.features(x)
        own = {"head": module.model.head(z)}
        if context.round == 0:
            return own
        known = module.class_shares > 0
        squares = (z.flatten(1)[:, None] - module.compute_prototypes()).square().sum(-1)
        beyond = squares.masked_fill(~known, 0).amax(1, keepdim=True) + 1  # for classes that nobody has shown
        return own | {"prototypes": -torch.where(known, squares, beyond)}

    def fuse(self, branches: Mapping[str, Tensor], context: RoundContext[PrototypeModel]) -> Tensor:
        """The nearest prototype; before the first round the head."""
        return branches.get("prototypes", branches["head"])
