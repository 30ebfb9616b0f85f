"""The networks, each split into ``features`` and ``head`` where a method wants it."""

from fedtrain.models.alexnet import build_alexnet
from fedtrain.models.choose_model import choose_model
from fedtrain.models.cifar import build_cifar_net
from fedtrain.models.digits import build_digits_net
from fedtrain.models.mlp import build_mlp
from fedtrain.models.net import Net, SplitPoint
from fedtrain.models.resnet import build_resnet
from fedtrain.models.two_layer import build_two_layer_net

__all__ = [
    "Net",
    "SplitPoint",
    "build_alexnet",
    "build_cifar_net",
    "build_digits_net",
    "build_mlp",
    "build_resnet",
    "build_two_layer_net",
    "choose_model",
]
