"""Inputs that are numbers, brought to mean 0 and standard deviation 1; missing ones become the mean."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x - mean) / std by input; a missing x (nan) counts as ``fill``. Constant inputs have std 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    fill: tuple[float, ...]

    def apply(self, inputs: Tensor) -> Tensor:
        """The inputs (n, d), standardised, in their own type; the arithmetic is done in double precision."""
        mean, std, fill = (torch.tensor(one, dtype=torch.float64) for one in (self.mean, self.std, self.fill))
        x = inputs.double()
        return ((torch.where(x.isnan(), fill, x) - mean) / std).to(inputs.dtype)

    def to_table(self) -> dict[str, list[float]]:
        """As JSON and TOML hold it."""
        return {"mean": list(self.mean), "std": list(self.std), "fill": list(self.fill)}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Scaling:
        """Back again; KeyError, TypeError or ValueError if it is not what `to_table` gives."""
        mean, std, fill = (tuple(float(one) for one in table[key]) for key in ("mean", "std", "fill"))
        if not len(mean) == len(std) == len(fill) or not all(map(isfinite, (*mean, *std, *fill))) or 0.0 in std:
            raise ValueError("its scaling is no mean and deviation of each input")
        return cls(mean, std, fill)

    def without_standardising(self) -> Scaling:
        """Only missing inputs are filled in."""
        return Scaling((0.0,) * len(self.mean), (1.0,) * len(self.std), self.fill)


def measure_scaling(x: NDArray[np.floating], is_number: NDArray[np.bool_]) -> Scaling:
    """Mean and population standard deviation over the rows, of the inputs that are numbers; nan is passed over.

    An input of which all are missing has a mean of nan, which who asks for it must refuse.
    """
    values = x.astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of nothing but nan
        centre, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    mean = np.where(is_number, centre, 0.0)
    std = np.where(is_number & (spread > 1e-9 * np.maximum(1.0, np.abs(centre))), spread, 1.0)
    return Scaling(tuple(mean.tolist()), tuple(std.tolist()), tuple(np.where(is_number, centre, 0.0).tolist()))
