"""Count flops: networks run on shapes alone, with next to no numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

M = TypeVar("M", bound=nn.Module)
UNIT_AXIS = {F.linear: -1, F.conv2d: 1}
"""Where in the answer of a layer its units are told apart."""
ENTRYWISE = (torch.Tensor.sub, torch.Tensor.square)
"""Functions that a penalty applies to each entry of all weights."""


class FlopCounter(TorchFunctionMode):
    """Within it one unit of each layer answers for all, batch norm passes everything on, and flops are counted.

    A layer's backward pass is counted along with its forward pass: as many flops for the gradient of its weights, and
    for that of its inputs, where they are wanted. Torch's own means, its meta device and `FlopCounterMode`, give the
    same counts; but they need most of its compiler, which takes as long to load as all the rest of torch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """What torch calls instead of a function of its own."""
        if func is F.batch_norm:
            return args[0]
        if func in ENTRYWISE and (shape := _get_virtual_shape(args)) is not None:
            return func(*(value[(0,) * value.ndim] for value in args)).expand(shape)
        if func not in UNIT_AXIS:
            return func(*args, **(kwargs or {}))
        x, weight, _, *how = args
        answer = func(x, weight[:1], None, *how)
        repeats = [1] * answer.ndim
        repeats[UNIT_AXIS[func]] = len(weight)
        out = answer.repeat(repeats)
        gradients = (x.requires_grad + weight.requires_grad) * torch.is_grad_enabled()
        self.flops += 2 * out.numel() * weight.shape[1:].numel() * (1 + gradients)
        return out


def _get_virtual_shape(values: Sequence[Any]) -> torch.Size | None:
    """The shape of tensors that are a single number each, as often as they have entries; None if they are not."""
    if not all(isinstance(value, torch.Tensor) and not any(value.stride()) for value in values):
        return None
    shapes = {value.shape for value in values}
    return shapes.pop() if len(shapes) == 1 else None


def fill_with_virtual_zeros(module: M) -> M:
    """A module from the meta device gets zeros for its entries, which take no memory: each is a single number."""
    state = module.state_dict()
    zeros = {name: torch.zeros((), dtype=value.dtype).expand(value.shape) for name, value in state.items()}
    module.load_state_dict(zeros, assign=True)
    return module
