"""SGD in one pass over weights, gradients and momenta, for all tensors at once, instead of several passes for each."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedtrain.config.local import LocalSettings
from fedtrain.federated.sgd import SGD, ParameterGroups, SGDStep


class FusedSGDStep(SGDStep):
    """Torch's own fused SGD; it has one for CPUs and for CUDA."""

    fused: ClassVar[bool] = True

    def build_optimizer(self, groups: ParameterGroups, local: LocalSettings) -> SGD:
        """With momenta for all of a group: it wants them of all or none, and a phase may reach what another does not.

        From zero they begin as ever, with the first gradient.
        """
        optimizer = super().build_optimizer(groups, local)
        for group in optimizer.groups:
            if group["momentum"]:
                optimizer.momentum_buffers |= {weight: torch.zeros_like(weight) for weight in group["params"]}
        return optimizer
