"""The arrows go one way, ``cli -> fedtrain -> theory``, and what is quick stays quick."""

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FORBIDDEN = {"theory": {"fedtrain", "cli", "tests", "benchmarks"}, "fedtrain": {"cli", "tests", "benchmarks"}}
HEAVY = {"torch", "numpy", "scipy", "matplotlib", "jinja2", "theory", "fedtrain"}


def imports(source: str) -> Iterator[str]:
    """The top-level names of all that a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def python(code: str, cwd: Path) -> str:
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


def test_imports_are_seen() -> None:
    source = "import cli.main as m\ndef f():\n  from fedtrain.parameters import pick\nfrom . import theory\nimport a, b"
    assert sorted(imports(source)) == ["a", "b", "cli", "fedtrain"]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_arrows_go_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {
        str(file.relative_to(ROOT)): bad
        for file in files
        if (bad := FORBIDDEN[package].intersection(imports(file.read_text(encoding="utf-8"))))
    }
    assert not wrong


@pytest.mark.parametrize("package", ["theory", "fedtrain", "cli"])
def test_nothing_hides_our_packages(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    ours = ROOT / package / "__init__.py"
    assert spec.origin == str(ours), f"'import {package}' gives {spec.origin}, not {ours}: use a clean environment"


def test_the_command_line_starts_without_heavy_imports(tmp_path: Path) -> None:
    loaded = python("import sys, cli.main; print(*{m.split('.')[0] for m in sys.modules})", tmp_path).split()
    assert "cli" in loaded
    assert not HEAVY.intersection(loaded)
