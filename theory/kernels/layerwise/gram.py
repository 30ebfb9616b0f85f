"""Products of Jacobian rows with themselves, in blocks that fit the memory."""

from __future__ import annotations

import torch
from torch import Tensor

ROW_BLOCK = 512
"""Rows of a product at a time: blocks above the diagonal are not computed, and each is large enough to be quick."""


def add_gram(total: Tensor, rows: Tensor) -> None:
    """Add rows · rowsᵀ to the lower triangle of ``total``; what is above it is left unfinished."""
    for start in range(0, len(rows), ROW_BLOCK):
        stop = min(start + ROW_BLOCK, len(rows))
        total[start:stop, :stop].addmm_(rows[start:stop], rows[:stop].mT)


def mirror_lower_triangle(total: Tensor) -> Tensor:
    """The symmetric matrix that has this lower triangle."""
    lower = total.tril_()
    for start in range(0, len(lower), ROW_BLOCK):  # in blocks: a second matrix would double the memory
        stop = min(start + ROW_BLOCK, len(lower))
        lower[:start, start:stop] = lower[start:stop, :start].mT
        lower[start:stop, start:stop] += lower[start:stop, start:stop].tril(-1).mT
    return lower


def add_vector_outer_gram(total: Tensor, cotangents: Tensor, inputs: Tensor) -> None:
    """Add the Gram matrix of rows cotangents[p, k] ⊗ inputs[p]: (n, K, O) and (n, C).

    The inner product of two such rows is the product of two inner products, so no row of O·C numbers is written down.
    """
    n, K, _ = cotangents.shape
    left, block = cotangents.flatten(0, 1), max(1, ROW_BLOCK // K)
    for start in range(0, n, block):
        stop = min(start + block, n)
        product = left[start * K : stop * K] @ left[: stop * K].mT
        product.view(stop - start, K, stop, K).mul_((inputs[start:stop] @ inputs[:stop].mT)[:, None, :, None])
        total[start * K : stop * K, : stop * K] += product


def add_outer_gram_by_pairs(total: Tensor, cotangents: Tensor, inputs: Tensor, memory: int) -> None:
    """Add the Gram matrix of rows Σ_t cotangents[p, k, :, t] ⊗ inputs[p, :, t], one pair of samples after the other.

    ``cotangents`` is (n, K, O, T), ``inputs`` (n, C, T). With S = inputs[p]ᵀ inputs[q], which all outputs share, an
    entry is <cotangents[p, k] S, cotangents[q, l]>. Only the lower triangle is finished.
    """
    n, K, O, T = cotangents.shape  # noqa: E741 - outputs
    block = max(1, memory // (cotangents.element_size() * (K * O * T + T * T)))
    for p in range(n):
        own, seen = cotangents[p].reshape(K * O, T), inputs[p].mT
        for start in range(0, p + 1, block):
            others = slice(start, min(start + block, p + 1))
            S = seen @ inputs[others]  # (m, T, T)
            moved = (own @ S).view(-1, K, O * T)
            part = moved @ cotangents[others].flatten(2).mT  # (m, K, K)
            total[p * K : (p + 1) * K, others.start * K : others.stop * K] += part.transpose(0, 1).flatten(1)


def count_outer_flops(n: int, K: int, T: int, O: int, C: int) -> dict[str, float]:  # noqa: E741 - outputs
    """Multiplications and additions of both ways to a Gram matrix of sums of outer products.

    Small products run at about half the speed of large ones.
    """
    rows = n * K
    pair = 2.0 * T * T * C + 2.0 * K * O * T * T + 2.0 * K * K * O * T
    return {"rows": 2.0 * rows * T * O * C + float(rows) ** 2 * O * C, "pairs": 2.0 * pair * n * (n + 1) / 2}


def allocate_kernel(rows: int, like: Tensor) -> Tensor:
    """A matrix of zeros for so many rows."""
    return torch.zeros(rows, rows, dtype=like.dtype, device=like.device)
