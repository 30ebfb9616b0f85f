"""Fed-CO2: an online model that is federated and an offline one that is not (Cai et al., 2023)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from fedtrain.methods.base import (
    Batch,
    Method,
    ModelFactory,
    PersonalNorm,
    Phase,
    RoundContext,
    check_non_negative,
)
from fedtrain.methods.fedbn import BatchNormStatistics
from fedtrain.methods.two_models import kl_from_teacher
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, entries_under, norm_entries

BranchSwitch = Literal["none", "online", "offline", "both"]
OTHER_BRANCH = {"online": "offline", "offline": "online"}


class OnlineOfflineModel(nn.Module):
    """The online and the offline model of one client."""

    def __init__(self, online: Net, offline: Net) -> None:
        super().__init__()
        self.online, self.offline = online, offline

    def __getitem__(self, branch: str) -> Net:
        return self.online if branch == "online" else self.offline


@dataclass(frozen=True)
class FedCO2(Method[OnlineOfflineModel]):
    """The two models cooperate (feature skew, Algorithm 1), or with intra = inter = none do not (label skew, 2)."""

    intra: BranchSwitch = "both"
    """Which model learns from the other one, as that was when the round began."""
    inter: BranchSwitch = "both"
    """Whose features the peers' frozen offline heads judge."""
    mu: float = 1.0
    """Weight of L_gen, the loss under the peers' heads."""
    gen: Literal["sum", "mean"] = "sum"
    """How L_gen gathers the peers."""
    personal: Literal["bn", "head", "bn+head"] = "bn"
    """What of the online model stays with the client."""
    bn_stats: BatchNormStatistics = "local"
    """Whether personal batch norm includes its running statistics."""
    norm: PersonalNorm = "batch"
    """Which normalisation layers ``bn`` means."""
    fusion: Literal["logits", "probabilities"] = "logits"
    """What of the two models is added up for the prediction."""
    start: Literal["common", "own"] = "common"
    """Whether offline models start as the online one, or each from its own weights (label-skew convention)."""
    title: ClassVar[str] = "Fed-CO2"
    needs_batch_norm: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_non_negative("mu", self.mu)

    @property
    def personal_norm(self) -> PersonalNorm:
        """As its option says."""
        return self.norm

    @property
    def published(self) -> str:
        """The offline head, if peers are to judge by it."""
        return "" if self.inter == "none" else "offline.head"

    def build(self, factory: ModelFactory) -> OnlineOfflineModel:
        """Both models start equal, or the offline one from the client's own weights."""
        online = factory.build_common()
        return OnlineOfflineModel(
            online, copy.deepcopy(online) if self.start == "common" else factory.build_own("offline")
        )

    def shared(self, module: OnlineOfflineModel) -> EntryNames:
        """The online model without its personal part."""
        norm = norm_entries(module, self.norm, stats=self.bn_stats == "local")
        return entries_under(module, "online" if self.personal == "bn" else "online.features") - (
            norm if "bn" in self.personal else frozenset()
        )

    def needs_round_start(self, round: int) -> bool:
        """Teachers are the models as the round began; in the first round they have nothing to teach."""
        return self.intra != "none" and round > 0

    def phases(self, round: int, epochs: int) -> Sequence[Phase[OnlineOfflineModel]]:
        """One pass of learning from each other, then from the labels."""
        return [*([self.mutual_loss] if self.needs_round_start(round) else []), *[self.loss] * epochs]

    def mutual_loss(
        self, module: OnlineOfflineModel, batch: Batch, context: RoundContext[OnlineOfflineModel]
    ) -> Tensor:
        """Σ KL(teacher ‖ pupil), the teacher being the other model."""
        x, _ = batch
        terms = []
        for pupil in list_branches(self.intra):
            teacher = context.round_start_model[OTHER_BRANCH[pupil]]
            terms.append(kl_from_teacher(teacher(x), module[pupil](x)))
        return torch.stack(terms).sum()

    def loss(self, module: OnlineOfflineModel, batch: Batch, context: RoundContext[OnlineOfflineModel]) -> Tensor:
        """Σ over both models of CE under the own head + μ L_gen, L_gen = Σ_j CE under the head of peer j."""
        x, y = batch
        z = {branch: module[branch].features(x) for branch in list_branches("both")}
        terms = [context.cross_entropy(module[branch].head(z[branch]), y) for branch in z]
        judged = [z[branch] for branch in list_branches(self.inter)]
        if judged and context.peers:
            peer_logits = context.peers(torch.cat(judged))  # both models at once: a large head is read but once
            every = len(judged) * len(context.peers)
            scale = self.mu * (len(judged) if self.gen == "mean" else every)
            terms.append(scale * context.cross_entropy(peer_logits.flatten(0, 1), y.repeat(every)))
        return torch.stack(terms).sum()

    def branches(
        self, module: OnlineOfflineModel, x: Tensor, context: RoundContext[OnlineOfflineModel]
    ) -> Mapping[str, Tensor]:
        """Both models."""
        return {branch: module[branch](x) for branch in list_branches("both")}

    def fuse(self, branches: Mapping[str, Tensor], context: RoundContext[OnlineOfflineModel]) -> Tensor:
        """The sum of logits, or the logarithm of the mean of probabilities."""
        if self.fusion == "logits":
            return super().fuse(branches, context)
        return torch.stack([logits.log_softmax(-1) for logits in branches.values()]).logsumexp(0) - log(len(branches))


def list_branches(which: BranchSwitch) -> tuple[str, ...]:
    """The models that a switch names."""
    return {"none": (), "both": ("online", "offline")}.get(which, (which,))
