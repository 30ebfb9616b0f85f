"""``fedtrain.reproduce``: what the command line does, as a call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedtrain
from fedtrain.report.records import read_record

ROOT = Path(__file__).resolve().parents[3]
TINY = {"data": "standin", "settings": {"model.name": "two-layer", "model.width": 8, "data.train_size": 20}}


def test_a_table_is_run_and_shown_and_the_same_call_has_nothing_left_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    asked = {**TINY, "methods": ["fedavg"], "seeds": [3], "rounds": 1, "out": tmp_path / "out"}
    planned = fedtrain.plan_reproduction("t7", **asked)
    assert not (tmp_path / "out").exists()
    (job,) = planned.unfinished
    assert "0 of 1" not in repr(planned)
    (command,) = planned.list_commands()
    assert command.startswith("fedco2 train --preset digits")
    assert [item.runs for item in planned.items] == [1]
    assert planned.notes == []

    found = fedtrain.reproduce("T7", **asked, quiet=True)
    assert capsys.readouterr() == ("", "")
    assert found.failed == []
    assert job.finished
    (table,) = found["t7"].tables
    ours = table.rows["FedAvg"][-1].ours.mean
    mean = read_record(job.folder).rules["last"]["mean"]["fused"]
    assert ours == pytest.approx(100 * mean)
    assert found.to_dict()["experiments"] == [json.loads((found["T7"].folder / "table.json").read_text())]
    assert f"{ours:.1f}" in found._repr_html_()
    assert f"{ours:.1f}" in repr(found)
    assert json.loads((job.folder / "manifest.json").read_text())["command"] == command
    assert planned.unfinished == []
    with pytest.raises(fedtrain.InputError, match="'T9' was not reproduced"):
        found["T9"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"round": 3}, "unknown option 'round'; did you mean 'rounds'"),
        ({"jobs": 0}, "jobs is 0"),
        ({"seeds": []}, "say how many"),
        ({"settings": {"seed": 3}}, "use seeds for it"),
        ({"adopt": "nowhere"}, "no run is here"),
    ],
)
def test_what_is_refused(options, words):
    with pytest.raises(fedtrain.InputError, match=words):
        fedtrain.plan_reproduction("T7", data="standin", **options).notes  # noqa: B018
