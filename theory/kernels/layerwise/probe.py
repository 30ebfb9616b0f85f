"""Look at a network with one sample: which layers it calls, with what shapes, and which parameters no rule covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _BatchNorm

from theory.errors import InputError
from theory.kernels.autograd import get_trainable_parameters
from theory.kernels.layerwise.calls import RuledLayer, intercept_calls, list_ruled_layers


@dataclass(frozen=True)
class LayerUse:
    """One call of a layer: shapes for a batch of one, and the entry names of the parameters that are trained."""

    path: str
    kept: torch.Size
    output: torch.Size
    entries: dict[str, str]
    """Parameter of the layer -> entry of the network; a tied parameter has one entry, however many layers use it."""


@dataclass(frozen=True)
class NetworkProbe:
    """What one forward and one backward pass of a single sample show."""

    parameters: dict[str, torch.Size]
    """Every entry that is trained."""
    uses: tuple[LayerUse, ...]
    """In the order of the calls."""
    by_autograd: tuple[str, ...]
    """Entries that are (also) used where no rule speaks."""
    output: torch.Size
    saved_bytes: int
    """What autograd keeps of one sample."""

    @property
    def outputs(self) -> int:
        """K."""
        return self.output.numel()


def refuse_training_mode(model: nn.Module) -> None:
    """Refuse a network whose outputs depend on the batch or on chance."""
    for path, layer in model.named_modules():
        words = f"{type(layer).__name__} {path!r}" if path else type(layer).__name__
        if isinstance(layer, torch.jit.ScriptModule):
            raise InputError(
                f"{words} is TorchScript, whose layers cannot be looked into; give the module that it was made of"
            )
        if layer.training:
            raise InputError(
                f"{words} is in training mode, in which an output may depend on the whole batch or on chance and has "
                "no tangent kernel of its own; call .eval() on the network first"
            )
        if isinstance(layer, _BatchNorm) and layer.running_mean is None:
            raise InputError(
                f"{words} keeps no running statistics, so its outputs depend on the whole batch even in evaluation "
                "mode; build it with track_running_stats=True"
            )


def probe_network(model: nn.Module, sample: Tensor) -> NetworkProbe:
    """Run a batch of one sample through the network and back."""
    parameters = get_trainable_parameters(model)
    if not parameters:
        raise InputError("no parameter of this network is trained (requires_grad), so it has no tangent kernel")
    names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    layers = list_ruled_layers(model)
    uses: list[LayerUse] = []
    weights = {value.untyped_storage().data_ptr() for value in [*model.parameters(), *model.buffers()]}
    saved: dict[int, int] = {}

    def record(ruled: RuledLayer, x: Tensor) -> Tensor:
        kept, output = ruled.compute(x)
        entries = {own: names[id(p)] for own, p in ruled.layer._parameters.items() if id(p) in names}
        uses.append(LayerUse(ruled.path, kept.shape, output.shape, entries))
        return output if output.requires_grad else output.detach().requires_grad_().clone()  # may be changed in place

    def weigh(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights:  # these exist once, for however many samples
            saved[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.enable_grad(), intercept_calls(layers, record), saved_tensors_hooks(weigh, lambda value: value):
        output = model(sample)
        if not isinstance(output, Tensor):
            raise InputError(
                f"the network returns {type(output).__name__}, not one tensor; wrap it in a module that returns the "
                "outputs whose kernel you want"
            )
        trained = [p for p in model.parameters() if p.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(trained)
        if output.requires_grad:
            found = torch.autograd.grad(output.sum(), trained, allow_unused=True)
    by_autograd = tuple(names[id(p)] for p, gradient in zip(trained, found, strict=True) if gradient is not None)
    if not uses and not by_autograd:
        raise InputError(
            "the outputs of the first sample depend on no parameter that is trained, so there is no kernel"
        )
    shapes = {name: p.shape for name, p in parameters.items()}
    return NetworkProbe(shapes, tuple(uses), by_autograd, output.shape, sum(saved.values()))
