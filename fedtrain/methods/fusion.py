"""How the branches of a client's model become one prediction, and how a client chooses that by itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtrain.methods.base import BranchWeights, M, Method, RoundContext
from fedtrain.registry import FusionRule

CHOSEN_RULES = ("weighted", "best")
"""Rules for which every client chooses, on its validation samples."""
POOL_STEPS, POOL_TOLERANCE = 100, 1e-9


@dataclass(frozen=True)
class FusingMethod(Method[M]):
    """A method whose module has several branches, which can be made one prediction in several ways."""

    fusion: FusionRule = "own"
    """What is made of the branches. own: what the method says; logits, probabilities: their sum; weighted: a sum with
    weights and temperatures that each client chooses on its validation data; best: the branch that does best there."""

    @property
    @abstractmethod
    def branch_names(self) -> Sequence[str]:
        """The branches, by which a client's weights are ordered."""

    @property
    def chooses_fusion(self) -> bool:
        """Whether a client needs validation samples to say how its branches are fused."""
        return self.fusion in CHOSEN_RULES

    def fuse(self, branches: Mapping[str, Tensor], context: RoundContext[M]) -> Tensor:
        """The prediction as logits."""
        if self.fusion == "own":
            return self.fuse_as_published(branches, context)
        if self.fusion == "probabilities":
            return average_probabilities(branches)
        if self.fusion == "logits" or context.branch_weights is None:
            return super().fuse(branches, context)
        return fuse_weighted(branches, context.branch_weights)

    def fuse_as_published(self, branches: Mapping[str, Tensor], context: RoundContext[M]) -> Tensor:
        """The method's own rule: the sum of the logits, unless it has another one."""
        return super().fuse(branches, context)


class StoredBranchWeights(nn.Module):
    """The choice of a client between rounds: personal entries, which begin as the sum of the logits."""

    weights: Tensor
    temperatures: Tensor

    def __init__(self, branches: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.full((branches,), 1 / branches))
        self.register_buffer("temperatures", torch.full((branches,), 1 / branches))

    def read(self) -> BranchWeights:
        """A copy, for the same module serves other clients after this one."""
        return BranchWeights(self.weights.clone(), self.temperatures.clone())


def average_probabilities(branches: Mapping[str, Tensor]) -> Tensor:
    """The logarithm of the mean of the branches' probabilities."""
    return torch.stack([logits.log_softmax(-1) for logits in branches.values()]).logsumexp(0) - log(len(branches))


def fuse_weighted(branches: Mapping[str, Tensor], choice: BranchWeights) -> Tensor:
    """log softmax of Σ_b w_b log softmax(z_b / T_b); of B branches, w = T = 1 / B is the sum of the logits."""
    terms = [
        w * (logits / t).log_softmax(-1)
        for logits, w, t in zip(branches.values(), choice.weights, choice.temperatures, strict=True)
    ]
    return torch.stack(terms).sum(0).log_softmax(-1)


def choose_branch_weights(rule: FusionRule, branches: Mapping[str, Tensor], labels: Tensor) -> BranchWeights:
    """What a client chooses for these logits of its validation samples."""
    logits = torch.stack([each.double() for each in branches.values()])
    if rule == "best":
        weights, temperature = choose_best_branch(logits, labels), 1.0
    else:
        scales = choose_scales(logits, labels)
        weights, temperature = scales / scales.sum(), 1 / scales.sum().item()
    return BranchWeights(weights.float(), torch.full_like(weights, temperature).float())


def choose_best_branch(logits: Tensor, labels: Tensor) -> Tensor:
    """All weight to the branch with the highest accuracy, of equals to the one with the lowest cross entropy."""
    right = (logits.argmax(-1) == labels).sum(-1)
    losses = torch.stack([F.cross_entropy(each, labels) for each in logits])
    best = losses.masked_fill(right < right.max(), torch.inf).argmin()
    return F.one_hot(best, len(logits)).to(logits)


def choose_scales(logits: Tensor, labels: Tensor) -> Tensor:
    """The a = e^θ with the least Σ_i CE_i(Σ_b a_b z_b) + Σ_b (θ_b - θ̄)² + θ̄² / 2, found by descent from the sum, θ = 0.

    The penalty takes θ̄ and, of two branches, log a_1 / a_2 for standard normal: few samples hardly move the sum.
    The Hessian is taken without a term that is small near θ = 0, so that it is positive and every step goes down.
    """
    branches = len(logits)
    mean = logits.new_full((branches, branches), 1 / branches)
    penalty = 2 * (torch.eye(branches).to(mean) - mean) + mean / branches
    says_label = logits[:, torch.arange(len(labels)), labels]

    def judge(theta: Tensor) -> Tensor:
        pooled = torch.tensordot(theta.exp(), logits, 1)
        return F.cross_entropy(pooled, labels, reduction="sum") + theta @ penalty @ theta / 2

    theta = logits.new_zeros(branches)
    for _ in range(POOL_STEPS):
        a = theta.exp()
        p = torch.tensordot(a, logits, 1).softmax(-1)
        expected = (p * logits).sum(-1)
        centred = logits - expected[..., None]
        slope = a * (expected - says_label).sum(-1) + penalty @ theta
        bend = torch.einsum("nc,xnc,ync->xy", p, centred, centred) * a * a[:, None] + penalty
        step = torch.linalg.solve(bend, slope)
        step /= step.abs().max().clamp_min(1)  # e-fold at most, for the bend is that of one place
        now = judge(theta)
        while step.abs().max() > POOL_TOLERANCE and not judge(theta - step) < now:
            step /= 2
        if not step.abs().max() > POOL_TOLERANCE:
            break
        theta = theta - step
    return theta.exp()
