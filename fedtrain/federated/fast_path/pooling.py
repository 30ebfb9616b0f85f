"""Max pooling before ReLU instead of after it: they commute, and ReLU is left with a fraction of the numbers."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def move_pooling_before_relu(module: nn.Module) -> None:
    """Exchange the two wherever one follows the other in a sequence; neither has entries, so no name changes.

    Outputs and gradients stay the same, bit by bit: where the largest number of a window is above 0, both choose it;
    where none is, the output is 0 and so is every gradient.
    """
    for sequence in module.modules():
        if type(sequence) is not nn.Sequential:
            continue
        for (place, layer), (next_place, next_layer) in pairwise(list(sequence.named_children())):
            if type(layer) is nn.ReLU and type(next_layer) is nn.MaxPool2d:
                sequence.set_submodule(place, next_layer)
                sequence.set_submodule(next_place, layer)
