"""What there is to choose from, by name. Nothing is loaded to list it, so that the command line starts at once."""

from __future__ import annotations

from typing import Literal, get_args

METHOD_CLASSES = {
    "singleset": "SingleSet",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedper": "FedPer",
    "moon": "Moon",
    "fedrod": "FedRoD",
    "copa": "Copa",
    "fedbn": "FedBN",
    "fedco2": "FedCO2",
}
"""The class of each method; it is in the module of ``fedtrain.methods`` that has the method's name."""

BuiltInModel = Literal["digits", "alexnet", "cifar", "two-layer"]
MODEL_NAMES: tuple[BuiltInModel, ...] = get_args(BuiltInModel)

DATASET_NAMES = ("digits", "office", "domainnet", "cifar10", "cifar100")
