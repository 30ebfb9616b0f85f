"""A matrix as a product of two thin ones: M ≈ L Rᵀ with L orthonormal and R = Mᵀ L.

L spans what M makes of r random directions, after M Mᵀ was applied twice more to them (Halko, Martinsson and Tropp,
2011): nearly the r leading singular vectors, at a hundredth of the time of a decomposition. L Lᵀ is a projection, so
what is lost is never larger than M.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedtrain.config.codec import NumberFormat
from fedtrain.federated.codec.numbers import Form, check_fits, decode_numbers, encode_numbers, list_number_forms
from fedtrain.parameters import StateDict
from fedtrain.rng import make_generator

RIGHT = ":right"
POWER_ITERATIONS = 2


def list_low_rank_forms(
    shape: tuple[int, int], dtype: torch.dtype, rank: int, numbers: NumberFormat
) -> dict[str, Form]:
    """Its parts: both thin matrices, transposed, so that each direction is a row of its own."""
    rows, columns = shape
    left = list_number_forms((rank, rows), dtype, numbers)
    right = list_number_forms((rank, columns), dtype, numbers)
    return {**left, **{RIGHT + suffix: form for suffix, form in right.items()}}


def encode_low_rank(matrix: Tensor, rank: int, numbers: NumberFormat) -> StateDict:
    """The directions are drawn for the shape alone: equal matrices have equal messages."""
    rows, columns = matrix.shape
    drawn = torch.randn(columns, rank, generator=make_generator("low rank", rows, columns, rank), dtype=matrix.dtype)
    left = torch.linalg.qr(matrix @ drawn.to(matrix.device)).Q
    for _ in range(POWER_ITERATIONS):
        left = torch.linalg.qr(matrix @ torch.linalg.qr(matrix.T @ left).Q).Q
    product = (left.T @ matrix).contiguous()
    check_fits(product)
    right = encode_numbers(product, numbers)
    return {
        **encode_numbers(left.T.contiguous(), numbers),
        **{RIGHT + suffix: value for suffix, value in right.items()},
    }


def decode_low_rank(parts: StateDict, dtype: torch.dtype, numbers: NumberFormat) -> Tensor:
    """The product; ValueError for numbers that make none."""
    right = {suffix.removeprefix(RIGHT): value for suffix, value in parts.items() if suffix.startswith(RIGHT)}
    return decode_numbers(parts, dtype, numbers).T @ decode_numbers(right, dtype, numbers)
