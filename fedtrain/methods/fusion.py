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
TEMPERATURES = tuple(2 ** (step / 4) for step in range(-8, 17))
"""From a quarter to 16."""
PRIOR_SAMPLES = 10.0
"""So many samples speak for equal weights, for clients have few to choose by."""
MIXTURE_STEPS = 200


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
    """The choice of a client between rounds: personal entries, which begin as a sum of equals."""

    weights: Tensor
    temperatures: Tensor

    def __init__(self, branches: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.full((branches,), 1 / branches))
        self.register_buffer("temperatures", torch.ones(branches))

    def read(self) -> BranchWeights:
        """A copy, for the same module serves other clients after this one."""
        return BranchWeights(self.weights.clone(), self.temperatures.clone())


def average_probabilities(branches: Mapping[str, Tensor]) -> Tensor:
    """The logarithm of the mean of the branches' probabilities."""
    return torch.stack([logits.log_softmax(-1) for logits in branches.values()]).logsumexp(0) - log(len(branches))


def fuse_weighted(branches: Mapping[str, Tensor], choice: BranchWeights) -> Tensor:
    """log softmax of Σ_b w_b log softmax(z_b / T_b); with equal weights and T = 1 the class is that of the sum."""
    terms = [
        w * (logits / t).log_softmax(-1)
        for logits, w, t in zip(branches.values(), choice.weights, choice.temperatures, strict=True)
    ]
    return torch.stack(terms).sum(0).log_softmax(-1)


def choose_branch_weights(rule: FusionRule, branches: Mapping[str, Tensor], labels: Tensor) -> BranchWeights:
    """What a client chooses for these logits of its validation samples."""
    logits = torch.stack([each.double() for each in branches.values()])
    if rule == "best":
        weights, temperatures = choose_best_branch(logits, labels), logits.new_ones(len(logits))
    else:
        temperatures = torch.stack([choose_temperature(each, labels) for each in logits])
        weights = choose_mixture((logits / temperatures[:, None, None]).log_softmax(-1), labels)
    return BranchWeights(weights.float(), temperatures.float())


def choose_best_branch(logits: Tensor, labels: Tensor) -> Tensor:
    """All weight to the branch with the highest accuracy, of equals to the one with the lowest cross entropy."""
    right = (logits.argmax(-1) == labels).sum(-1)
    losses = torch.stack([F.cross_entropy(each, labels) for each in logits])
    best = losses.masked_fill(right < right.max(), torch.inf).argmin()
    return F.one_hot(best, len(logits)).to(logits)


def choose_temperature(logits: Tensor, labels: Tensor) -> Tensor:
    """The T of the lowest Σ_i CE_i(z / T) + (log T)²; the second term keeps a branch that is never wrong from T = 0."""
    losses = [F.cross_entropy(logits / t, labels, reduction="sum").item() + log(t) ** 2 for t in TEMPERATURES]
    return logits.new_tensor(TEMPERATURES[losses.index(min(losses))])


def choose_mixture(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """The weights w of the highest Σ_i log Σ_b w_b p_b(y_i), as if `PRIOR_SAMPLES` more had spoken for equal ones.

    They say for which share of the samples each branch is the one to trust.
    By expectation maximisation, which climbs at every step; the sum is concave, so there is one top.
    """
    p = log_probabilities[:, torch.arange(len(labels)), labels].exp()  # (branches, samples)
    share = 1 / len(p)
    weights = p.new_full((len(p),), share)
    for _ in range(MIXTURE_STEPS):
        said = weights[:, None] * p
        whose = said / said.sum(0).clamp_min(torch.finfo(p.dtype).tiny)
        weights = (whose.sum(-1) + PRIOR_SAMPLES * share) / (whose.sum() + PRIOR_SAMPLES)
    return weights
