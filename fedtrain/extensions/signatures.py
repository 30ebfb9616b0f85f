"""Functions that take the place of ours: whether they can be called as ours are, said before they are."""

from __future__ import annotations

import inspect
from types import FunctionType

from fedtrain.extensions.errors import ExtensionError
from fedtrain.extensions.source import locate_definition


def check_signatures(kind: type, base: type, what: str) -> None:
    """Refuse a class whose functions cannot be called like those of its base that they override."""
    for name, ours in list_functions(base).items():
        mine = inspect.getattr_static(kind, name, None)
        if not isinstance(mine, FunctionType) or mine is ours:
            continue
        if not accepts_call_of(mine, ours):
            wanted = ", ".join(inspect.signature(ours).parameters)
            raise ExtensionError(
                f"{what} ({locate_definition(mine)}): {name}{inspect.signature(mine)} cannot be called as it is to be; "
                f"write {name}({wanted})"
            )


def list_functions(base: type) -> dict[str, FunctionType]:
    """Its public functions, those of the classes above it too."""
    names = [name for name in dir(base) if not name.startswith("_")]
    found = {name: inspect.getattr_static(base, name) for name in names}
    return {name: one for name, one in found.items() if isinstance(one, FunctionType)}


def accepts_call_of(mine: FunctionType, ours: FunctionType) -> bool:
    """Whether a call with all that one function takes fits the other."""
    parameters = inspect.signature(ours).parameters.values()
    positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    named = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
    try:
        inspect.signature(mine).bind(*positional, **named)
    except TypeError:
        return False
    return True
