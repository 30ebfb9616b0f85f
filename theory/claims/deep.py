"""X1: the orderings for deep networks, by their empirical tangent kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from theory.claims.base import FAILS, HOLDS, Finding, compute_relative_error
from theory.kernels.autograd import compute_jacobian, get_trainable_parameters
from theory.kernels.federated import compute_federated_kernel
from theory.study import Study, compute_max_eigenvalue, compute_min_eigenvalue


@dataclass(frozen=True)
class DeepKernels:
    """Λ_on (all parameters shared) and Λ_off (none) of any architecture, and the client that owns each row."""

    online: Tensor
    offline: Tensor
    owner: Tensor


def compute_deep_kernels(
    online: nn.Module, inputs: Sequence[Tensor], offline: Sequence[nn.Module] | None = None, chunk: int | None = None
) -> DeepKernels:
    """Empirical kernels of any ``nn.Module``, one parameter tensor at a time so that memory stays bounded.

    ``offline`` are the clients' own networks; by default they are copies of the online one, as at t = 0.
    """
    clients = len(inputs)
    models = (("on", [online] * clients, True), ("off", list(offline or [online] * clients), False))
    found: dict[str, Tensor] = {}
    owner = torch.empty(0, dtype=torch.long)
    for name, nets, shared in models:
        for parameter in get_trainable_parameters(nets[0]):
            rows = compute_jacobian(nets, inputs, [parameter], chunk)
            if not len(owner):
                outputs = len(rows[parameter]) // sum(map(len, inputs))
                sizes = torch.tensor([outputs * len(x) for x in inputs])
                owner = torch.repeat_interleave(torch.arange(clients), sizes).to(rows[parameter].device)
            K = compute_federated_kernel(rows, owner, {parameter} if shared else set())
            found[name] = found[name] + K if name in found else K
    return DeepKernels(found["on"], found["off"], owner)


def check_deep_orderings(kernels: DeepKernels, tolerance: float = 1e-10) -> Finding:
    """Check O1, O2 and O3 for these kernels."""
    same = kernels.owner[:, None] == kernels.owner[None, :]
    scale = compute_max_eigenvalue(kernels.online)
    difference = compute_relative_error(
        (kernels.offline - kernels.online * same).abs().max().item(), kernels.online.abs().max().item()
    )
    on, off, mean = (
        compute_min_eigenvalue(kernels.online),
        compute_min_eigenvalue(kernels.offline),
        compute_min_eigenvalue((kernels.online + kernels.offline) / 2),
    )
    order = {"O1": difference <= tolerance, "O2": off - on >= -tolerance * scale}
    order["O3"] = order["O2"] and mean - (on + off) / 2 >= -tolerance * scale
    return Finding(
        HOLDS if all(order.values()) else FAILS,
        lhs=off,
        rhs=on,
        margin=min(off - on, mean - (on + off) / 2) if order["O1"] else -difference * scale,
        unit="absolute",
        words=f"λ_min: offline {off:.4g}, mean {mean:.4g}, online {on:.4g}",
        evidence={
            "relative_difference_from_blocks": difference,
            "holds": order,
            "lambda_min": {"off": off, "mean": mean, "on": on},
        },
    )


def build_small_conv_net(dim: int, generator: torch.Generator) -> nn.Module:
    """A one-dimensional convolutional network with batch norm in eval mode, which X1 examines."""
    net = nn.Sequential(
        nn.Unflatten(1, (1, dim)),
        nn.Conv1d(1, 8, 3, padding=1),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Conv1d(8, 8, 3, padding=1),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * dim, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 1),
    ).double()
    with torch.no_grad():
        for parameter in net.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 1
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / fan_in**0.5)
    return net.eval()


def check_x1_deep_orderings(study: Study) -> Finding:
    """Check the orderings for a small convolutional network on the study's inputs.

    Both models have the same weights, so one autograd Jacobian gives both kernels and O1 is an identity; what is
    measured is the chain of eigenvalues. Only separate offline networks (see ``compute_deep_kernels``) can test O1.
    """
    problem = study.problem.to(torch.float64, "cpu")
    net = build_small_conv_net(problem.dim, torch.Generator().manual_seed(study.seed))
    found = check_deep_orderings(compute_deep_kernels(net, [problem.x[rows] for rows in problem.blocks]))
    return replace(found, words=f"{found.words} (equal weights, so O1 is an identity of autograd's blocks)")
