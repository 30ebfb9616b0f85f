"""Read pickles that hold data, and refuse all others.

This is a small machine for those opcodes that arrays, lists, tuples, dicts, text, bytes and numbers need. It imports
nothing, calls nothing and knows no classes; a pickle that asks for more is refused, and what it asks for is named.
Text of Python 2 comes out as bytes. Time and memory stay in proportion to the file: at most `MAX_BYTES` of it and
`MAX_STEPS` opcodes, and work on what it refers to again and again is at most `MAX_REUSE` times its size.
"""

from __future__ import annotations

import pickletools
import warnings
from pathlib import Path

from fedtrain.data.readers.pickle_stack import MAX_STEPS, PickleStack
from fedtrain.data.readers.pickled_numpy import ALLOWED_GLOBALS, PendingValue, apply_state, evaluate_call
from fedtrain.data.readers.safe_read import MAX_BYTES, read_bytes, wrap_read_errors

MAX_REUSE = 16
MAX_KEY = 256  # characters in the key of a dict
MAX_BITS = 128  # of a whole number
MAX_ARGUMENTS = 8  # of a call, and parts of a state: a dtype has eight
LITERAL_OPCODES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "FLOAT", "BINFLOAT"}
LITERAL_OPCODES |= {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
TUPLE_OPCODES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def load_pickle(path: Path) -> object:
    """The data in a pickle file."""
    with wrap_read_errors(path, "pickle"):
        return parse_pickle(read_bytes(path, MAX_BYTES), path)


def parse_pickle(data: bytes, source: object) -> object:
    """The data in a pickle; ``source`` names it in errors."""
    with wrap_read_errors(source, "pickle"), warnings.catch_warnings():
        warnings.simplefilter("error")  # of text with escapes that mean nothing
        return _PickleMachine(MAX_REUSE * len(data)).run(data)


class _PickleMachine(PickleStack):
    def __init__(self, allowance: int) -> None:
        super().__init__()
        self.allowance = allowance

    def run(self, data: bytes) -> object:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            if count == MAX_STEPS:
                raise ValueError(f"more than the {MAX_STEPS} opcodes allowed")
            if opcode.name == "STOP":
                break
            try:
                self.execute_opcode(opcode.name, argument)
            except (IndexError, KeyError) as error:
                raise ValueError(f"opcode {opcode.name} at {position} lacks what it needs") from error
        if len(self.stack) != 1 or self.outer_stacks:
            raise ValueError("it does not end with one value")
        return self.stack[0]

    def execute_opcode(self, name: str, argument: object) -> None:
        match name, argument:
            case _ if name in LITERAL_OPCODES:
                self.stack.append(argument)
            case "PUT" | "BINPUT" | "LONG_BINPUT", int(key):
                self.memoize(key)
            case "MEMOIZE", _:
                self.memoize(len(self.memo))
            case "GET" | "BINGET" | "LONG_BINGET", int(key):
                self.stack.append(self.memo[key])
            case "INT" | "BININT" | "BININT1" | "BININT2" | "LONG" | "LONG1" | "LONG4", int(number):
                if number.bit_length() > MAX_BITS:
                    raise ValueError(f"a whole number has more than the {MAX_BITS} bits allowed")
                self.stack.append(number)
            case "STRING" | "BINSTRING" | "SHORT_BINSTRING", str(string):
                self.stack.append(string.encode("latin-1"))
            case "NONE" | "NEWTRUE" | "NEWFALSE", _:
                self.stack.append(None if name == "NONE" else name == "NEWTRUE")
            case "PROTO" | "FRAME", _:
                pass
            case "MARK", _:
                self.outer_stacks.append(self.stack)
                self.stack = []
            case _ if name in TUPLE_OPCODES:
                self.stack.append(tuple([self.stack.pop() for _ in range(TUPLE_OPCODES[name])][::-1]))
            case "TUPLE", _:
                items = self.pop_to_mark()
                self.stack.append(tuple(items))
            case "EMPTY_LIST" | "LIST", _:
                items = self.pop_to_mark() if name == "LIST" else []
                self.stack.append(items)
            case "APPEND" | "APPENDS", _:
                items = self.pop_to_mark() if name == "APPENDS" else [self.stack.pop()]
                self.peek_typed(list).extend(items)
            case "EMPTY_DICT" | "DICT", _:
                items = self.pop_to_mark() if name == "DICT" else []
                self.stack.append(self.build_dict(items))
            case "SETITEM" | "SETITEMS", _:
                items = self.pop_to_mark() if name == "SETITEMS" else [self.stack.pop(), self.stack.pop()][::-1]
                self.peek_typed(dict).update(self.build_dict(items))
            case "GLOBAL", str(wanted):
                self.stack.append(self.resolve_global(wanted))
            case "STACK_GLOBAL", _:
                wanted = self.pop_typed(str)
                self.stack.append(self.resolve_global(f"{self.pop_typed(str)} {wanted}"))
            case "REDUCE", _:
                arguments = self.pop_arguments()
                self.stack.append(evaluate_call(self.stack.pop(), arguments))
            case "BUILD", _:
                state, pending = self.pop_arguments(), self.pop_typed(PendingValue)
                self.resolve_pending(pending, apply_state(pending, state))
            case _:
                raise ValueError(f"opcode {name} is not one that plain data need")

    def build_dict(self, items: list[object]) -> dict[str | bytes, object]:
        """Keys are hashed: a nest of tuples takes for ever, and numbers can be chosen to collide."""
        keys, values = items[::2], items[1::2]
        if not all(isinstance(key, str | bytes) and len(key) <= MAX_KEY for key in keys):
            raise ValueError(f"the key of a dict must be text of at most {MAX_KEY} characters")
        return dict(zip(keys, values, strict=True))  # type: ignore[arg-type]

    def resolve_global(self, wanted: str) -> object:
        if wanted not in ALLOWED_GLOBALS:
            dotted = wanted[:160].replace(" ", ".")
            raise ValueError(f"it asks for {dotted}, which is no plain data: do not trust this file")
        return ALLOWED_GLOBALS[wanted]

    def pop_arguments(self) -> tuple[object, ...]:
        """A call's or a state's. Text and lists cost as they will be copied: the same long one could come for ever."""
        arguments = self.pop_typed(tuple)
        self.allowance -= sum(len(item) for item in arguments[:MAX_ARGUMENTS] if isinstance(item, str | list))
        if len(arguments) > MAX_ARGUMENTS or self.allowance < 0:
            raise ValueError("it has too many arguments, or works on the same data again and again")
        return arguments
