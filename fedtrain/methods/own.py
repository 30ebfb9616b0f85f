"""Methods that are not part of fedco2: what a class must have to be one, said before anything is trained."""

from __future__ import annotations

from fedtrain.extensions.option_class import check_option_class
from fedtrain.extensions.references import Extension, register
from fedtrain.methods import METHODS
from fedtrain.methods.base import AnyMethod, Method


def check_method_class(found: Extension) -> type[AnyMethod]:
    """The class of somebody's method; refused with the place and the way out if it cannot be one."""
    return check_option_class(found, Method)  # type: ignore[type-abstract]


def name_method(method: AnyMethod | type[AnyMethod]) -> str:
    """What configurations call a method that is given in Python; a class of the user's own is remembered."""
    kind = method if isinstance(method, type) else type(method)
    name = next((name for name, one in METHODS.items() if one is kind), None)
    if name is None:
        found = register("method", kind)
        check_method_class(found)
        name = found.name
    return name
