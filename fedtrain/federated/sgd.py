"""A step of local training: the loss, its gradient, the optimiser."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from fedtrain.config.local import LocalSettings
from fedtrain.config.optimizers import get_default_betas, get_optimizer_class, list_optimizer_options
from fedtrain.extensions.errors import explain_failure

ParameterGroups = list[dict[str, Any]]


class Optimizer(Protocol):
    """What a step needs of an optimiser."""

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def step(self) -> Any:
        """Move the parameters."""


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

    def build_optimizer(self, groups: ParameterGroups, local: LocalSettings) -> Optimizer:
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
        with explain_failure(f"optimizer {local.optimizer}"):
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


class SGD:
    """Torch's own function for SGD, without the class around it: whose first instance loads torch's compiler.

    That takes as long as all the rest of torch, and a run that trains with SGD has no other use for it.
    """

    def __init__(self, groups: ParameterGroups, local: LocalSettings, fused: bool) -> None:
        self.fused, defaults = fused, {"momentum": local.momentum, "weight_decay": local.weight_decay}
        self.groups: ParameterGroups = [{"lr": local.lr, **defaults, **group} for group in groups]
        self.momentum_buffers: dict[nn.Parameter, Tensor | None] = {}

    def zero_grad(self) -> None:
        """To None."""
        for group in self.groups:
            for weight in group["params"]:
                weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move what has a gradient."""
        for group in self.groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            buffers = [self.momentum_buffers.get(weight) for weight in weights]
            sgd(
                weights,
                [weight.grad for weight in weights],
                buffers,
                fused=self.fused,
                lr=group["lr"],
                momentum=group["momentum"],
                weight_decay=group["weight_decay"],
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            if group["momentum"]:
                self.momentum_buffers.update(zip(weights, buffers, strict=True))  # where there was none, there is now


class SGDStep(OptimizerStep):
    """The same with SGD."""

    fused: ClassVar[bool] = False

    def build_optimizer(self, groups: ParameterGroups, local: LocalSettings) -> SGD:
        """Ours."""
        return SGD(groups, local, self.fused)
