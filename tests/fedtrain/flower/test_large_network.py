"""The paper's Digits network on a real deployment: 113 MB up and 279 MB down for each of five clients.

What broke there was not the messages, which Flower moves in pieces of 5 MB, but what else it moved in one.
"""

from __future__ import annotations

import pytest
import small_experiments

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from submitted_run import SubmittedRun, run_in_process

from fedtrain.flower.deployment.local_deployment import Deployment
from fedtrain.runs.experiment import build_experiment, plan_experiment
from fedtrain.runs.folder import RunFolder

SETTINGS = {
    "data": {"source": "standin", "percent": 0.02},
    "method": {"name": "fedco2"},
    "server": {"rounds": 1},
    "machine": {"threads": 1, "device": "cpu"},
}
TROUBLE = ("ClientDisconnect", "database is locked", "has expired", "Failed to", "Traceback")
"""What the logs of Flower's processes say when a large message is cut off or crowded out."""


def test_a_round_of_the_papers_network_on_real_nodes(tmp_path):
    work = build_experiment(*plan_experiment("digits", SETTINGS))
    assert work.config.model.name == "digits"
    deployment = Deployment(tmp_path / "nodes")
    deployment.up(len(work.federation.clients))
    try:
        submitted = SubmittedRun(deployment, work, RunFolder(tmp_path / "run"), tmp_path / "app")
        assert submitted.over().is_completed
        logs = {path.name: path.read_text() for path in (deployment.folder / "logs").glob("*.log")}
    finally:
        deployment.down()
    assert small_experiments.different(run_in_process(work, tmp_path / "alone"), submitted.everything()) == []
    assert [(name, words) for name, text in logs.items() for words in TROUBLE if words in text] == []
    assert "taken again" not in logs["app.log"]
