"""Jacobians by autograd (torch.func), as a check that is independent of the closed formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from theory.errors import InputError


def get_trainable_parameters(module: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters, by name."""
    return {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}


def compute_jacobian(
    nets: Sequence[nn.Module], inputs: Sequence[Tensor], names: Sequence[str] | None = None, chunk: int | None = None
) -> dict[str, Tensor]:
    """∂f/∂θ by name, rows stacked over clients: client i's inputs through client i's network.

    A network with K outputs gives K rows for each sample. ``names`` restricts the Jacobian to some parameters;
    ``chunk`` bounds how many samples are differentiated at once.
    """
    pieces: dict[str, list[Tensor]] = {}
    for net, x in zip(nets, inputs, strict=True):
        for name, rows in _compute_client_jacobian(net, x, names, chunk).items():
            pieces.setdefault(name, []).append(rows)
    return {name: torch.cat(rows) for name, rows in pieces.items()}


def _compute_client_jacobian(
    net: nn.Module, x: Tensor, names: Sequence[str] | None, chunk: int | None
) -> Mapping[str, Tensor]:
    for path, layer in net.named_modules():
        if isinstance(layer, _BatchNorm) and layer.training and getattr(net, "covariance", None) is None:
            raise InputError(
                f"batch norm {path!r} is in training mode: an output then depends on the whole batch and has no "
                "Jacobian of its own; call .eval() on the network first"
            )
    parameters = get_trainable_parameters(net)
    selected = {name: parameters[name] for name in (parameters if names is None else names)}

    def compute_output(values: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(net, values, (sample.unsqueeze(0),)).reshape(-1)

    with torch.no_grad():  # torch.func differentiates regardless, and no outer graph is kept
        rows = vmap(jacrev(compute_output), in_dims=(None, 0), chunk_size=chunk)(selected, x)
    outputs = next(iter(rows.values())).shape[1]
    return {name: j.reshape(len(x) * outputs, -1) for name, j in rows.items()}
