"""The networks of the paper, each cut into ``features`` and ``head`` where a method wants it."""

from fedtrain.models.alexnet import build_alexnet
from fedtrain.models.cifar import build_cifar_net
from fedtrain.models.digits import build_digits_net
from fedtrain.models.net import Net, SplitPoint
from fedtrain.models.two_layer import build_two_layer_net

__all__ = ["Net", "SplitPoint", "build_alexnet", "build_cifar_net", "build_digits_net", "build_two_layer_net"]
