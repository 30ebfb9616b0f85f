"""Servers that take a step of their own: the mean of the clients' updates is their gradient (Reddi et al., 2021).

Δ is the mean over clients of what a client's training added to a parameter. Statistics and counters have no gradient:
they are averaged, as by `fedtrain.aggregators.mean.Mean`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedtrain.aggregators.base import (
    Aggregate,
    Aggregator,
    CohortReplies,
    average_states,
    check_decay,
    check_positive,
)
from fedtrain.parameters import StateDict


@dataclass(frozen=True)
class FedAvgM(Aggregator):
    """v ← β v + Δ, then x ← x + η v (Hsu, Qi & Brown, 2019)."""

    lr: float = 1.0
    """η."""
    beta: float = 0.9
    """How much of v stays."""
    title: ClassVar[str] = "FedAvgM"

    def __post_init__(self) -> None:
        check_positive("lr", self.lr)
        check_decay("beta", self.beta)

    @torch.no_grad()
    def combine(self, replies: CohortReplies) -> Aggregate:
        """A step with momentum."""
        shared = average_states(replies.states, replies.weights)
        velocity: StateDict = {}
        for name in _list_parameters(replies):
            x = replies.before[name]
            v = shared[name] - x
            if self.beta and replies.remembered:
                v.add_(replies.remembered["momentum"][name], alpha=self.beta)
            velocity[name], shared[name] = v, x + self.lr * v
        return Aggregate(shared, {"momentum": velocity})


@dataclass(frozen=True)
class AdaptiveServer(Aggregator):
    """m ← β₁ m + (1 - β₁) Δ, then x ← x + η m / (√v + τ), where v begins as τ² and says how Δ² has been."""

    lr: float = 0.01
    """η."""
    beta1: float = 0.9
    """How much of m stays."""
    tau: float = 1e-3
    """How adaptive: the smaller, the more alike are the steps of all parameters."""

    def __post_init__(self) -> None:
        check_positive("lr", self.lr)
        check_positive("tau", self.tau)
        check_decay("beta1", self.beta1)

    @torch.no_grad()
    def combine(self, replies: CohortReplies) -> Aggregate:
        """A step of this length for every parameter of its own."""
        shared = average_states(replies.states, replies.weights)
        first: StateDict = {}
        second: StateDict = {}
        for name in _list_parameters(replies):
            x = replies.before[name]
            delta = shared[name] - x
            m = replies.remembered["mean"][name] if replies.remembered else torch.zeros_like(x)
            v = replies.remembered["square"][name] if replies.remembered else torch.full_like(x, self.tau**2)
            first[name] = self.beta1 * m + (1 - self.beta1) * delta
            second[name] = self.update_square(v, delta.square())
            shared[name] = x + self.lr * first[name] / (second[name].sqrt() + self.tau)
        return Aggregate(shared, {"mean": first, "square": second})

    @abstractmethod
    def update_square(self, v: Tensor, square: Tensor) -> Tensor:
        """The next v, from Δ²."""


@dataclass(frozen=True)
class FedAdagrad(AdaptiveServer):
    """v ← v + Δ²."""

    beta1: float = 0.0
    """How much of m stays; none in the paper."""
    title: ClassVar[str] = "FedAdagrad"

    def update_square(self, v: Tensor, square: Tensor) -> Tensor:
        """The sum."""
        return v + square


@dataclass(frozen=True)
class FedAdam(AdaptiveServer):
    """v ← β₂ v + (1 - β₂) Δ², without Adam's correction of the first steps, as in the paper."""

    beta2: float = 0.99
    """How much of v stays."""
    title: ClassVar[str] = "FedAdam"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay("beta2", self.beta2)

    def update_square(self, v: Tensor, square: Tensor) -> Tensor:
        """The running mean."""
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """v ← v - (1 - β₂) Δ² sign(v - Δ²): v follows Δ² at a pace that does not depend on v."""

    title: ClassVar[str] = "FedYogi"

    def update_square(self, v: Tensor, square: Tensor) -> Tensor:
        """A step towards Δ²."""
        return v - (1 - self.beta2) * square * torch.sign(v - square)


def _list_parameters(replies: CohortReplies) -> list[str]:
    """The entries that have a gradient, in their order."""
    return [name for name in replies.before if name in replies.parameters]
