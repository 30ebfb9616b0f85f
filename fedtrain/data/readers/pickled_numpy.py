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

from fedtrain.data.readers.buffers import view

CODE = re.compile(r"b1|[iu][1248]|f[248]|[SU][1-9]\d{0,3}|O8?")


class Named(Enum):
    """What a pickle may name. These are marks, not the functions themselves."""

    RECONSTRUCT, SCALAR, FROMBUFFER, NDARRAY, DTYPE, ENCODE, BYTES = (auto() for _ in range(7))


NAMED = {
    "numpy ndarray": Named.NDARRAY,
    "numpy dtype": Named.DTYPE,
    "_codecs encode": Named.ENCODE,
    "__builtin__ bytes": Named.BYTES,  # b"" before protocol 3
    **{f"numpy.{core}.multiarray _reconstruct": Named.RECONSTRUCT for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray scalar": Named.SCALAR for core in ("core", "_core")},
    **{f"numpy.{core}.numeric _frombuffer": Named.FROMBUFFER for core in ("core", "_core")},
}


@dataclass(eq=False)
class Pending:
    """An array (code "") or a dtype between its naming and its state; ``keys`` is where the memo holds it."""

    code: str = ""
    keys: list[int] = field(default_factory=list)


def call(function: object, arguments: object) -> object:
    """What the named function would give; `ValueError` if the arguments are not those of plain data."""
    match function, arguments:
        case Named.RECONSTRUCT, (Named.NDARRAY, (0,), bytes()):
            return Pending()
        case Named.DTYPE, (str() | bytes() as code, *_) if CODE.fullmatch(text(code)):
            return Pending(text(code))
        case Named.ENCODE, (str() as string, "latin1" | b"latin1"):
            return string.encode("latin-1")
        case Named.BYTES, ():
            return b""
        case Named.SCALAR, (np.dtype() as dtype, bytes() as data):
            return view(data, dtype, ())[()]
        case Named.FROMBUFFER, (bytes() | bytearray() as data, np.dtype() as dtype, shape, "C" | "F" as order):
            return view(data, dtype, shape, order == "F")
    raise ValueError("it calls something that is not plain data")


def build(pending: Pending, state: object) -> object:
    """The dtype or array that ``state`` completes."""
    if pending.code:
        return _dtype(pending.code, state)
    match state:
        case (int(), shape, np.dtype() as dtype, bool() | 0 | 1 as fortran, bytes() as data):
            return view(data, dtype, shape, bool(fortran))
        case (int(), (int() as length,), np.dtype() as dtype, _, list() as items) if dtype.hasobject:
            if length != len(items) or not all(isinstance(item, str | bytes) for item in items):
                raise ValueError("an array of objects must hold text only, as many as it claims")
            array = np.empty(length, dtype=object)
            array[:] = items
            return array
    raise ValueError("an array's state is not that of plain data")


def _dtype(code: str, state: object) -> np.dtype[Any]:
    """State: (version, byte order, subarray, names, fields, size, alignment, flags); only plain ones are read."""
    match state:
        case (int(), str() | bytes() as order, None, None, None, int(), int(), int()) if text(order) in list("<>|="):
            return np.dtype(code).newbyteorder(text(order))  # type: ignore[arg-type]
    raise ValueError("a dtype with fields or parts is not read")


def text(value: str | bytes) -> str:
    """Text, also where Python 2 wrote it as bytes."""
    return value.decode("ascii") if isinstance(value, bytes) else value
