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
LIMIT = 900
"""Seconds."""
SCRIPT = Path(small_experiments.__file__).with_name("simulation_process.py")


def simulated(root: Path, cases: list[str]) -> None:
    # or Ray ends its workers, small as they are, when others need the machine's memory
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_memory_monitor_refresh_ms": "0"}
    command = [sys.executable, str(SCRIPT), str(root), json.dumps(cases)]
    done = subprocess.run(command, env=environment, timeout=LIMIT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Every case in one process."""
    root = tmp_path_factory.mktemp("ours")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
        for case in CASES:
            work, folder = small_experiments.experiment(case), RunFolder(root / case)
            folder.begin(work.config, {})
            run_rounds(work, folder)
    return root


def test_simulated_nodes_give_the_bits_of_one_process(ours, tmp_path):
    """Everybody and a part of the clients, of unequal sizes: messages, heads, metrics, what is kept."""
    simulated(tmp_path, CASES)
    for case in CASES:
        work = small_experiments.experiment(case)
        one, other = (small_experiments.everything(work, RunFolder(root / case)) for root in (ours, tmp_path))
        assert small_experiments.different(one, other) == [], case
        assert RunFolder(tmp_path / case).is_finished
