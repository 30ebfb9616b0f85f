"""FedPer as a package of one's own: features are shared, heads stay (Arivazhagan et al., 2019)."""

from dataclasses import dataclass
from typing import ClassVar

from fedtrain import FedAvg, Net
from fedtrain.parameters import EntryNames, entries_under


@dataclass(frozen=True)
class MyFedPer(FedAvg):
    """FedAvg whose head stays with the client."""

    title: ClassVar[str] = "My FedPer"

    def shared(self, module: Net) -> EntryNames:
        """The features."""
        return entries_under(module, "features")
