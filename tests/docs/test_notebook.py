"""Notebooks of the documentation run, and show what they were saved with; their outputs are small."""

from __future__ import annotations

import copy
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient")
import nbformat

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
LARGEST = 100_000
"""Bytes."""


def describe_outputs(notebook: Any) -> list[list[str]]:
    """Of each cell, the words that it shows (numbers may differ on another machine), or the kind of its figure."""

    def describe(output: Any) -> list[str]:
        data = output.get("data", {})
        if "image/png" in data:
            return ["figure"]
        shown = re.sub(r"<[^>]*>", " ", data["text/html"]) if "text/html" in data else output.get("text", "")
        return [word for word in re.split(r"[\s(),:]+", shown) if re.search(r"[A-Za-z]{2}", word) and word != "lt"]

    return [[word for one in cell.get("outputs", []) for word in describe(one)] for cell in notebook.cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_did(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    saved = nbformat.read(path, as_version=4)
    execute = runpy.run_path(str(ROOT / "docs" / "tools" / "run_notebooks.py"))["execute"]
    assert describe_outputs(execute(copy.deepcopy(saved))) == describe_outputs(saved)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_in_the_navigation(path):
    assert path.stat().st_size < LARGEST
    page = path.relative_to(ROOT / "docs").with_suffix(".md")
    assert str(page) in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert not (ROOT / "docs" / page).exists(), "the page is made of the notebook"


def test_there_is_one():
    assert NOTEBOOKS
