"""One run to look at, and runs without figures."""

from __future__ import annotations

import pytest
from quick_runs import QUICK_TRAIN

from cli.main import main


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run to look at; its folder has a name that needs quotes."""
    folder = tmp_path_factory.mktemp("train") / "mein Lauf é"
    assert main([*QUICK_TRAIN, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def no_figures(monkeypatch):
    """They take longer than all the rest of a tiny run."""
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])


@pytest.fixture
def terminal(monkeypatch):
    """Lets commands write as they do to a terminal without colours, of so many columns."""

    def set_width(columns):
        for name, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": str(columns), "LINES": "40"}.items():
            monkeypatch.setenv(name, value)

    return set_width
