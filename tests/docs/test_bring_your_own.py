"""The files that the pages under "Bring your own" show are trained as the pages say."""

import re
import sys
from pathlib import Path

import pytest
import torch

import fedtrain
from fedtrain.extensions import references

PAGES = Path(__file__).parents[2] / "docs" / "bring-your-own"
FILE = re.compile(r"^<!-- file: (\S+) -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the files of a page into a folder that is the current one."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(references, "_loaded", {})

    def new(page):
        found = FILE.findall((PAGES / page).read_text("utf-8"))
        assert found
        for name, text in found:
            (tmp_path / name).write_text(text, "utf-8")

    yield new
    for name in {"lg", "nets"} - before:
        sys.modules.pop(name, None)


def draw_clients():
    chance = torch.Generator().manual_seed(0)

    def draw(n):
        return torch.rand(n, 1, 4, 4, generator=chance), torch.arange(n) % 3

    return [fedtrain.ClientData.from_arrays(name, train=draw(9), test=draw(6)) for name in "ab"]


HOW = {"rounds": 1, "batch_size": 4, "quiet": True, "local_epochs": 1}


def test_the_network_of_the_page_trains_and_the_method_too(write, monkeypatch):
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    write("model.md")
    write("method.md")
    run = fedtrain.train(
        clients=draw_clients(), model="nets:make", head="fc", method="./lg.py:LGFedAvg", out="run", **HOW
    )
    assert run.config.method.title == "LG-FedAvg"
    assert {name.split(".")[0] for name in run.trained.trainer.shared_names} == {"head"}


def test_the_other_network_of_the_page_has_two_parts(write):
    text = (PAGES / "model.md").read_text("utf-8")
    names = {}
    exec(re.search(r"```python\n(from torch import nn\n\n\nclass TwoParts.*?)```", text, re.DOTALL).group(1), names)
    planned = fedtrain.plan(clients=draw_clients(), model=names["TwoParts"], method="fedper")
    assert planned.model_summary.shared.places == ("features",)
