"""Other people's code is called as their programs call it: here code of the same shape, that writes down its calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))  # where its scripts look for each other

from training_speed_lib.child import Task
from training_speed_lib.others import run_authors_rounds, run_pfllib_rounds

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "training_speed.py"
AUTHORS = {
    "nets/models.py": """
from torch import nn
class DigitModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.only = nn.Linear(1, 1)
""",
    "utils/methods.py": """
CALLS = []
def local_training(models, own, before, server, heads, args, loaders, steps, loss, device, a_iter):
    assert all(step.param_groups[0]["params"][0] is model.only.weight for step, model in zip(steps, models))
    x, y = next(iter(loaders[0]))
    seen = sum(len(y) for _, y in loaders[0])
    CALLS.append(("train", args.mode, a_iter, len(models), len(own), tuple(x.shape), seen))
""",
    "utils/utils.py": """
from utils.methods import CALLS
def communication(args, server, models, own, heads, before, weights):
    CALLS.append(("average", sum(weights)))
    return server, models
def test(k, model, own, heads, loader, loss, device, args):
    CALLS.append(("test", k, own is not None, sum(len(y) for _, y in loader)))
""",
}
PFLLIB = {
    "system/flcore/servers/serverbn.py": """
import numpy as np
CALLS = []
class FedBN:
    def __init__(self, args, times):
        with np.load("../dataset/here/train/0.npz", allow_pickle=True) as held:
            data = held["data"].tolist()
        CALLS.append((args.num_clients, args.join_ratio, data["x"].shape, str(data["x"].dtype), data["y"].shape))
    def select_clients(self):
        return [self]
    def train(self):
        CALLS.append("train")
    def __getattr__(self, name):
        return lambda: CALLS.append(name)
""",
}


@pytest.fixture
def lay_out(tmp_path, monkeypatch):
    """A folder with files; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path)

    yield write
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("nets", "utils", "flcore", "h5py"):
            del sys.modules[name]


@pytest.mark.parametrize(("method", "mode", "own"), [("fedco2", "fed-co2", 2), ("fedbn", "fedbn", 0)])
def test_the_authors_code_trains_averages_and_tests(method, mode, own, lay_out):
    task = Task("w1", method, 2, 1, small=True, samples=40)
    begun = []
    spec = task.workload_spec
    run_authors_rounds(task.build_experiment(), spec.splits, 2, begun.append, lay_out(AUTHORS))
    assert begun == [0, 1]
    calls = sys.modules["utils.methods"].CALLS
    tests = [("test", k, bool(own), n) for n in (40, 20) for k in (0, 1)]
    assert calls == [
        call
        for round in (0, 1)
        for call in [("train", mode, round, 2, own, (32, 3, 28, 28), 40), ("average", 1.0), *tests]
    ]


def test_pfllib_finds_its_data_and_makes_its_rounds(lay_out):
    task = Task("w3", "fedbn", 2, 1, small=True, rival="pfllib", samples=70)
    work, here, begun = task.build_experiment(), Path.cwd(), []
    assert (work.config.local.momentum, work.config.local.weight_decay, work.config.local.last_batch) == (0, 0, "drop")
    run_pfllib_rounds(work, task.workload_spec.splits, 2, begun.append, lay_out(PFLLIB))
    assert (begun, Path.cwd()) == ([0, 1], here)
    round = ["send_models", "train", "receive_models", "aggregate_parameters", "send_models", "test_metrics"]
    calls = sys.modules["flcore.servers.serverbn"].CALLS
    assert calls == [(40, work.config.server.participation, (70, 3, 32, 32), "float32", (70,)), *round, *round]


def test_a_rival_and_its_code_go_together():
    done = subprocess.run([sys.executable, str(SCRIPT), "--rival", "authors"], capture_output=True, text=True)
    assert (done.returncode, "--rival and --code go together" in done.stderr) == (2, True)


def test_fewer_samples_are_an_even_workload():
    spec = Task("w1", "fedbn", 1, 1, samples=64).workload_spec
    assert (spec.train, spec.test) == ((64,) * 5, (32,) * 5)
    assert spec.title == "W1 Digits: 5 clients x 64 images, 32 test images each"
