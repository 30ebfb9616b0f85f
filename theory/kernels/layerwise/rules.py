"""Layers whose derivatives are written down by hand: linear, convolution, normalisation, embedding.

A rule computes the layer with its parameters as constants, and says what of it must be kept and how the gradient at its
output becomes rows. A layer has a rule only if it does what its class does and nothing else: no hooks, no
parametrisation, no forward method of its own. All other parameters get their rows from autograd.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from theory.kernels.layerwise.derivatives import (
    Derivative,
    EmbeddingRows,
    OuterProducts,
    OuterSizes,
    RowShape,
    StoredRows,
)
from theory.kernels.layerwise.patches import extract_patches

Constants = Mapping[str, Tensor | None]


class LayerRule(ABC):
    """How one kind of layer is computed and differentiated. Samples come one at a time, as batches of one."""

    def fits(self, layer: Any) -> bool:
        """Whether the rule covers the settings of this layer."""
        return True

    @abstractmethod
    def compute(self, layer: Any, constants: Constants, x: Tensor) -> tuple[Tensor, Tensor]:
        """What must be kept for the derivatives, and the output."""

    @abstractmethod
    def build(self, layer: Any, name: str, kept: torch.Size, output: torch.Size, shape: RowShape) -> Derivative:
        """The empty derivative of the parameter ``name`` for a use with these shapes."""


class LinearRule(LayerRule):
    """Rows δ ⊗ a, summed over positions where the input has more axes."""

    def compute(self, layer: nn.Linear, constants: Constants, x: Tensor) -> tuple[Tensor, Tensor]:
        """x W' + b."""
        weight = constants["weight"]
        assert weight is not None
        return x, F.linear(x, weight, constants["bias"])

    def build(self, layer: nn.Linear, name: str, kept: torch.Size, output: torch.Size, shape: RowShape) -> Derivative:
        """Factors for the weight, sums for the bias."""
        inside, outside = kept[-1], output[-1]

        def flatten(cotangents: Tensor) -> Tensor:
            return cotangents.reshape(*cotangents.shape[:2], 1, -1, outside).mT

        def expand(x: Tensor) -> Tensor:
            return x.reshape(len(x), 1, -1, inside).mT

        sizes = OuterSizes(1, outside, inside, output.numel() // outside, tuple(kept))
        return _build_outer(name, (outside, inside), sizes, flatten, expand, shape)


class ConvolutionRule(LayerRule):
    """Rows Σ over positions of δ(position) ⊗ patch(position), group by group."""

    def compute(self, layer: _ConvNd, constants: Constants, x: Tensor) -> tuple[Tensor, Tensor]:
        """The convolution."""
        weight = constants["weight"]
        assert weight is not None
        return x, layer._conv_forward(x, weight, constants["bias"])

    def build(self, layer: _ConvNd, name: str, kept: torch.Size, output: torch.Size, shape: RowShape) -> Derivative:
        """Factors for the weight, sums for the bias."""
        dims, groups = len(layer.kernel_size), layer.groups
        outside = layer.out_channels // groups

        def flatten(cotangents: Tensor) -> Tensor:
            batched = cotangents.reshape(*cotangents.shape[:2], -1, groups, outside, output[-dims:].numel())
            return batched.movedim(2, -2).flatten(-2)

        def expand(x: Tensor) -> Tensor:
            images = x.reshape(-1, *kept[-dims - 1 :])
            patches = extract_patches(layer, images)  # (m · images of a sample, groups, inputs, positions)
            return patches.unflatten(0, (len(x), -1)).movedim(1, -2).flatten(-2)

        parameter = tuple(layer.weight.shape)
        inside = layer.weight[0].numel()
        sizes = OuterSizes(groups, outside, inside, output.numel() // layer.out_channels, tuple(kept))
        return _build_outer(name, parameter, sizes, flatten, expand, shape)


def _build_outer(
    name: str,
    parameter: tuple[int, ...],
    sizes: OuterSizes,
    flatten: Callable[[Tensor], Tensor],
    expand: Callable[[Tensor], Tensor],
    shape: RowShape,
) -> Derivative:
    """The derivative of a weight whose rows are outer products, or of the bias beside it."""
    if name == "bias":
        return StoredRows(shape, parameter[:1], lambda kept, cotangents: flatten(cotangents).sum(-1))

    def compute(kept: Tensor, cotangents: Tensor) -> Tensor:
        left = flatten(cotangents).transpose(1, 2)  # m, groups, K, outputs, positions
        product = left.flatten(2, 3) @ expand(kept).mT
        return product.unflatten(2, left.shape[2:4]).transpose(1, 2)

    if sizes.is_smaller_as_rows:
        return StoredRows(shape, parameter, compute)
    return OuterProducts(shape, parameter, sizes, flatten, expand)


class NormRule(LayerRule):
    """y = γ x̂ + β: rows Σ over positions of δ · x̂, and of δ."""

    def __init__(self, normalise: Callable[[Any, Tensor], Tensor], channels_first: bool) -> None:
        self.normalise, self.channels_first = normalise, channels_first

    def compute(self, layer: Any, constants: Constants, x: Tensor) -> tuple[Tensor, Tensor]:
        """x̂ is kept."""
        inside = self.normalise(layer, x)
        output = inside
        for name, combine in (("weight", torch.mul), ("bias", torch.add)):
            value = constants.get(name)
            if value is not None:
                output = combine(output, self.align(value, x.dim()))
        return inside, output

    def build(self, layer: nn.Module, name: str, kept: torch.Size, output: torch.Size, shape: RowShape) -> Derivative:
        """Sums over all axes that the parameter does not have."""
        parameter = layer.get_parameter(name).shape
        own = [1] if self.channels_first else range(len(kept) - len(parameter), len(kept))
        summed = [axis + 2 for axis in range(len(kept)) if axis not in own]

        def compute(x: Tensor, cotangents: Tensor) -> Tensor:
            terms = cotangents * x[:, None] if name == "weight" else cotangents
            return terms.sum(summed) if summed else terms

        return StoredRows(shape, parameter, compute)

    def align(self, value: Tensor, dims: int) -> Tensor:
        """A parameter in the shape of the input, or one that spreads to it."""
        return value.view(-1, *[1] * (dims - 2)) if self.channels_first else value


class BatchNormRule(NormRule):
    """In evaluation mode batch norm is a scale and a shift: one product forwards, one backwards."""

    def __init__(self) -> None:
        super().__init__(_normalise_batch, channels_first=True)

    def compute(self, layer: Any, constants: Constants, x: Tensor) -> tuple[Tensor, Tensor]:
        """x̂ is kept, but the gradient does not go through it."""
        assert layer.running_mean is not None
        assert layer.running_var is not None
        scale = (layer.running_var + layer.eps).rsqrt()
        weight, bias = constants.get("weight"), constants.get("bias")
        scale = scale if weight is None else scale * weight
        shift = -layer.running_mean * scale if bias is None else bias - layer.running_mean * scale
        return self.normalise(layer, x), x * self.align(scale, x.dim()) + self.align(shift, x.dim())


class EmbeddingRule(LayerRule):
    """The gradient at a position belongs to what was looked up there."""

    def fits(self, layer: nn.Embedding) -> bool:
        """What changes weights while looking them up, or gradients by their number, is left to autograd."""
        return layer.max_norm is None and not layer.scale_grad_by_freq

    def compute(self, layer: nn.Embedding, constants: Constants, x: Tensor) -> tuple[Tensor, Tensor]:
        """Look up."""
        weight = constants["weight"]
        assert weight is not None
        return x, F.embedding(x, weight)

    def build(
        self, layer: nn.Embedding, name: str, kept: torch.Size, output: torch.Size, shape: RowShape
    ) -> Derivative:
        """Gradients and their indices."""
        return EmbeddingRows(shape, layer.weight.shape, kept.numel(), layer.padding_idx)


def _normalise_batch(layer: _BatchNorm, x: Tensor) -> Tensor:
    mean, variance = layer.running_mean, layer.running_var
    assert mean is not None
    assert variance is not None
    around = [1] * (x.dim() - 2)
    return (x - mean.view(-1, *around)) * (variance + layer.eps).rsqrt().view(-1, *around)


def _normalise_layer(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    return F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)


def _normalise_group(layer: nn.GroupNorm, x: Tensor) -> Tensor:
    return F.group_norm(x, layer.num_groups, None, None, layer.eps)


def _normalise_root_mean_square(layer: nn.RMSNorm, x: Tensor) -> Tensor:
    return F.rms_norm(x, list(layer.normalized_shape), None, layer.eps)


RULES: dict[type[nn.Module], LayerRule] = {
    nn.Linear: LinearRule(),
    nn.Conv1d: ConvolutionRule(),
    nn.Conv2d: ConvolutionRule(),
    nn.Conv3d: ConvolutionRule(),
    _BatchNorm: BatchNormRule(),
    nn.GroupNorm: NormRule(_normalise_group, channels_first=True),
    nn.LayerNorm: NormRule(_normalise_layer, channels_first=False),
    nn.RMSNorm: NormRule(_normalise_root_mean_square, channels_first=False),
    nn.Embedding: EmbeddingRule(),
}


def find_rule(layer: nn.Module) -> LayerRule | None:
    """The rule of a layer, or None where autograd must do."""
    rule = next((rule for kind, rule in RULES.items() if type(layer).forward is kind.forward), None)
    own = {name for name, value in layer._parameters.items() if value is not None}
    changed = (
        "forward" in layer.__dict__
        or any(layer.children())
        or layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or not own
        or own - {"weight", "bias"}
        or ("weight" not in own and not isinstance(rule, NormRule))
    )
    return rule if rule is not None and not changed and rule.fits(layer) else None
