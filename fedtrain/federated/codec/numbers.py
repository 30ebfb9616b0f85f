"""The numbers of a matrix in fewer bytes: half precision, bfloat16, or whole numbers from -127 to 127 times a scale."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtrain.config.codec import NumberFormat
from fedtrain.parameters import StateDict, is_finite

Form = tuple[torch.dtype, tuple[int, ...]]
"""Type and shape of a tensor."""
SCALE = ":scale"
LARGEST = 127
"""Of int8; -128 is left out, so that a number and its negative are written alike."""


def list_number_forms(shape: tuple[int, ...], dtype: torch.dtype, numbers: NumberFormat) -> dict[str, Form]:
    """What becomes of numbers of such a shape, by the suffix of its name."""
    if numbers == "int8":
        return {"": (torch.int8, shape), SCALE: (torch.float32, shape[:1])}
    return {"": ({"full": dtype, "float16": torch.float16, "bfloat16": torch.int16}[numbers], shape)}


def encode_numbers(values: Tensor, numbers: NumberFormat) -> StateDict:
    """Rounded to the nearest, ties to even; OverflowError for what is too large. int8 has a scale for each row."""
    if numbers == "full":
        return {"": values}
    if numbers == "int8":
        rows = values.reshape(len(values), -1)
        scale = (rows.abs().amax(1) / LARGEST).to(torch.float32)
        check_fits(scale)
        steps = scale.to(values.dtype)[:, None]
        whole = torch.where(steps > 0, rows / steps, 0).round().clamp(-LARGEST, LARGEST)
        return {"": whole.to(torch.int8).view(values.shape), SCALE: scale}
    short = values.to(torch.float16 if numbers == "float16" else torch.bfloat16)
    check_fits(short)
    # as its bits, for which every file format has a name
    return {"": short if numbers == "float16" else short.view(torch.int16)}


def decode_numbers(parts: StateDict, dtype: torch.dtype, numbers: NumberFormat) -> Tensor:
    """The numbers again; ValueError for parts that no encoder of ours makes, of whatever right form."""
    values = parts[""]
    if numbers == "int8":
        scale = parts[SCALE]
        if not is_finite(scale) or (scale < 0).any():
            raise ValueError("has a scale that is negative or not finite")
        steps = scale.to(dtype).reshape(-1, *[1] * (values.ndim - 1))
        found = values.to(dtype) * steps
    else:
        found = (values.view(torch.bfloat16) if numbers == "bfloat16" else values).to(dtype)
    if not is_finite(found):
        raise ValueError("is not finite")
    return found


def check_fits(values: Tensor) -> None:
    """Refuse what became infinite by being shortened."""
    if not is_finite(values):
        raise OverflowError("numbers are too large for the codec")
