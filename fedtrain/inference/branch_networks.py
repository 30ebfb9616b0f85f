"""A branch of a method as a network of its own: inputs in, the logits of this branch out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedtrain.methods.base import AnyMethod, RoundContext

PREFIX = "module."
"""Before the name of every entry."""


class BranchNetwork(nn.Module):
    """One branch of a client's module, or with the name None its prediction."""

    def __init__(self, method: AnyMethod, module: nn.Module, context: RoundContext[Any], branch: str | None) -> None:
        super().__init__()
        self.method, self.module, self.context, self.branch = method, module, context, branch

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        branches = self.method.branches(self.module, x, self.context)
        return self.method.fuse(branches, self.context) if self.branch is None else branches[self.branch]

    def __deepcopy__(self, memo: dict[int, Any]) -> BranchNetwork:
        """Another module; what the client sees of others is not copied."""
        made = BranchNetwork(self.method, copy.deepcopy(self.module, memo), self.context, self.branch)
        return made.train(self.training)


def list_branch_names(method: AnyMethod, module: nn.Module, context: RoundContext[Any], x: Tensor) -> list[str]:
    """The branches that have a say, as one sample shows."""
    with torch.no_grad():
        return list(method.branches(module, x[:1], context))


def is_sum_of_disjoint_branches(method: AnyMethod, module: nn.Module, context: RoundContext[Any], x: Tensor) -> bool:
    """Whether the prediction is the sum of the branches' logits, and no entry has a part in two of them."""
    with torch.enable_grad():
        branches: Mapping[str, Tensor] = method.branches(module, x[:1], context)
        parameters = [p for p in module.parameters() if p.requires_grad]
        used: list[set[int]] = []
        for logits in branches.values():
            gradients = torch.autograd.grad(logits.sum(), parameters, allow_unused=True, retain_graph=True)
            used.append({number for number, gradient in enumerate(gradients) if gradient is not None})
        fused = method.fuse(branches, context)
    total = torch.stack(list(branches.values())).sum(0)
    apart = sum(map(len, used)) == len(set().union(*used))
    return apart and bool(torch.allclose(fused, total))
