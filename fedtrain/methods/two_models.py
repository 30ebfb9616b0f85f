"""A generic model that is averaged and a personal one that is not: what Ditto, pFedMe, APFL and FML have in common."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtrain.methods.base import ModelFactory, RoundContext
from fedtrain.methods.fusion import FusingMethod
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, entries_under


class TwoModels(nn.Module):
    """The generic and the personal model of one client."""

    def __init__(self, generic: Net, personal: Net) -> None:
        super().__init__()
        self.generic, self.personal = generic, personal


@dataclass(frozen=True)
class TwoModelMethod(FusingMethod[TwoModels]):
    """The personal model predicts; methods differ in what the two learn from each other."""

    network: ClassVar[str] = "personal"

    @property
    def branch_names(self) -> Sequence[str]:
        """Both models."""
        return ("generic", "personal")

    def build(self, factory: ModelFactory) -> TwoModels:
        """Both models start equal, and alike for all clients."""
        generic = factory.build_common()
        return TwoModels(generic, copy.deepcopy(generic))

    def shared(self, module: TwoModels) -> EntryNames:
        """The generic model."""
        return entries_under(module, "generic")

    def branches(self, module: TwoModels, x: Tensor, context: RoundContext[TwoModels]) -> Mapping[str, Tensor]:
        """Both models."""
        return {"generic": module.generic(x), "personal": module.personal(x)}

    def fuse_as_published(self, branches: Mapping[str, Tensor], context: RoundContext[TwoModels]) -> Tensor:
        """The personal model alone."""
        return branches["personal"]


def squared_distance(one: nn.Module, other: nn.Module) -> Tensor:
    """‖v - w‖² over the trained parameters v of ``one``; no gradient goes to the other."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return torch.stack([(v - w.detach()).square().sum() for v, w in pairs if v.requires_grad]).sum()


def kl_from_teacher(teacher: Tensor, pupil: Tensor) -> Tensor:
    """KL(teacher ‖ pupil) of logits, the mean over the batch."""
    p, q = F.log_softmax(teacher, -1), F.log_softmax(pupil, -1)
    return F.kl_div(q, p, reduction="batchmean", log_target=True)
