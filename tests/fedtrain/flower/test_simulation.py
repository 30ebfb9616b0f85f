"""Flower's simulation: the bits of one process, for every method, and what a node does not do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small_experiments

from fedtrain.methods import METHODS
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

OTHERS = METHODS.keys() - small_experiments.PAPER
CASES = [
    name
    for name in (*small_experiments.CASES, *small_experiments.HEADS)
    if name not in {f"{one} all" for one in OTHERS}
]
"""Every method with a part of the clients in each round, the paper's with all of them too."""
QUICK = [
    "fedavg all", "fedbn some", "fedbn fedyogi", "scaffold some", "fedproto some", "knnper some", "copa heads",
    "fedco2 some", "fedco2 heads", "fedco2 float16", "fedco2 few bytes",
]  # fmt: skip
"""One of each kind of what travels and what is kept. The rest takes minutes."""
LIMIT = 900
"""Seconds."""
SCRIPT = Path(small_experiments.__file__).with_name("simulation_process.py")


def simulated(root: Path, cases: list[str]) -> None:
    # or Ray ends its workers, small as they are, when others need the machine's memory
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_memory_monitor_refresh_ms": "0"}
    command = [sys.executable, str(SCRIPT), str(root), json.dumps(cases)]
    done = subprocess.run(command, env=environment, timeout=LIMIT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def trained_here(root: Path, cases: list[str]) -> None:
    """Every case in one process."""
    for case in cases:
        work, folder = small_experiments.experiment(case), RunFolder(root / case)
        folder.begin(work.config, {})
        run_rounds(work, folder)


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(QUICK, id="each kind"),
        pytest.param([case for case in CASES if case not in QUICK], id="the rest", marks=pytest.mark.minutes),
    ],
)
def test_simulated_nodes_give_the_bits_of_one_process(cases, tmp_path, monkeypatch):
    """Everybody and a part of the clients, of unequal sizes: messages, heads, metrics, what is kept."""
    assert set(QUICK) <= set(CASES)
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    here, there = tmp_path / "here", tmp_path / "there"
    trained_here(here, cases)
    simulated(there, cases)
    for case in cases:
        work = small_experiments.experiment(case)
        one, other = (small_experiments.everything(work, RunFolder(root / case)) for root in (here, there))
        assert small_experiments.different(one, other) == [], case
        assert RunFolder(there / case).is_finished
