"""Methods that are not part of fedco2: what a class must have to be one, said before anything is trained."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedtrain.extensions.errors import ExtensionError, describe_code_error
from fedtrain.extensions.references import Extension, register
from fedtrain.extensions.source import locate_definition
from fedtrain.methods import METHODS
from fedtrain.methods.base import AnyMethod, Method

OPTION_TYPES = (bool, int, float, str)
"""What a configuration can hold."""


def check_method_class(found: Extension) -> type[AnyMethod]:
    """The class of somebody's method; refused with the place and the way out if it cannot be one."""
    kind = found.value
    if not isinstance(kind, type) or not issubclass(kind, Method):
        raise ExtensionError(f"method {found.name} is {describe_kind(kind)}; name a subclass of fedtrain.Method")
    where = f"method {found.name} ({locate_definition(kind)})"
    if missing := sorted(kind.__abstractmethods__):
        raise ExtensionError(f"{where} does not define {', '.join(missing)}")
    if not isinstance(getattr(kind, "title", None), str):
        raise ExtensionError(f'{where} has no title; give it one: title: ClassVar[str] = "{kind.__name__}"')
    if "__dataclass_params__" not in vars(kind):
        raise ExtensionError(f"{where} is no dataclass; write @dataclass(frozen=True) above it")
    try:
        hints = get_type_hints(kind)
        kind()
    except Exception as error:
        raise ExtensionError(f"{where} cannot be made: {describe_code_error(error)}") from error
    if bad := next((field.name for field in fields(kind) if not is_option_type(hints[field.name])), None):
        raise ExtensionError(
            f"{where}: option {bad} is of type {hints[bad]}; a configuration holds bool, int, float, str and Literal"
        )
    return kind


def name_method(method: AnyMethod | type[AnyMethod]) -> str:
    """What configurations call a method that is given in Python; a class of the user's own is remembered."""
    kind = method if isinstance(method, type) else type(method)
    name = next((name for name, one in METHODS.items() if one is kind), None)
    if name is None:
        found = register("method", kind)
        check_method_class(found)
        name = found.name
    return name


def is_option_type(hint: Any) -> bool:
    """Whether a configuration can hold values of this type."""
    if get_origin(hint) is Literal or hint in OPTION_TYPES:
        return True
    inner = [one for one in get_args(hint) if one is not NoneType]
    return len(inner) == 1 and NoneType in get_args(hint) and is_option_type(inner[0])


def describe_kind(value: object) -> str:
    """What something is, for who expected something else."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"an instance of {type(value).__name__}" if not callable(value) else "a function"
