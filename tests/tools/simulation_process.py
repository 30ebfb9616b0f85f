"""A process that runs cases of small_experiments, one after the other, on the nodes of one Flower simulation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Event

import small_experiments
import torch

from fedtrain.flower.server_app import run_server
from fedtrain.flower.server_plan import ServerPlan
from fedtrain.flower.simulation import simulate
from fedtrain.report import run_figures
from fedtrain.runs.folder import RunFolder

CLIENTS = 5


def main(root: Path, cases: list[str]) -> None:
    torch.set_num_threads(1)
    run_figures.draw_run_figures = lambda folder, summary: []

    def all_of_them(grid) -> list[dict]:
        return [
            run_server(
                grid,
                ServerPlan(small_experiments.config(case), RunFolder(root / case), CLIENTS, CLIENTS, 60.0, "test"),
            )
            for case in cases
        ]

    simulate(CLIENTS, 2, all_of_them, Event())


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
