"""Every federated method, by the name that the command line gives it."""

from fedtrain.methods.base import AnyMethod, Batch, Method, ModelFactory, Peers, RoundContext
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedper import FedPer
from fedtrain.methods.fedprox import FedProx
from fedtrain.methods.fedrod import FedRoD
from fedtrain.methods.moon import Moon
from fedtrain.methods.singleset import SingleSet

METHODS: dict[str, type[AnyMethod]] = {
    "singleset": SingleSet,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedper": FedPer,
    "moon": Moon,
    "fedrod": FedRoD,
    "copa": Copa,
    "fedbn": FedBN,
    "fedco2": FedCO2,
}

__all__ = ["METHODS", "AnyMethod", "Batch", "Method", "ModelFactory", "Peers", "RoundContext"]
