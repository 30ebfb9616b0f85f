"""What a kernel says of training: its extreme eigenvalues, how many directions count, and whether labels lie there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot


@dataclass(frozen=True)
class Spectrum:
    """Of one kernel; ``condition`` is None where the least eigenvalue is rounding."""

    lambda_min: float
    lambda_max: float
    condition: float | None
    effective_rank: float
    """exp of the entropy of the eigenvalues: how many directions count."""
    alignment: float
    """<K, y yᵀ> / (|K| |y|²), y the labels less their mean over classes: 1 if the kernel were y yᵀ."""
    rows: int

    def to_dict(self) -> dict[str, float | int | None]:
        """For JSON."""
        return dict(vars(self))


def encode_labels(labels: Tensor, classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """One-hot labels less 1/K, flattened as the rows of a kernel are."""
    return (one_hot(labels, classes).to(dtype) - 1 / classes).flatten()


def get_rounding(kernel: Tensor, largest: float) -> float:
    """Below this an eigenvalue of the matrix is rounding."""
    return len(kernel) * torch.finfo(kernel.dtype).eps * largest


def measure_spectrum(kernel: Tensor, labels: Tensor, classes: int) -> Spectrum:
    """Measure the kernel of samples with these labels."""
    values = torch.linalg.eigvalsh(kernel.double())
    low, high = values[0].item(), values[-1].item()
    shares = values.clamp(min=0) / values.clamp(min=0).sum()
    entropy = -torch.special.xlogy(shares, shares).sum()
    y = encode_labels(labels, classes, kernel.dtype).to(kernel.device)
    alignment = (y @ kernel @ y / (kernel.norm() * y.square().sum())).item()
    condition = high / low if low > get_rounding(kernel, high) else None
    return Spectrum(low, high, condition, entropy.exp().item(), alignment, len(kernel))
