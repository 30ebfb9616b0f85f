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
    for name in {"lg", "nets", "halfway", "watch", "sensors", "sign", "csv_tracker"} - before:
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


@pytest.fixture
def train(write, monkeypatch):
    """Trains with the file of a page."""
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])

    def now(page, **options):
        write(page)
        how = {"clients": draw_clients(), "model": "mlp", "method": "fedavg", "out": "run", **HOW}
        return fedtrain.train(**(how | options))

    return now


def test_the_aggregator_of_the_page(train):
    run = train("aggregator.md", aggregator="./halfway.py:Halfway", settings={"aggregator.share": 0.9})
    assert run.config.aggregator.share == 0.9
    far = train("aggregator.md", aggregator="halfway:Halfway", settings={"aggregator.share": 0.1}, out="far")
    assert far.rows != run.rows


def test_the_callback_of_the_page(train):
    run = train("callback.md", callbacks=["./watch.py:WorstClient"], rounds=2)
    lines = [line.split() for line in (run.path / "worst.txt").read_text().splitlines()]
    assert [line[0] for line in lines] == ["1", "2"]
    last = {row["client"]: row["accuracy"] for row in run.rows if row["round"] == 2}
    assert float(lines[1][2]) == pytest.approx(min(last.values()), abs=1e-3)


def test_the_data_set_of_the_page(train):
    run = train("dataset.md", clients=None, dataset="./sensors.py:load")
    assert run.manifest["data"]["classes"] == ["calm", "windy", "storm"]
    assert {row["client"] for row in run.rows} == {"coast", "hill", "valley"}


def test_the_optimiser_of_the_page(train):
    run = train("optimizer.md", optimizer="./sign.py:SignSGD", lr=0.001, momentum=0, weight_decay=0.01)
    assert run.config.local.optimizer == "sign:SignSGD"


def test_the_tracker_of_the_page(train):
    run = train("tracker.md", track="./csv_tracker.py:CsvTracker")
    names = {line.split(",")[1] for line in (run.path / "numbers.csv").read_text().splitlines()}
    assert {"a/test/fused/accuracy", "a/train/local/loss", "mean/test/fused/loss"} <= names


def test_every_page_has_a_file_that_is_tried():
    pages = {page.name for page in PAGES.glob("*.md")} - {"index.md"}
    tried = {page for page in pages if f'"{page}"' in Path(__file__).read_text("utf-8")}
    assert tried == pages == {page.name for page in PAGES.glob("*.md") if FILE.search(page.read_text("utf-8"))}


def test_the_other_network_of_the_page_has_two_parts(write):
    text = (PAGES / "model.md").read_text("utf-8")
    names = {}
    exec(re.search(r"```python\n(from torch import nn\n\n\nclass TwoParts.*?)```", text, re.DOTALL).group(1), names)
    planned = fedtrain.plan(clients=draw_clients(), model=names["TwoParts"], method="fedper")
    assert planned.model_summary.shared.places == ("features",)
