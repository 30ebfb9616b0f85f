"""Bytes seen as an array, once the claimed shape is known to fit them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_AXES = 8


def view_as_array(
    data: bytes | bytearray | memoryview, dtype: np.dtype[Any], shape: object, fortran: bool = False
) -> NDArray[Any]:
    """The bytes as an array, without a copy, so a claim costs nothing; ``shape`` may be any object and is checked."""
    if dtype.hasobject:
        raise ValueError("raw bytes cannot hold objects")
    if not isinstance(shape, tuple) or len(shape) > MAX_AXES or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"an array's shape must be at most {MAX_AXES} whole numbers")
    if prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array claims shape {shape} of {dtype}, which does not fit its {len(data)} bytes")
    return np.ndarray(shape, dtype, buffer=data, order="F" if fortran else "C")
