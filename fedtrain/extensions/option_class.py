"""Classes whose fields are options, methods and aggregators: what one of somebody's must have, said before training."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from fedtrain.extensions.errors import ExtensionError, describe_code_error
from fedtrain.extensions.references import Extension
from fedtrain.extensions.signatures import check_signatures
from fedtrain.extensions.source import locate_definition

T = TypeVar("T")
OPTION_TYPES = (bool, int, float, str)
"""What a configuration can hold."""


def check_option_class(found: Extension, base: type[T]) -> type[T]:
    """A class of somebody's; refused with the place and the way out if it cannot be what its kind wants."""
    kind, what = found.value, found.kind
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise ExtensionError(
            f"{what} {found.name} is {describe_kind(kind)}; name a subclass of fedtrain.{base.__name__}"
        )
    where = f"{what} {found.name} ({locate_definition(kind)})"
    check_signatures(kind, base, f"{what} {found.name}")
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
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
    options = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if bad := next((name for name in options if not is_option_type(hints[name])), None):
        raise ExtensionError(
            f"{where}: option {bad} is of type {hints[bad]}; a configuration holds bool, int, float, str and Literal"
        )
    return kind


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
