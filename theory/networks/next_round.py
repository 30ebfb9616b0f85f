"""Does the kernel predict a round? A round made by real networks beside the round that their kernel predicts.

The round: every client takes full-batch gradient steps on the cross entropy of the samples that are looked at, in
evaluation mode, without momentum; then the server averages what is shared. Batch norm in training mode mixes the
samples of a batch and is outside of any tangent kernel.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import isfinite

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from theory.networks.kernels import ClientSamples, FederatedKernel

TINY_CHANGE = 1e-5
"""A tiny step moves the outputs by so much of their norm."""


@dataclass(frozen=True)
class RoundForecast:
    """How far the kernel is off: |real change - predicted change| / |real change| of the outputs."""

    lr: float
    steps: int
    """Of the client that takes most."""
    error: float
    cosine: float
    """Between both changes."""
    change: float
    """|real change| / |outputs|."""

    def to_dict(self) -> dict[str, float | int | None]:
        """For JSON, which knows no infinity: where training explodes there is no number."""
        return {name: value if isfinite(value) else None for name, value in vars(self).items()}


def compute_outputs(networks: Sequence[nn.Module], samples: ClientSamples) -> list[Tensor]:
    """Logits of each client's network on the client's samples."""
    with torch.no_grad():
        return [net(x) for net, x in zip(networks, samples.inputs, strict=True)]


def forecast_round(
    kernel: FederatedKernel, outputs: Sequence[Tensor], samples: ClientSamples, lr: float, steps: Sequence[int]
) -> list[Tensor]:
    """The change of the outputs by the kernel alone.

    A client's steps follow its own block, of shared and personal entries alike. Averaging leaves of a client's move of
    the shared entries its weight: Δf_i = -Σ_j w_j K_shared[i, j] G_j - K_personal[i, i] G_i, where G_j is the sum of
    client j's gradients at the outputs times the step.
    """
    rows, moves = kernel.list_rows(), []
    for own, f, y, count in zip(rows, outputs, samples.labels, steps, strict=True):
        block = kernel.whole[own, own]
        start, total = f.flatten(), torch.zeros_like(f.flatten())
        for _ in range(count):
            now = (start - block @ total).view_as(f)
            total = total + lr * _compute_gradient(now, y).flatten()
        moves.append(total)
    found = []
    for i, own in enumerate(rows):
        change = -kernel.personal[own, own] @ moves[i]
        for other, move, weight in zip(rows, moves, samples.weights, strict=True):
            change = change - weight * (kernel.shared[own, other] @ move)
        found.append(change.view_as(outputs[i]))
    return found


def _compute_gradient(f: Tensor, y: Tensor) -> Tensor:
    """Of the mean cross entropy with respect to the logits."""
    return (f.softmax(-1) - F.one_hot(y, f.shape[-1])) / len(f)


def make_round(
    networks: Sequence[nn.Module], samples: ClientSamples, shared: Set[str], lr: float, steps: Sequence[int]
) -> list[Tensor]:
    """The outputs after a round of the networks themselves."""
    trained = []
    for net, x, y, count in zip(networks, samples.inputs, samples.labels, steps, strict=True):
        own = copy.deepcopy(net)
        moved = [p for p in own.parameters() if p.requires_grad]
        for _ in range(count):
            gradients = torch.autograd.grad(F.cross_entropy(own(x), y), moved, allow_unused=True)
            with torch.no_grad():
                for p, gradient in zip(moved, gradients, strict=True):
                    if gradient is not None:
                        p.sub_(lr * gradient)
        trained.append(own)
    everyone = [dict(net.named_parameters()) for net in trained]
    with torch.no_grad():
        for name in everyone[0]:
            if name in shared:
                terms = [weight * entries[name] for weight, entries in zip(samples.weights, everyone, strict=True)]
                average = torch.stack(terms).sum(0)
                for entries in everyone:
                    entries[name].copy_(average)
    return compute_outputs(trained, samples)


def compare_round(
    networks: Sequence[nn.Module],
    kernel: FederatedKernel,
    samples: ClientSamples,
    shared: Set[str],
    lr: float,
    steps: Sequence[int],
) -> RoundForecast:
    """Make the round both ways."""
    before = compute_outputs(networks, samples)
    predicted = forecast_round(kernel, before, samples, lr, steps)
    return compare_changes(before, make_round(networks, samples, shared, lr, steps), predicted, lr, max(steps))


def compare_changes(
    before: Sequence[Tensor], after: Sequence[Tensor], predicted: Sequence[Tensor], lr: float, steps: int
) -> RoundForecast:
    """Real outputs before and after a round beside the change that was predicted."""
    real = torch.cat([(b - a).flatten() for a, b in zip(before, after, strict=True)])
    change = torch.cat([f.flatten() for f in predicted])
    size = torch.cat([f.flatten() for f in before]).norm().item()
    length = real.norm().item()
    return RoundForecast(
        lr,
        steps,
        (real - change).norm().item() / length if length else 0.0,
        F.cosine_similarity(real, change, dim=0).item(),
        length / size if size else float("inf"),
    )


def compare_tiny_round(
    networks: Sequence[nn.Module], kernel: FederatedKernel, samples: ClientSamples, shared: Set[str]
) -> RoundForecast:
    """One step, so small that the outputs hardly move: here the kernel must be right."""
    before, once = compute_outputs(networks, samples), [1] * len(samples.names)
    unit = torch.cat([f.flatten() for f in forecast_round(kernel, before, samples, 1.0, once)]).norm().item()
    size = torch.cat([f.flatten() for f in before]).norm().item()
    return compare_round(networks, kernel, samples, shared, TINY_CHANGE * max(size, 1e-3) / max(unit, 1e-300), once)
