"""Cooperate: any online method beside any offline one; Fed-CO2 is FedBN beside SingleSet (after Cai et al., 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from fedtrain.methods.base import AnyMethod
from fedtrain.methods.cooperation import Cooperation
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.singleset import SingleSet


@dataclass(frozen=True)
class Cooperate(Cooperation):
    """Two methods of your choice on each client, without transfer unless intra or inter asks for it."""

    online: AnyMethod = field(default=FedBN())
    """The online method by name; its options follow it: ``method.online.NAME``."""
    offline: AnyMethod = field(default=SingleSet())
    """The offline method, likewise; either may be ``cooperate`` again, which makes three branches or more."""
    title: ClassVar[str] = "Cooperation"

    @property
    def parts(self) -> Mapping[str, AnyMethod]:
        """As given."""
        return {"online": self.online, "offline": self.offline}
