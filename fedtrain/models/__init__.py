"""The networks of the paper, each cut into ``features`` and ``head`` where a method wants it."""

from fedtrain.models.alexnet import alexnet
from fedtrain.models.cifar import cifar_net
from fedtrain.models.digits import digits_net
from fedtrain.models.net import Cut, Net
from fedtrain.models.two_layer import two_layer

__all__ = ["Cut", "Net", "alexnet", "cifar_net", "digits_net", "two_layer"]
