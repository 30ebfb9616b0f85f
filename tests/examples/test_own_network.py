"""The example of a network of one's own runs, and shows what it should: personal batch norm pays under a shift."""

import re
import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_network.py"


def test_a_network_of_ones_own_is_trained(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    mean = dict(re.findall(r"^(\S+) .* mean (\S+)$", capsys.readouterr().out, re.MULTILINE))
    assert list(mean) == ["FedAvg", "FedBN", "Fed-CO2"]
    assert float(mean["FedBN"]) > float(mean["FedAvg"]) + 0.05
    assert float(mean["Fed-CO2"]) > 0.8
