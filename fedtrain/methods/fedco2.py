"""Fed-CO2: an online model that is federated and an offline one that is not (Cai et al., 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from fedtrain.methods.base import AnyMethod, ModelFactory, PersonalNorm
from fedtrain.methods.cooperation import BranchSwitch, Cooperation, OnlineOfflineModel
from fedtrain.methods.fedbn import BatchNormStatistics, FedBN
from fedtrain.methods.fedper import FedPer
from fedtrain.methods.singleset import SingleSet
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, entries_under


@dataclass(frozen=True)
class FedCO2(Cooperation):
    """FedBN beside SingleSet, which teach each other (feature skew, Algorithm 1) or not (label skew, Algorithm 2)."""

    intra: BranchSwitch = "both"
    """Which model learns from the other one, as that was when the round began."""
    inter: BranchSwitch = "both"
    """Whose features the peers' frozen offline heads judge."""
    personal: Literal["bn", "head", "bn+head"] = "bn"
    """What of the online model stays with the client, unless ``online`` is given."""
    bn_stats: BatchNormStatistics = "local"
    """Whether personal batch norm includes its running statistics."""
    norm: PersonalNorm = "batch"
    """Which normalisation layers ``bn`` means."""
    start: Literal["common", "own"] = "common"
    """Whether offline models start as the online one, or each from its own weights (label-skew convention)."""
    online: AnyMethod | None = None
    """Another online method, by name; its options follow it: ``method.online.NAME``."""
    offline: AnyMethod | None = None
    """Another offline method, likewise."""
    title: ClassVar[str] = "Fed-CO2"
    needs_batch_norm: ClassVar[bool] = True

    @property
    def personal_norm(self) -> PersonalNorm:
        """As its option says."""
        return self.norm

    @cached_property
    def parts(self) -> Mapping[str, AnyMethod]:
        """FedBN and SingleSet, unless others are given."""
        return {
            "online": self._choose_online() if self.online is None else self.online,
            "offline": OfflineSingleSet(self.start) if self.offline is None else self.offline,
        }

    def _choose_online(self) -> AnyMethod:
        if self.personal == "head":
            return FedPer()
        return (FedBN if self.personal == "bn" else FedBNPer)(self.bn_stats, self.norm)

    def check(self, module: OnlineOfflineModel) -> None:
        """Fed-CO2 is not itself without batch norm; with another online method that one decides."""
        if self.online is None:
            super(Cooperation, self).check(module)
        else:
            super().check(module)


@dataclass(frozen=True)
class FedBNPer(FedBN):
    """FedBN whose head stays personal too."""

    def shared(self, module: Net) -> EntryNames:
        """The features without batch norm."""
        return super().shared(module) & entries_under(module, "features")


@dataclass(frozen=True)
class OfflineSingleSet(SingleSet):
    """SingleSet beside an online model: a client's own weights are another draw than those of SingleSet alone."""

    def build(self, factory: ModelFactory) -> Net:
        """The network."""
        return factory.build_own("offline") if self.start == "own" else factory.build_common()
