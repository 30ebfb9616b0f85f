"""The options of a method: what a configuration may say in ``[method]``, and what it means."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedtrain.config.method_tables import get_method_name
from fedtrain.methods.base import AnyMethod, Method


@dataclass(frozen=True)
class MethodOption:
    """One field of a method's dataclass."""

    name: str
    default: Any
    choices: tuple[str, ...]
    """Empty if any value of the default's type will do."""
    meaning: str


def list_method_options(method: type[AnyMethod]) -> list[MethodOption]:
    """All fields, in their order; the meaning is the line that follows a field in the source."""
    hints, docs = get_type_hints(method), read_field_docs(method)
    return [
        MethodOption(
            field.name,
            get_option_value(field.default),
            get_args(hints[field.name]) if get_origin(hints[field.name]) is Literal else (),
            docs.get(field.name, ""),
        )
        for field in fields(method)
    ]


def get_option_value(value: Any) -> Any:
    """As a configuration has it: a method by its name."""
    return get_method_name(value) if isinstance(value, Method) else value


def read_field_docs(kind: type) -> dict[str, str]:
    """The docstrings of attributes: Python keeps those of classes only, so the source is read."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__[:-1]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        except (OSError, TypeError):  # a class without source says nothing
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, line in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(line, ast.Expr)
                and isinstance(line.value, ast.Constant)
            ):
                found[field.target.id] = " ".join(str(line.value.value).split())
    return found


def get_method_description(method: type[AnyMethod]) -> str:
    """A line on where the method comes from: the docstring of its file."""
    module = inspect.getmodule(method)
    return (inspect.getdoc(module) or "").partition("\n")[0] if module else ""
