"""The benchmark of fusion rules says what the run itself says of each rule."""

from __future__ import annotations

import fusion_rules
import numpy as np
import pytest
from click.testing import CliRunner

import fedtrain
from fedtrain.inference.evaluate import collect_predictions
from fedtrain.runs.predictions import PREDICTIONS_FILE, save_predictions


def test_rules_agree_with_the_evaluation_of_the_run(tmp_path):
    chance = np.random.default_rng(0)

    def draw(count, shift):
        labels = np.arange(count) % 3
        return chance.normal(size=(count, 6)) + labels[:, None] + shift, labels

    clients = [
        fedtrain.ClientData.from_arrays(name, train=draw(16, at), test=draw(40, at), val=draw(12, at))
        for name, at in (("a", 0.0), ("b", 1.0))
    ]
    run = fedtrain.train(
        clients=clients, model="mlp", method="fedco2", rounds=2, quiet=True, threads=1, out=tmp_path / "run"
    )
    found = collect_predictions(run.trained, run._load_data(None, clients))
    save_predictions(run.path / PREDICTIONS_FILE, found)
    rows = {row["client"]: row for row in fusion_rules.compare_rules(found)}
    for rule in fusion_rules.RULES:
        for row in run.evaluate(clients=clients, fusion=rule):
            key = rule if row["branch"] == "fused" else row["branch"]
            assert rows[row["client"]][key] == pytest.approx(row["accuracy"], abs=1e-6)
    said = CliRunner().invoke(fusion_rules.main, [str(run.path), "--pair", "offline", "online"]).output
    online = np.mean([row["online"] for row in rows.values()])
    assert said.splitlines()[2].split("|")[3].strip() == f"{100 * online:.1f}"
