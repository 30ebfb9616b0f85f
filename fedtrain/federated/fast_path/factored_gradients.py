"""A trick for large linear layers on CPUs: the gradient of their weights is never written down.

It is a product of two thin factors, the gradient of the outputs and the inputs of a batch. Written down it is as large
as the weights, fifty megabytes for a step of 32 samples, to be read again at once by SGD. Here the factors are kept,
and their product goes straight into the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtrain.config.local import LocalSettings
from fedtrain.federated.fast_path.fused_sgd import FusedSGDStep

GradientFactors = list[tuple[Tensor, Tensor]]
"""(gradient of the outputs, inputs) of each use since the last step."""
MIN_FACTORED_WEIGHTS = 2**18
"""Weights of a layer that is worth it."""


class FactoredLinear(nn.Linear):
    """A linear layer whose backward pass leaves factors of its weights' gradient instead of the gradient."""

    factors: GradientFactors

    def forward(self, x: Tensor) -> Tensor:
        """As ever; with a weight that was computed, as for a mixture of models, autograd must go on to its parts."""
        if not (torch.is_grad_enabled() and self.weight.requires_grad and self.weight.is_leaf):
            return super().forward(x)
        y: Tensor = _FactoredLinearFunction.apply(x, self.weight, self.bias, self.factors)  # type: ignore[no-untyped-call]
        return y


class _FactoredLinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, factors: GradientFactors) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.factors = factors
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        ctx.factors.append((rows, x.detach().flatten(0, -2)))
        below, _, bias, _ = ctx.needs_input_grad
        return grad @ weight if below else None, None, rows.sum(0) if bias else None, None


class FactoredSGDStep(FusedSGDStep):
    """SGD without momentum, into which layers of this kind put their factors."""

    def __init__(self, module: nn.Module, local: LocalSettings, plain_parameters: Collection[nn.Parameter]) -> None:
        super().__init__(module, local, plain_parameters)
        self.lr, bare = local.lr, set(plain_parameters)
        layers = [layer for layer in module.modules() if isinstance(layer, FactoredLinear)]
        self.layers = [(layer, 0.0 if layer.weight in bare else local.weight_decay) for layer in layers]
        for layer in layers:  # a client whose step broke off may have left some
            layer.factors.clear()

    def __call__(self, loss: Callable[[], Tensor]) -> Tensor:
        """The sum of both: what autograd wrote down, and what the factors say."""
        value = super().__call__(loss)
        with torch.no_grad():
            for layer, decay in self.layers:
                shrunk = layer.weight.grad is not None  # also used in other ways, and SGD has seen to the decay
                for rows, x in layer.factors:
                    layer.weight.addmm_(rows.t(), x, beta=1 if shrunk else 1 - self.lr * decay, alpha=-self.lr)
                    shrunk = True
                layer.factors.clear()
        return value


def replace_large_linear_layers(module: nn.Module) -> None:
    """Put such layers in the place of large linear ones; parameters and their names stay as they are."""
    found: dict[nn.Module, FactoredLinear] = {}  # a layer may have two names
    for path, layer in list(module.named_modules(remove_duplicate=False)):
        hooked = layer._forward_hooks or layer._forward_pre_hooks
        if path and type(layer) is nn.Linear and layer.weight.numel() >= MIN_FACTORED_WEIGHTS and not hooked:
            if layer not in found:
                found[layer] = _copy_as_factored(layer)
            module.set_submodule(path, found[layer])


def _copy_as_factored(layer: nn.Linear) -> FactoredLinear:
    made = FactoredLinear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
    made.weight, made.bias, made.factors = layer.weight, layer.bias, []
    return made.train(layer.training)
