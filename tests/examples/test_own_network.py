"""The example of a network of one's own runs, and shows what it should: personal batch norm pays under a shift."""

import re
import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_network.py"


def test_a_network_of_ones_own_is_trained(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    mean = [float(value) for value in re.findall(r"^mean +(\S+)", printed, re.MULTILINE)]
    assert re.findall(r"^(\S+) on your data", printed, re.MULTILINE) == ["FedAvg", "FedBN", "Fed-CO2"]
    assert mean[1] > mean[0] + 5
    assert mean[2] > 80
    assert len(list((tmp_path / "runs").iterdir())) == 3
