"""How pickles spell NumPy arrays, read from the spelling alone: no function that a pickle names is ever called.

An array is ``_reconstruct(ndarray, (0,), b"b")`` and then a state (version, shape, dtype, fortran, bytes); from pickle
protocol 5 on it is ``_frombuffer(bytes, dtype, shape, order)``. Before protocol 3 bytes are latin-1 text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

from fedtrain.data.readers.array_view import view_as_array

DTYPE_PATTERN = re.compile(r"b1|[iu][1248]|f[248]|[SU][1-9]\d{0,3}|O8?")


class AllowedGlobal(Enum):
    """What a pickle may name. These are marks, not the functions themselves."""

    RECONSTRUCT, SCALAR, FROMBUFFER, NDARRAY, DTYPE, ENCODE, BYTES = (auto() for _ in range(7))


ALLOWED_GLOBALS = {
    "numpy ndarray": AllowedGlobal.NDARRAY,
    "numpy dtype": AllowedGlobal.DTYPE,
    "_codecs encode": AllowedGlobal.ENCODE,
    "__builtin__ bytes": AllowedGlobal.BYTES,  # b"" before protocol 3
    **{f"numpy.{core}.multiarray _reconstruct": AllowedGlobal.RECONSTRUCT for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray scalar": AllowedGlobal.SCALAR for core in ("core", "_core")},
    **{f"numpy.{core}.numeric _frombuffer": AllowedGlobal.FROMBUFFER for core in ("core", "_core")},
}


@dataclass(eq=False)
class PendingValue:
    """An array (code "") or a dtype between its naming and its state; ``keys`` is where the memo holds it."""

    code: str = ""
    keys: list[int] = field(default_factory=list)


def evaluate_call(function: object, arguments: object) -> object:
    """What the named function would give; `ValueError` if the arguments are not those of plain data."""
    match function, arguments:
        case AllowedGlobal.RECONSTRUCT, (AllowedGlobal.NDARRAY, (0,), bytes()):
            return PendingValue()
        case AllowedGlobal.DTYPE, (str() | bytes() as code, *_) if DTYPE_PATTERN.fullmatch(decode_text(code)):
            return PendingValue(decode_text(code))
        case AllowedGlobal.ENCODE, (str() as string, "latin1" | b"latin1"):
            return string.encode("latin-1")
        case AllowedGlobal.BYTES, ():
            return b""
        case AllowedGlobal.SCALAR, (np.dtype() as dtype, bytes() as data):
            return view_as_array(data, dtype, ())[()]
        case AllowedGlobal.FROMBUFFER, (bytes() | bytearray() as data, np.dtype() as dtype, shape, "C" | "F" as order):
            return view_as_array(data, dtype, shape, order == "F")
    raise ValueError("it calls something that is not plain data")


def apply_state(pending: PendingValue, state: object) -> object:
    """The dtype or array that ``state`` completes."""
    if pending.code:
        return _build_dtype(pending.code, state)
    match state:
        case (int(), shape, np.dtype() as dtype, bool() | 0 | 1 as fortran, bytes() as data):
            return view_as_array(data, dtype, shape, bool(fortran))
        case (int(), (int() as length,), np.dtype() as dtype, _, list() as items) if dtype.hasobject:
            if length != len(items) or not all(isinstance(item, str | bytes) for item in items):
                raise ValueError("an array of objects must hold text only, as many as it claims")
            array = np.empty(length, dtype=object)
            array[:] = items
            return array
    raise ValueError("an array's state is not that of plain data")


def _build_dtype(code: str, state: object) -> np.dtype[Any]:
    """State: (version, byte order, subarray, names, fields, size, alignment, flags); only plain ones are read."""
    match state:
        case (int(), str() | bytes() as order, None, None, None, int(), int(), int()) if decode_text(order) in list(
            "<>|="
        ):
            return np.dtype(code).newbyteorder(decode_text(order))  # type: ignore[arg-type]
    raise ValueError("a dtype with fields or parts is not read")


def decode_text(value: str | bytes) -> str:
    """Text, also where Python 2 wrote it as bytes."""
    return value.decode("ascii") if isinstance(value, bytes) else value
