"""A step of local training: the loss, its gradient, SGD."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedtrain.config.local import LocalSettings


class SGDStep:
    """The plain form: autograd, then torch's SGD. Made afresh in every round."""

    fused: ClassVar[bool] = False

    def __init__(self, module: nn.Module, local: LocalSettings, plain_parameters: Collection[nn.Parameter]) -> None:
        bare = set(plain_parameters)
        trained = [p for p in module.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in trained if p not in bare]},
            {"params": [p for p in trained if p in bare], "momentum": 0.0, "weight_decay": 0.0},
        ]
        filled = [group for group in groups if group["params"]]
        momentum, decay = local.momentum, local.weight_decay
        self.sgd = torch.optim.SGD(filled, local.lr, momentum=momentum, weight_decay=decay, fused=self.fused)

    def __call__(self, loss: Callable[[], Tensor]) -> Tensor:
        """Go down the gradient of this loss; its value before."""
        self.sgd.zero_grad()  # to None: what a phase does not touch must not be moved by momentum or weight decay
        value = loss()
        value.backward()
        self.sgd.step()
        return value.detach()
