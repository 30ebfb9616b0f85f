"""From tables of a configuration to frozen dataclasses and back, each key and each type checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from math import inf, isfinite
from sys import float_info
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from theory.errors import InputError
from theory.text import suggest_name

T = TypeVar("T")
TomlTable = dict[str, Any]
NONE_TEXT = "none"
MAX_VALUE_LENGTH = 80
TYPE_DESCRIPTIONS = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}


def parse_section(
    kind: type[T], table: Mapping[str, Any], section: str, owner: str = "", ready: Mapping[str, Any] | None = None
) -> T:
    """An instance of a dataclass from the keys of a section; ``owner`` says whose keys they are, if in doubt.

    Fields in ``ready`` have their values already.
    """
    hints = get_field_types(kind)  # type: ignore[arg-type]  # a class can be hashed, says Python
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise InputError(
                f"unknown key {format_value(key)} in [{section}]{owner and ' of ' + owner}; {suggest_name(key, known)}"
            )
    values = {key: coerce_value(value, hints[key], f"{section}.{key}") for key, value in table.items()}
    return kind(**values, **(ready or {}))


@cache  # to resolve hints takes milliseconds, and what `reproduce --list` shows takes thousands of sections
def get_field_types(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields, by name."""
    return get_type_hints(kind)


def serialize_section(instance: Any) -> TomlTable:
    """Its fields as a table; TOML has no word for None, so it is spelt out."""
    pairs = {f.name: getattr(instance, f.name) for f in fields(instance)}
    return {
        key: NONE_TEXT if value is None else list(value) if isinstance(value, tuple) else value
        for key, value in pairs.items()
    }


def format_value(value: object) -> str:
    """A value in an error, in so many characters as a line can bear."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python does not spell out whole numbers of thousands of digits
        return "too long a value to be shown"
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 3]}..."


def format_error(error: Exception) -> str:
    """An error about a file in so many characters as a line can bear; the file may have chosen its words."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 2 * MAX_VALUE_LENGTH else f"{text[: 2 * MAX_VALUE_LENGTH - 3]}..."


def coerce_value(value: Any, hint: Any, name: str) -> Any:
    """The value as the hint wants it: a whole number may stand for a float, ``none`` for None."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            way = suggest_name(value if isinstance(value, str) else format_value(value), get_args(hint))
            raise InputError(f"{name} is {format_value(value)}; {way}")
        return value
    if get_origin(hint) is tuple:
        parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise InputError(f"{name} is {format_value(value)}; it must be a list of texts, or texts between commas")
        return tuple(coerce_value(part, get_args(hint)[0], name) for part in parts)
    if get_origin(hint) in (Union, UnionType):
        if value is None or value == NONE_TEXT:
            return None
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
        return coerce_value(value, hint, name)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= float_info.max else inf if value > 0 else -inf
    lost = not isfinite(value) if isinstance(value, float) else isinstance(value, int) and abs(value) >= 2**63
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool) or lost:
        raise InputError(f"{name} is {format_value(value)}; it must be {TYPE_DESCRIPTIONS.get(hint, hint)}")
    return value


def parse_override(text: str) -> tuple[str, str, Any]:
    """``section.key=value`` of a command line; the value as TOML would read it, else as text."""
    path, equals, value = text.partition("=")
    section, dot, key = path.strip().partition(".")
    if not equals or (not dot and section != "seed"):
        raise InputError(
            f"setting {text!r}: write section.key=value, for instance local.lr=0.1 or method.mu=0.5", options=("set",)
        )
    try:
        return section, key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return section, key, value.strip()


def parse_settings(texts: Iterable[str]) -> TomlTable:
    """Several of these, as settings by their paths."""
    each = map(parse_override, texts)
    return {f"{section}.{key}" if key else section: value for section, key, value in each}


def flatten_tables(tables: Mapping[str, Any]) -> TomlTable:
    """``section.key`` and values."""
    pairs: TomlTable = {}
    for section, table in tables.items():
        if isinstance(table, Mapping):
            pairs |= {f"{section}.{key}": value for key, value in table.items()}
        else:
            pairs[section] = table
    return pairs


def merge_tables(*tables: Mapping[str, Any]) -> TomlTable:
    """Later tables win, section by section and key by key."""
    result: TomlTable = {}
    for table in tables:
        for key, value in table.items():
            old = result.get(key)
            result[key] = merge_tables(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return result
