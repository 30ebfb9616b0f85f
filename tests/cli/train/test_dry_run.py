"""A dry run says what a run will be, and is quick: it looks at no image and loads nothing that it has no use for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from found_files import write_table

from cli.main import main
from fedtrain.data.datasets import DATASETS, get_dataset_info
from fedtrain.data.standin import pools
from fedtrain.data.storage import domain_file
from fedtrain.data.storage.domain_file import DomainInfo, StoredImages
from fedtrain.methods import METHODS

ROOT = Path(__file__).resolve().parents[3]
COMPILER = ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")
"""Parts of torch's compiler, or what it needs."""
UNUSED = ("scipy", "matplotlib", "jinja2", *COMPILER)
"""Modules that take long to load."""


def never(*_, **__):
    raise AssertionError("an image was looked at")


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A data folder with a small Office-Caltech10."""
    monkeypatch.setenv("FEDCO2_DATA", str(tmp_path))
    data, order = get_dataset_info("office"), np.random.default_rng(0)
    for domain, title in data.domains.items():
        sizes = {"train": 130, "test": 20}
        blocks = {
            part: StoredImages(np.zeros((n, 3, data.image_size, data.image_size), np.uint8), order.integers(0, 10, n))
            for part, n in sizes.items()
        }
        about = DomainInfo("office", domain, title, "made up", "made up", "130 + 20")
        domain_file.write_domain_file(tmp_path / "office" / f"{domain}.safetensors", about, blocks)


@pytest.mark.parametrize("name", DATASETS)
def test_no_stand_in_image_is_drawn(name, monkeypatch, capsys):
    monkeypatch.setattr(pools, "_draw_block", never)
    assert main(["train", "--dataset", name, "--data", "standin", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["standin"], plan["config"]["data"]["dataset"]) == (True, name)


def test_no_real_image_is_read(stored, monkeypatch, capsys):
    monkeypatch.setattr(domain_file, "read_images", never)
    assert main(["train", "--dataset", "office", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "Fed-CO2 on Office-Caltech10\n" in shown
    for domain in get_dataset_info("office").domains:
        assert f"{domain:<7}  62 train + 50 val, 20 test" in shown


def test_the_header_of_a_dry_run_is_that_of_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    small = ["--set", "model.name=two-layer", "--set", "model.width=8", "--set", "data.train_size=9", "--rounds", "1"]
    command = ["train", "--dataset", "office", "--data", "standin", "--method", "fedavg", *small]
    shown = []
    for more in (["--dry-run"], ["--out", str(tmp_path / "run")], ["--resume", str(tmp_path / "run"), "--dry-run"]):
        assert main([*(command if "--resume" not in more else ["train"]), *more]) == 0
        paragraphs = capsys.readouterr().out.strip().split("\n\n")
        shown.append(next(text for text in paragraphs if text.startswith("FedAvg on")))
    assert "webcam   9 train + 50 val, 100 test" in shown[0]
    assert shown[0] == shown[1] == shown[2]


def test_what_would_fail_later_is_refused_without_a_look_at_images(stored, monkeypatch, capsys):
    monkeypatch.setattr(domain_file, "read_images", never)
    assert main(["train", "--dataset", "office", "--set", "model.name=cifar", "--dry-run"]) == 2
    assert "network 'cifar' does not fit inputs of 3 x 256 x 256" in capsys.readouterr().err
    ranks = ["--backend", "distributed", "--dry-run", "--nproc"]
    assert [main(["train", "--dataset", "office", *ranks, number]) for number in ("4", "5")] == [0, 2]
    assert "5 ranks for 4 clients: some would idle; start fewer" in capsys.readouterr().err


def test_nothing_is_loaded_that_is_not_used(tmp_path):
    """Dry runs load little, and real ones that train with SGD no compiler: its loading takes as long as torch's."""
    dry = ["train", "--data", "standin", "--dry-run", "--json"]
    runs = [*([*dry, "--dataset", name] for name in DATASETS), *([*dry, "--method", name] for name in METHODS)]
    runs += [[*dry, "--set", "model.name=two-layer"], ["methods", "--json"], ["methods", "--model", "two-layer"]]
    small = ["--set", "data.percent=0.01", "--set", "model.width=8", "--rounds", "1"]
    plain = ["train", "--data", "standin", "--set", "model.name=two-layer", *small]
    real = [[*plain, "--method", "fedbn", "--momentum", "0.5", "--set", "local.max_grad_norm=1", "--out", "b"]]
    real += [["train", "--data", "standin", "--set", "model.name=digits", *small[:2], "--rounds", "1", "--out", "a"]]
    code = f"""import sys; from cli.main import main
for run in {runs}: assert main(run) == 0
dry = set(sys.modules)
for run in {real}: assert main(run) == 0
print(*dry)
print(*sys.modules)"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    loaded, loaded_in_runs = (set(line.split()) for line in done.stdout.splitlines()[-2:])
    assert "torch" in loaded
    assert not loaded.intersection(UNUSED)
    assert not loaded_in_runs.intersection(COMPILER)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], True),
        (["--set", "local.last_batch=drop"], False),
        (["--set", "model.norm=false"], False),
        (["--batch-size", "12"], False),  # leaves one sample, which is left out anyway
        (["--batch-size", "6"], False),  # all batches are small
    ],
)
def test_a_last_batch_too_small_for_batch_norm_is_told(tmp_path, capsys, options, told):
    """Basel trains on 25 patients, geneva on 19."""
    table = write_table(tmp_path / "t.csv")
    how = ["--client-column", "site", "--target", "ill", "--method", "fedavg", "--dry-run", "--batch-size", "11"]
    assert main(["train", "--dataset", str(table), *how, *options]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "basel 25 train" in shown
    words = "a last batch of 3 samples or fewer at basel: batch norm takes its statistics from them"
    assert (words in shown) == told
