"""Methods as tables of a configuration, also those that are made of methods: ``online = "fedrep"``.

The options of a part follow its name: ``online.head_epochs = 2``. A table within the table says the same:
``[method.online]`` with ``name`` and ``head_epochs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast, get_args, get_origin

from fedtrain.config.toml import NONE_TEXT, TomlTable, format_value, get_field_types, parse_section, serialize_section
from fedtrain.extensions.errors import explain_failure
from fedtrain.extensions.references import build_unknown_error, find_extension, register
from fedtrain.methods import METHODS, AnyMethod
from fedtrain.methods.base import Method
from fedtrain.methods.own import check_method_class
from theory.errors import InputError
from theory.text import suggest_name

T = TypeVar("T", bound=AnyMethod)
MAX_DEPTH = 8
"""Cooperations within cooperations; a file that nests them deeper is not meant seriously."""


def get_method_class(name: object) -> type[AnyMethod]:
    """The class of a method: one of ours, a plug-in, or one that the user has named in this process."""
    if not isinstance(name, str):
        raise InputError(f"unknown method {format_value(name)}; {suggest_name('', METHODS)}")
    if name in METHODS:
        return METHODS[name]
    if (found := find_extension("method", name)) is None:
        raise build_unknown_error("method", name)
    return check_method_class(found)


def get_method_name(method: AnyMethod) -> str:
    """What configurations call a method; of a class that is not part of fedco2, where it is defined."""
    kind = type(method)
    ours = next((name for name, one in METHODS.items() if one is kind), None)
    return ours or register("method", kind).name


def list_part_names(kind: type[AnyMethod]) -> list[str]:
    """The fields that hold a method."""
    hints = get_field_types(kind)
    return [field.name for field in fields(kind) if _is_method_type(hints[field.name])]


def _is_method_type(hint: Any) -> bool:
    kinds = [get_origin(one) or one for one in (get_args(hint) or ())] + [get_origin(hint) or hint]
    return any(isinstance(kind, type) and issubclass(kind, Method) for kind in kinds)


def parse_method(kind: type[T], table: Mapping[str, Any], section: str = "method", depth: int = 0) -> T:
    """An instance from the keys of a section, the parts from theirs."""
    flat, parts = flatten_parts(table), list_part_names(kind)
    given: dict[str, Any] = {}
    own = {key: value for key, value in flat.items() if key.partition(".")[0] not in parts}
    for name in parts:
        options = {key.removeprefix(f"{name}."): value for key, value in flat.items() if key.startswith(f"{name}.")}
        if name in flat or options:
            given[name] = _parse_part(kind, name, flat.get(name), options, section, depth)
    with explain_failure(kind.title):
        return parse_section(kind, own, section, kind.title, given)


def _parse_part(
    kind: type[AnyMethod], name: str, chosen: object, options: Mapping[str, Any], section: str, depth: int
) -> AnyMethod | None:
    path = f"{section}.{name}"
    if depth >= MAX_DEPTH:
        raise InputError(f"{path}: cooperations lie more than {MAX_DEPTH} deep in each other; take fewer")
    default = cast(AnyMethod | None, next(field.default for field in fields(kind) if field.name == name))
    if chosen is None and default is not None:
        chosen = get_method_name(default)
    if chosen in (None, NONE_TEXT) and default is None:
        if options:
            key = next(iter(options))
            raise InputError(f"{path}.{key} is an option of a method, and {path} names none; set {path}")
        return None
    try:
        part = get_method_class(chosen)
    except InputError as error:
        raise InputError(f"{path}: {error}", error.options) from None
    try:
        return parse_method(part, options, path, depth + 1)
    except InputError as error:
        text = str(error)  # a method speaks of its options as method.NAME
        raise InputError(text.replace("method.", f"{path}.", 1) if path not in text else text) from None


def flatten_parts(table: Mapping[str, Any]) -> TomlTable:
    """Tables of parts as dotted keys; the name of a part is its own value."""
    flat: TomlTable = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            for inner, one in flatten_parts(value).items():
                flat[key if inner == "name" else f"{key}.{inner}"] = one
        else:
            flat[key] = value
    return flat


def serialize_method(method: AnyMethod) -> TomlTable:
    """The options of a method, of its parts the names and, dotted, the options."""
    table = serialize_section(method)
    for name in list_part_names(type(method)):
        part = getattr(method, name)
        if part is None:
            continue
        inner = {f"{name}.{key}": value for key, value in serialize_method(part).items()}
        table |= {name: get_method_name(part), **inner}
    return table


def fill_default_options(kind: type[AnyMethod] | None, given: Mapping[str, Any]) -> TomlTable:
    """The options with defaults for what is not given, but not checked; None: a class that is not at hand."""
    flat = flatten_parts(given)
    if kind is None:
        return flat
    chosen = tuple(f"{name}." for name in list_part_names(kind) if name in flat)
    usual = {key: value for key, value in serialize_method(kind()).items() if not key.startswith(chosen)}
    return {**usual, **flat}


def list_parts(method: AnyMethod) -> dict[str, AnyMethod]:
    """The methods that a method is given, by dotted names, and those that these are given."""
    found: dict[str, AnyMethod] = {}
    for name in list_part_names(type(method)):
        if (part := getattr(method, name)) is not None:
            found |= {name: part, **{f"{name}.{inner}": one for inner, one in list_parts(part).items()}}
    return found
