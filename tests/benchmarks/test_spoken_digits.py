"""Spoken digits are divided as is published, and a run that is there is not trained again."""

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))  # where its scripts look for each other

from spoken_digits import adapt, split_recordings, train_or_resume

from fedtrain.config.data import DataSettings
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.kept_datasets import keep_dataset


def write_recordings(path, count=12):
    with zipfile.ZipFile(path, "w") as recordings:
        for speaker in ("ann", "bob", "carl"):
            for digit in "07":
                for number in range(count):
                    file = io.BytesIO()
                    shade = np.full((4, 4), 120 * int(digit) // 7 + number, np.uint8)
                    Image.fromarray(shade).save(file, "PNG")
                    name = f"spoken_digits/{speaker}/{digit}/{digit}_{speaker}_{number}.png"
                    recordings.writestr(name, file.getvalue())
    return path


def test_recordings_are_divided_trained_on_and_adapted_to(tmp_path, monkeypatch):
    count = split_recordings(write_recordings(tmp_path / "all.zip", 40), tmp_path / "spoken.zip")
    assert count == 240
    found = find_dataset(tmp_path / "spoken.zip", DataSettings())
    assert [(len(pool.train), len(pool.test)) for pool in found.pools] == [(70, 10)] * 3
    keep_dataset(found, "spoken", tmp_path)
    monkeypatch.setenv("FEDCO2_DATA", str(tmp_path))
    how = {"method": "fedbn", "seed": 0, "hold_out": "bob", "eval_every": 50, "metrics": "none"}
    run = train_or_resume(tmp_path / "run", **how)
    written = (tmp_path / "run" / "summary.json").stat().st_mtime_ns
    again = train_or_resume(tmp_path / "run", **how)
    assert (tmp_path / "run" / "summary.json").stat().st_mtime_ns == written
    assert again.summary == run.summary
    assert run.config.local.last_batch == "drop"
    row = adapt(run, {"method": "fedbn", "client": "bob", "seed": 0})
    assert (row["method"], row["client"]) == ("fedbn", "bob")
    assert {shots: len(each) for shots, each in row["after"].items()} == {"0": 1, "5": 3, "20": 3}
    assert row["before"] == run.adapt(shots=0).before.accuracy
    assert row["after"]["20"][1] == run.adapt(shots=20, seed=1).after.accuracy
