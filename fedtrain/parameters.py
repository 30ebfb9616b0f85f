"""Name the parts of a module: which entries of its state dict a rule speaks of.

Names are plain frozensets, so rules are set algebra: FedBN shares ``everything(m) - batch_norm(m)``.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

EntryNames = frozenset[str]
StateDict = dict[str, Tensor]
NormKind = Literal["batch", "group", "layer", "instance"]
NORM_LAYERS: dict[NormKind, type[nn.Module]] = {
    "batch": _BatchNorm,
    "group": nn.GroupNorm,
    "layer": nn.LayerNorm,
    "instance": _InstanceNorm,
}
"""The layers of each kind of normalisation."""


def all_entries(module: nn.Module) -> EntryNames:
    """Every parameter and every buffer that is saved."""
    return frozenset(module.state_dict())


def entries_under(module: nn.Module, *paths: str) -> EntryNames:
    """All that lies below the given submodules, e.g. ``under(m, "online.head")``; ``""`` is the module itself."""
    return frozenset(
        f"{path}.{name}" if path else name for path in paths for name in module.get_submodule(path).state_dict()
    )


def batch_norm_entries(module: nn.Module, stats: bool = True) -> EntryNames:
    """All that batch-norm layers own; without ``stats`` only their weight and bias."""
    return norm_entries(module, "batch", stats)


def norm_entries(module: nn.Module, kind: NormKind | Literal["all"], stats: bool = True) -> EntryNames:
    """All that normalisation layers of a kind own, found by layer type; without ``stats`` only their weight and bias.

    A layer used in two places has two names in the state dict; both are given.
    """
    kinds = tuple(NORM_LAYERS.values()) if kind == "all" else NORM_LAYERS[kind]
    layers = module.named_modules(remove_duplicate=False)
    names = entries_under(module, *(path for path, layer in layers if isinstance(layer, kinds)))
    return names if stats else names & frozenset(dict(module.named_parameters(remove_duplicate=False)))


def trained_entries(module: nn.Module) -> EntryNames:
    """The parameters that have gradients; a parameter that is used in two places has two names, and both are given."""
    named = module.named_parameters(remove_duplicate=False)
    return frozenset(name for name, value in named if value.requires_grad)


def copy_entries(module: nn.Module, names: EntryNames) -> StateDict:
    """A detached, contiguous copy of the named entries, in the order of the state dict."""
    state = module.state_dict()
    if unknown := sorted(names - state.keys()):
        raise KeyError(f"{type(module).__name__} has no entry named {', '.join(unknown)}")
    return {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in state.items()
        if name in names
    }


def is_finite(entry: Tensor) -> bool:
    """Whether it holds neither infinity nor NaN; a tenth of the time of asking every number."""
    return not entry.numel() or all(end.isfinite() for end in entry.aminmax())
