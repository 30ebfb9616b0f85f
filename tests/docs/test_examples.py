"""Python in the documentation that is marked with ``<!-- run -->`` runs, and prints what the next block says.

The examples of a page share their names, in the order of the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from printed_examples import EXAMPLE, assert_like, run_example
from torch import nn

import theory

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MARKED = re.compile(rf"^<!-- run -->\n(?={EXAMPLE.pattern})", re.MULTILINE | re.DOTALL)
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if MARKED.search(page.read_text(encoding="utf-8"))]


def test_a_page_is_found():
    assert DOCS / "guides" / "library.md" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, names = page.read_text(encoding="utf-8"), {}
    for mark in MARKED.finditer(text):
        code, promised = EXAMPLE.match(text, mark.end()).groups()
        printed = run_example(code, names, page.name)
        assert_like(printed, promised or "")


def list_theory_examples() -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", (DOCS / "theory" / "index.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def test_a_claim_is_checked_as_shown():
    code = list_theory_examples()[0]
    promised, names = re.search(r"# (holds .*)", code).group(1), {}
    assert run_example(code, names, "docs/theory/index.md").strip() == promised
    assert names["V_inf"].shape == (100, 100)


def test_kernels_of_networks_of_ones_own_are_computed_as_shown():
    problem = theory.draw_synthetic_problem(clients=5, samples=3, dim=4)
    names = {
        "theory": theory,
        "networks": [theory.TwoLayerBN(4, 8, covariance=S, generator=torch.Generator()) for S in problem.S],
        "inputs": [problem.x[rows] for rows in problem.blocks],
        "owner": problem.owner,
        "my_conv_net": nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)).double(),
    }
    assert run_example(list_theory_examples()[1], names, "docs/theory/index.md").strip() == "holds"
    assert names["K"].shape == (15, 15)
