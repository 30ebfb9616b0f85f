"""The Python of the theory's pages runs as it stands, on networks small enough for a test."""

import pkgutil
import re
from functools import partial
from pathlib import Path

import pytest

import theory

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`theory((?:\.\w+)+)")
PAGES = [
    "theory/index.md",
    "theory/claims.md",
    "theory/forecasts.md",
    "theory/mixtures.md",
    "tutorials/verify-the-theory.md",
]


@pytest.mark.parametrize(
    ("page", "first"), [("tutorials/verify-the-theory.md", 0), ("theory/index.md", 2)], ids=["tutorial", "reference"]
)
def test_examples_with_verify_run(page, first, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(theory, "verify", partial(theory.verify, width=64, steps=5), raising=False)
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))[first:]
    assert len(blocks) == 2
    names = {"theory": theory}
    for block in blocks:
        exec(block, names)
    assert "O2     ✓ holds" in capsys.readouterr().out
    assert (tmp_path / "my-report" / "report.html").is_file()
    assert names["report"].holds


@pytest.mark.parametrize("page", PAGES)
def test_names_exist(page):
    for dotted in SPAN.findall((DOCS / page).read_text(encoding="utf-8")):
        pkgutil.resolve_name(f"theory{dotted}")  # a module as well
