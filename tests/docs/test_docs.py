"""The documentation: links lead somewhere, lines are short, and marked commands run.

A ```` ```console ```` block after the line ``<!-- run -->`` is run here, command by command, in a folder of its own;
Python is run by ``test_examples.py``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IN_DOCS = sorted(DOCS.rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *IN_DOCS]
FENCE = re.compile(r"^(\s*)(```+).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*([^)\s]+)(?:\s+\"[^\"]*\")?\s*\)")
RUN = re.compile(r"^<!-- run -->\n```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
WIDTH = 100


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without its blocks and spans of code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MkDocs agree on it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", text))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#{1,6} (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {slug(heading) for heading in headings}


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: no {link}"
        assert target.is_relative_to(ROOT), f"{name(page)}: {link} leaves the project"
        if anchor:
            assert target.suffix == ".md", f"{name(page)}: an anchor in {link}"
            assert anchor in anchors(target), f"{name(page)}: no heading for {link}"


def test_every_page_is_in_the_navigation():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in IN_DOCS:
        assert str(page.relative_to(DOCS)) in menu, name(page)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name)
def test_lines_are_short(page):
    """All but tables."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        assert len(line) <= WIDTH or line.startswith("|"), f"{name(page)}:{number}: {len(line)} columns"


def commands(block: str) -> list[list[str]]:
    """What follows a prompt, without comments; a backslash joins lines."""
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


BLOCKS = [(page, block) for page in PAGES for block in RUN.findall(page.read_text(encoding="utf-8"))]


def test_a_marker_stands_before_a_block():
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    marked = sum(text.count("\n<!-- run -->\n") for text in texts)
    python = sum(text.count("\n<!-- run -->\n```python\n") for text in texts)
    assert len(BLOCKS) + python == marked
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{name(page)}-{n}" for n, (page, _) in enumerate(BLOCKS)])
def test_the_commands_of_a_page_run(page, block, tmp_path):
    threads = {"OMP_NUM_THREADS": "1", "FEDCO2_DATA": str(tmp_path / "data")}
    for program, *arguments in commands(block):
        assert program == "fedco2", f"{name(page)}: only fedco2 is run"
        done = subprocess.run(
            [sys.executable, "-m", "cli", *arguments],
            cwd=tmp_path,
            env=os.environ | threads | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"fedco2 {shlex.join(arguments)}\n{done.stdout}\n{done.stderr}"
