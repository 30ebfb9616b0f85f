"""A step of local training: the loss, its gradient, the optimiser."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedtrain.config.local import LocalSettings
from fedtrain.config.optimizers import get_default_betas, get_optimizer_class, list_optimizer_options

ParameterGroups = list[dict[str, Any]]


class OptimizerStep:
    """The plain form: autograd, then an optimiser of torch. Made afresh in every round."""

    def __init__(self, module: nn.Module, local: LocalSettings, plain_parameters: Collection[nn.Parameter]) -> None:
        bare, knows = set(plain_parameters), list_optimizer_options(local.optimizer)
        plain: dict[str, Any] = {name: 0.0 for name in ("momentum", "weight_decay") if name in knows}
        trained = [p for p in module.parameters() if p.requires_grad]
        groups: ParameterGroups = [
            {"params": [p for p in trained if p not in bare]},
            {"params": [p for p in trained if p in bare], **plain},
        ]
        self.trained, self.max_grad_norm = trained, local.max_grad_norm
        self.optimizer = self.build_optimizer([group for group in groups if group["params"]], local)

    def build_optimizer(self, groups: ParameterGroups, local: LocalSettings) -> torch.optim.Optimizer:
        """Any of torch's, with those settings that it knows."""
        kind = get_optimizer_class(local.optimizer)
        knows = list_optimizer_options(local.optimizer)
        settings: dict[str, Any] = {"lr": local.lr, "momentum": local.momentum, "weight_decay": local.weight_decay}
        settings = {name: value for name, value in settings.items() if name in knows}
        if local.beta1 is not None or local.beta2 is not None:
            beta1, beta2 = get_default_betas(kind)
            settings["betas"] = (
                beta1 if local.beta1 is None else local.beta1,
                beta2 if local.beta2 is None else local.beta2,
            )
        return kind(groups, **settings)

    def __call__(self, loss: Callable[[], Tensor]) -> Tensor:
        """Go down the gradient of this loss; its value before."""
        self.optimizer.zero_grad()  # to None: what a phase does not touch must not be moved by momentum or weight decay
        value = loss()
        if value.requires_grad:  # a phase may train nothing, such as the head alone where heads are fixed
            value.backward()
        if self.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.trained, self.max_grad_norm)
        self.optimizer.step()
        return value.detach()


class SGDStep(OptimizerStep):
    """The same with SGD."""

    fused: ClassVar[bool] = False

    def build_optimizer(self, groups: ParameterGroups, local: LocalSettings) -> torch.optim.Optimizer:
        """Torch's SGD."""
        return torch.optim.SGD(
            groups, local.lr, momentum=local.momentum, weight_decay=local.weight_decay, fused=self.fused
        )
