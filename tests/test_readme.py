"""What the README says of library use is run."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_first_example_prints_what_it_says(capsys):
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    promised = re.search(r"# (holds .*)", code).group(1)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert capsys.readouterr().out.strip() == promised
    assert names["V_inf"].shape == (100, 100)


def test_the_second_example_runs_on_networks_of_ones_own(capsys):
    import torch
    from torch import nn

    import theory

    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1]
    problem = theory.draw_synthetic_problem(clients=5, samples=3, dim=4)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)).double()
    names = {
        "theory": theory,
        "networks": [theory.TwoLayerBN(4, 8, covariance=S, generator=torch.Generator()) for S in problem.S],
        "inputs": [problem.x[rows] for rows in problem.blocks],
        "owner": problem.owner,
        "my_conv_net": net,
    }
    exec(compile(code, "README.md", "exec"), names)
    assert names["K"].shape == (15, 15)
    assert capsys.readouterr().out.strip() == "holds"
