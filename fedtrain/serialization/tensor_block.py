"""Many tensors as one block of bytes and a list of their forms, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedtrain.parameters import StateDict

ALIGNMENT = 16
"""Bytes: where a tensor may begin so that it can be looked at as what it is."""
TensorSpecs = list[list[Any]]
"""Name, type, shape and last byte of each, as JSON can hold them."""


def pack_tensors(entries: StateDict, device: torch.device | str = "cpu") -> tuple[TensorSpecs, Tensor]:
    """The forms, and the block on the device."""
    forms: TensorSpecs = []
    end = 0
    for name, value in entries.items():
        end += -end % ALIGNMENT + value.nbytes
        forms.append([name, str(value.dtype).removeprefix("torch."), list(value.shape), end])
    block = torch.zeros(end, dtype=torch.uint8, device=device)
    for value, (*_, end) in zip(entries.values(), forms, strict=True):
        block[end - value.nbytes : end] = value.contiguous().reshape(-1).view(torch.uint8)
    return forms, block


def unpack_tensors(specs: Sequence[Sequence[Any]], block: Tensor) -> StateDict:
    """The tensors; they look at the block. ValueError for forms that do not fit it."""
    entries = {}
    for name, kind, shape, end in specs:
        dtype = getattr(torch, str(kind), None)
        if not isinstance(dtype, torch.dtype) or not isinstance(end, int) or min(shape, default=0) < 0:
            raise ValueError(f"{name}: {kind} {shape} is no form of a tensor")
        start = end - torch.Size(shape).numel() * dtype.itemsize
        if start < 0 or start % dtype.itemsize or end > len(block):
            raise ValueError(f"{name}: {kind} {shape} does not fit a block of {len(block)} bytes")
        entries[str(name)] = block[start:end].view(dtype).view(shape)
    return entries
