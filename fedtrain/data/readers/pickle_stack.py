"""Where a pickle's values live while it is read: a stack with marks, and a memo of what it refers to again."""

from __future__ import annotations

from typing import TypeVar

from fedtrain.data.readers.pickled_numpy import PendingValue

MAX_STEPS = 4_000_000  # opcodes, and so entries of the memo; CIFAR-100 takes some 300 000
T = TypeVar("T")


class PickleStack:
    """Whatever is not there raises IndexError or KeyError."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.outer_stacks: list[list[object]] = []  # the stacks beneath each mark
        self.memo: dict[int, object] = {}

    def peek_typed(self, kind: type[T]) -> T:
        """The value on top, if it is of that kind."""
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"a {type(self.stack[-1]).__name__} stands where a {kind.__name__} should")
        return self.stack[-1]

    def pop_typed(self, kind: type[T]) -> T:
        """The same, off the stack."""
        value = self.peek_typed(kind)
        self.stack.pop()
        return value

    def pop_to_mark(self) -> list[object]:
        """All above the last mark, off the stack."""
        items, self.stack = self.stack, self.outer_stacks.pop()
        return items

    def memoize(self, key: int) -> None:
        """Put the value on top into the memo."""
        if not 0 <= key <= MAX_STEPS:
            raise ValueError(f"memo entry {key} is beyond the {MAX_STEPS} allowed")
        value = self.memo[key] = self.stack[-1]
        if isinstance(value, PendingValue):
            value.keys.append(key)

    def resolve_pending(self, pending: PendingValue, value: object) -> None:
        """Push what came of a pending value, and put it in its place in the memo."""
        self.stack.append(value)
        for key in pending.keys:
            if self.memo[key] is pending:
                self.memo[key] = value
