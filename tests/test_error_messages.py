"""The libraries speak of keywords and settings; flags are the command line's, which adds them to an error."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"\b(fedco2|flwr|torchrun|ssh-keygen|openssl|pip|flower-super(link|node))\b")
"""A whole command may have its flags."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string, an f-string or several that stand side by side as one; without docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in docs or id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node)}
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "VALUE" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def flags_in(source: str) -> list[str]:
    """Flags in running text: neither a word of an argument list, nor part of a command."""
    return [
        f"line {line}: {text}"
        for line, text in texts(ast.parse(source))
        if (found := FLAG.search(text)) and " " in text and not COMMAND.search(text[: found.start()])
    ]


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("raise E(f'{x} is there; choose another --out')", 1),
        ("x = 'use --device cpu'", 1),
        ("raise E(f'{x} is no run; go on with fedco2 train --resume {x}')", 0),
        ("call(['train', '--out', str(x)])", 0),
        ("def f():\n    '''As --out says.'''", 0),
        ("x = 'so -- and not otherwise'", 0),
    ],
)
def test_flags_are_seen(code: str, count: int) -> None:
    assert len(flags_in(code)) == count


@pytest.mark.parametrize("package", ["theory", "fedtrain"])
def test_the_library_does_not_speak_of_flags(package: str) -> None:
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in sorted((ROOT / package).rglob("*.py"))
        if (found := flags_in(path.read_text(encoding="utf-8")))
    }
    assert not wrong
