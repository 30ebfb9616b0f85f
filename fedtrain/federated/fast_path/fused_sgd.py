"""SGD in one pass over weights, gradients and momenta, for all tensors at once, instead of several passes for each."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import torch
from torch import nn

from fedtrain.config.local import LocalSettings
from fedtrain.federated.sgd import SGDStep


class FusedSGDStep(SGDStep):
    """Torch's own fused SGD; it has one for CPUs and for CUDA."""

    fused: ClassVar[bool] = True

    def __init__(self, module: nn.Module, local: LocalSettings, plain_parameters: Collection[nn.Parameter]) -> None:
        super().__init__(module, local, plain_parameters)
        for group in self.optimizer.param_groups:
            for weight in group["params"] if group["momentum"] else ():
                # It wants momenta of all or of none, and one phase may reach what another does not. From zero they
                # begin as ever, with the first gradient.
                self.optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
