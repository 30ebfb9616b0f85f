"""The largest numbers of a matrix and where they stand; all others are taken to be zero."""

from __future__ import annotations

from math import ceil, prod

import torch
from torch import Tensor

from fedtrain.config.codec import NumberFormat
from fedtrain.federated.codec.numbers import Form, decode_numbers, encode_numbers, list_number_forms
from fedtrain.parameters import StateDict

INDEX = ":index"


def count_kept(shape: tuple[int, ...], share: float) -> int:
    """How many numbers are sent."""
    return max(1, ceil(prod(shape) * share))


def choose_index_type(size: int) -> torch.dtype:
    """Four bytes for each place, unless there are more places than these can tell apart."""
    return torch.int32 if size < 2**31 else torch.int64


def list_top_k_forms(
    shape: tuple[int, ...], dtype: torch.dtype, share: float, numbers: NumberFormat
) -> dict[str, Form]:
    """Its parts: the numbers as one row, and their places."""
    kept = count_kept(shape, share)
    return {
        **list_number_forms((1, kept), dtype, numbers),
        INDEX: (choose_index_type(prod(shape)), (kept,)),
    }


def encode_top_k(matrix: Tensor, share: float, numbers: NumberFormat) -> StateDict:
    """In the order of their places, so that equal matrices have equal messages."""
    flat = matrix.reshape(-1)
    index = flat.abs().topk(count_kept(tuple(matrix.shape), share), sorted=False).indices.sort().values
    return {**encode_numbers(flat[index][None], numbers), INDEX: index.to(choose_index_type(len(flat)))}


def decode_top_k(parts: StateDict, shape: tuple[int, ...], dtype: torch.dtype, numbers: NumberFormat) -> Tensor:
    """The matrix with zeros elsewhere; ValueError for places that are none, or not in order."""
    index, size = parts[INDEX].long(), prod(shape)
    if index[0] < 0 or index[-1] >= size or (index[1:] <= index[:-1]).any():
        raise ValueError(f"has places that are not in order, or not below {size}")
    flat = torch.zeros(size, dtype=dtype, device=index.device)
    flat[index] = decode_numbers(parts, dtype, numbers)[0]
    return flat.view(shape)
