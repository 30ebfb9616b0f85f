"""Choose a network by the data when none is named."""

from __future__ import annotations

from collections.abc import Sequence

from fedtrain.registry import BuiltInModel


def choose_model(shape: Sequence[int]) -> BuiltInModel:
    """By the shape of an input: ``resnet`` for images (channels, height, width), ``mlp`` for all else."""
    return "resnet" if len(shape) == 3 else "mlp"
