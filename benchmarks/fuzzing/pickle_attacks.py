"""Pickles that would call something, by every opcode that can, and pickles that would take for ever."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

from fuzzing.dataset_files import COLOUR_IMAGES, GREY_IMAGES, LABELS

UNBUILT_ARRAY = b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


class PickledCall:
    """Pickled, it is a call."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.parts = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


def build_pickle_attacks(canary: str) -> list[bytes]:
    """Each that calls would create the file ``canary``."""
    code = f"open({canary!r}, 'w').close()"
    line, shell = code.encode(), f"touch {canary}".encode()
    text, command = (b"X" + struct.pack("<I", len(one)) + one for one in (line, shell))
    evaluate = PickledCall(eval, code)
    values: list[object] = [
        PickledCall(os.system, shell.decode()),
        evaluate,
        PickledCall(exec, code),
        (COLOUR_IMAGES, evaluate),
        [COLOUR_IMAGES, [LABELS, {"a": evaluate}]],
        {b"data": GREY_IMAGES, b"labels": [1, evaluate]},
        PickledCall(eval, PickledCall(str, code)),
        PickledCall(getattr, PickledCall(__import__, "os"), "system"),
        PickledCall(map, exec, [code]),
    ]
    return [
        *(pickle.dumps(value, protocol) for value in values for protocol in range(6)),
        b"(S'" + line.replace(b"'", b'"') + b"'\nibuiltins\nexec\n.",  # INST
        b"(cbuiltins\nexec\n" + text + b"o.",  # OBJ
        b"\x80\x02cbuiltins\nexec\n" + text + b"\x85\x81.",  # NEWOBJ
        b"\x80\x04cbuiltins\nexec\n" + text + b"\x85}\x92.",  # NEWOBJ_EX
        b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93" + text + b"\x85R.",  # STACK_GLOBAL
        b"\x80\x04(\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93" + command + b"\x85Rt.",  # its names from the memo
        UNBUILT_ARRAY + b"q\x01cos\nsystem\nq\x01h\x01" + command + b"\x85R\x86.",  # a memo entry that changes
        UNBUILT_ARRAY + b"}X\x09\0\0\0__class__cos\nsystem\nsb.",  # BUILD
        b"\x80\x04\x8c\x05numpy\x8c\x0ef2py.os.system\x93" + command + b"\x85R.",  # a dotted name
        b"\x80\x02\x82\x01" + text + b"\x85R.",  # EXT1
        b"\x80\x02\x83\x01\0" + text + b"\x85R.",  # EXT2
        b"\x80\x02\x84\x01\0\0\0" + text + b"\x85R.",  # EXT4
        b"P" + line + b"\n.",
        b"\x80\x02" + text + b"Q.",
        b"\x80\x05\x97.",
        b"\x80\x02]" + b"]" * 50_000 + b"a" * 50_000 + b".",  # a deep nest
        b"\x80\x02]q\x00" + b"(h\x00h\x00e0]q\x00" * 5000 + b".",
        b"\x80\x02]q\x01(" + b"h\x01" * 20_000 + b"e.",  # a list in itself
        b"\x80\x02})" + b"q\x01h\x01\x86" * 60 + b"K\x01s.",  # a key of 2^60 parts
        b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"a.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"a.",
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # memo entry 2^31
        b"I" + b"9" * 100_000 + b"\n.",
    ]
