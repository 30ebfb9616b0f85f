"""``import fedtrain``: what the command line can do, a few lines of Python can, with the same bits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import fedtrain
from cli.main import main
from fedtrain.backends.serial import SerialBackend
from fedtrain.config.local import LocalSettings
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.server import federate
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")

TINY = {
    "dataset": "digits",
    "data": "standin",
    "model": "two-layer",
    "settings": {"model.width": 8, "data.percent": 0.02},
    "threads": 1,
    "rounds": 2,
}
SAME = ["--dataset", "digits", "--data", "standin", "--model", "two-layer", "--set", "model.width=8"]
SAME += ["--set", "data.percent=0.02", "--threads", "1", "--rounds", "2"]


class MyNet(nn.Module):
    """A network of a user's own, which asks for what it needs to know."""

    def __init__(self, classes, shape):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(shape[0], 6), nn.BatchNorm1d(6), nn.ReLU())
        self.head = nn.Linear(6, classes)

    def forward(self, x):
        return self.head(self.features(x))


def make_clients(names=("north", "south"), dim=4, classes=3, kind=torch.tensor):
    draw = np.random.default_rng(0)
    clients = []
    for name in names:
        y = draw.integers(classes, size=60)
        x = draw.standard_normal((60, dim)) + y[:, None]
        pairs = {"train": (kind(x[:40]), kind(y[:40])), "test": (kind(x[40:]), kind(y[40:]))}
        clients.append(fedtrain.ClientData.from_arrays(name, **pairs))
    return clients


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fedtrain.train(**TINY, method="fedco2", out=tmp_path_factory.mktemp("library") / "run", quiet=True)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    clients = make_clients()
    how = {"clients": clients, "model": MyNet, "method": fedtrain.FedBN(), "threads": 1, "rounds": 3, "lr": 0.1}
    return fedtrain.train(**how, out=tmp_path_factory.mktemp("own") / "run", quiet=True), clients


# --- the same as the command line


def test_a_run_has_the_bits_of_the_command_line(run, tmp_path):
    assert main(["train", *SAME, "--method", "fedco2", "--json", "--out", str(tmp_path / "cli")]) == 0
    for name in ("metrics.jsonl", "config.toml"):
        assert (run.path / name).read_bytes() == (tmp_path / "cli" / name).read_bytes()
    one, other = (path.joinpath("checkpoints/last.safetensors") for path in (run.path, tmp_path / "cli"))
    states = [fedtrain.load_run(path.parents[1]).trained.state for path in (one, other)]
    assert all(torch.equal(states[0].message.shared[k], v) for k, v in states[1].message.shared.items())
    assert {**run.summary, "seconds": 0} == {**fedtrain.load_run(tmp_path / "cli").summary, "seconds": 0}


def test_it_is_resumed_to_the_same_bits(run, tmp_path):
    first = fedtrain.train(**{**TINY, "rounds": 1}, method="fedco2", out=tmp_path / "run", quiet=True)
    again = fedtrain.train(resume=first.path, rounds=2, quiet=True)
    assert again.path == first.path
    assert (again.path / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()


def test_several_processes_give_the_same(run, tmp_path):
    other = fedtrain.train(**TINY, method="fedco2", nproc=2, out=tmp_path / "run", quiet=True)
    assert (other.path / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()
    assert other.config.machine.backend == "distributed"


def test_what_cannot_go_to_other_processes_is_refused(tmp_path):
    for more in ({"clients": make_clients()}, {"method": fedtrain.FedBN()}, {"callbacks": [fedtrain.Callback()]}):
        with pytest.raises(InputError, match="cannot be handed to other processes; start your own script"):
            fedtrain.train(nproc=2, out=tmp_path / "run", **more)
    with pytest.raises(InputError, match="nproc is for backend distributed"):
        fedtrain.train(nproc=2, backend="serial", out=tmp_path / "run")
    with pytest.raises(InputError, match="backend distributed needs its processes"):
        fedtrain.train(**TINY, backend="distributed", out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_plan_trains_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = fedtrain.plan(**TINY, method="fedper", load_images=False)
    assert plan.config.method == fedtrain.FedPer()
    assert plan.config.server.rounds == 2
    assert plan.seconds > 0
    assert plan.model_summary.traffic.up.total > 0
    assert list(tmp_path.iterdir()) == []


def test_threads_are_as_before_afterwards(tmp_path):
    before = torch.get_num_threads()
    fedtrain.train(**{**TINY, "threads": before + 1, "rounds": 1}, out=tmp_path / "run", quiet=True)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"round": 3}, "unknown option 'round'; did you mean 'rounds'"),
        ({"settings": {"local.lrr": 1}}, "unknown key 'lrr'.*did you mean 'lr'"),
        ({"settings": {"lr": 1}}, "setting 'lr' has no section"),
        ({"method": "fedbm"}, "unknown method 'fedbm'; did you mean 'fedbn'"),
        ({"model": "vgg11"}, "there are digits, alexnet, cifar, two-layer"),
        ({"resume": "nowhere"}, "no run is here to go on with"),
        ({"model": "own"}, "give the function or class that builds it"),
    ],
)
def test_mistakes_name_the_way_out(wrong, words):
    with pytest.raises(InputError, match=words):
        fedtrain.plan(**{**TINY, **wrong})


def test_it_is_quiet_when_asked_and_speaks_otherwise(tmp_path, capsys):
    fedtrain.train(**{**TINY, "rounds": 1}, out=tmp_path / "quiet", quiet=True)
    assert capsys.readouterr() == ("", "")
    fedtrain.train(**{**TINY, "rounds": 1}, out=tmp_path / "loud")
    shown = capsys.readouterr().out
    assert "STAND-IN DATA" in shown
    assert "round 1/1  loss " in shown


# --- a run


def test_accuracy_is_that_of_the_rows(run):
    table = run.accuracy()
    last = {(r["client"], r["branch"]): r["accuracy"] for r in run.rows if r["round"] == 2 and r["split"] == "test"}
    assert {(client, branch): table[client][branch] for client in table for branch in table[client]} == last
    assert table.mean["fused"] == pytest.approx(np.mean([table[client]["fused"] for client in run.clients]))
    assert f"{100 * table.mean['fused']:.1f}" in repr(table)
    assert "<td>svhn</td>" in table._repr_html_() == run._repr_html_()
    with pytest.raises(InputError, match="no result by rule 'windo'"):
        run.accuracy("windo")


def test_the_model_of_a_client_says_what_was_evaluated(run):
    data = fedtrain.training.plan(**TINY).experiment.federation
    svhn = next(client for client in data.clients if client.name == "svhn").test
    right = (run.model("svhn")(svhn.inputs).argmax(-1) == svhn.labels).float().mean()
    assert float(right) == pytest.approx(run.accuracy()["svhn"]["fused"])
    said = run.predict("svhn", svhn.inputs[:3])
    assert said.classes == [str(int(k)) for k in run.model("svhn")(svhn.inputs[:3]).argmax(-1)]
    assert next(iter(said[0])) == said.classes[0]
    assert sum(said[0].values()) == pytest.approx(1)
    assert set(run.model("svhn").compute_branches(svhn.inputs[:2])) == {"fused", "online", "offline"}
    with pytest.raises(InputError, match="did you mean 'svhn'"):
        run.model("svnh")


def test_evaluating_again_gives_the_same_rows(run):
    last = [row for row in run.rows if row["round"] == 2 and row["split"] == "test"]
    assert run.evaluate() == fedtrain.evaluate(run.path) == last


def test_figures_and_pages(run, tmp_path):
    assert len(run.plot().axes) >= 6
    assert "Fed-CO2" in run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"not overwritten|already"):
        run.report(tmp_path / "page.html")


def test_two_runs_are_compared(run, tmp_path):
    other = fedtrain.train(**TINY, method="fedbn", out=tmp_path / "run", quiet=True)
    found = fedtrain.compare(other, run.path)
    difference = run.accuracy().mean["fused"] - other.accuracy().mean["fused"]
    assert found.mean_difference == pytest.approx(difference)
    assert "FedBN" in repr(found)
    assert "<th>Fed-CO2</th>" in found._repr_html_()


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run is here"):
        fedtrain.load_run(tmp_path)


# --- clients, networks and methods of one's own


def test_own_clients_and_networks_train_as_by_hand(own):
    run, clients = own
    local = LocalSettings(lr=0.1, batch_size=32)
    trainer = ClientTrainer(fedtrain.FedBN(), lambda: MyNet(3, (4,)), 3, local=local, seed=1)
    backend = SerialBackend(trainer, clients)
    *_, last = federate(backend, backend.initial_broadcast(), 3, seed=1)
    scores = backend.evaluate(last.message, ["test"])
    assert {name: run.accuracy()[name]["fused"] for name in run.clients} == {
        name: each["test"]["fused"].accuracy for name, each in scores.items()
    }


def test_own_runs_can_be_opened_resumed_and_evaluated(own, tmp_path):
    run, clients = own
    assert run.evaluate(clients=clients) == [row for row in run.rows if row["round"] == 3]
    again = fedtrain.load_run(run.path, model=MyNet)
    x = clients[0].test.inputs[:5]
    assert torch.equal(again.model("north")(x), run.model("north")(x))
    with pytest.raises(InputError, match=r"model=\.\.\."):
        fedtrain.load_run(run.path).model("north")
    with pytest.raises(InputError, match="give them again: clients="):
        fedtrain.load_run(run.path, model=MyNet).evaluate()
    with pytest.raises(InputError, match="give them again: clients="):
        fedtrain.train(resume=run.path, model=MyNet, rounds=4)
    with pytest.raises(InputError, match="other data"):
        fedtrain.train(resume=run.path, model=MyNet, rounds=4, clients=make_clients(dim=4)[:1] + make_clients()[:0])
    run.report(tmp_path / "page.html")


def test_numpy_arrays_and_tensors_are_the_same(own):
    _, clients = own
    other = make_clients(kind=np.asarray)
    assert [one.fingerprint for one in other] == [one.fingerprint for one in clients]
    assert clients[0].train.inputs.dtype == torch.float64


def test_without_a_model_own_clients_get_two_layers(tmp_path):
    run = fedtrain.train(clients=make_clients(), rounds=1, threads=1, out=tmp_path / "run", quiet=True)
    assert run.config.model.name == "two-layer"
    assert run.config.method == fedtrain.FedCO2()


ARRAYS = (np.zeros((2, 4)), np.zeros(2))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: {"clients": []}, "clients is empty"),
        (lambda: {"clients": make_clients(("a", "a"))}, "two clients are called 'a'"),
        (lambda: {"clients": [*make_clients(("a",)), *make_clients(("b",), dim=5)]}, "client b, train: inputs are"),
        (lambda: {"clients": make_clients(), "classes": ["x", "y"]}, "a label is 2, and 2 classes are named"),
        (lambda: {"clients": make_clients(), "dataset": "digits"}, "dataset contradicts clients"),
        (lambda: {"clients": make_clients(), "model": lambda width: None}, "needs width, which nobody gives it"),
        (
            lambda: {"clients": [fedtrain.ClientData("a", train=ARRAYS, test=ARRAYS)]},
            r"client a, train: a tuple .*from_",
        ),
        (lambda: {"clients": [ARRAYS]}, "clients holds a tuple; make each with"),
        (lambda: {"clients": [nan_client()]}, "client .*, train: X\\[.*\\] is nan; replace or drop"),
        (lambda: {"clients": [fedtrain.ClientData("a", *two_samples(torch.tensor([0.5, 1.0])))]}, "class numbers"),
    ],
)
def test_wrong_clients_are_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        fedtrain.plan(**wrong())


def nan_client():
    (client,) = make_clients(("a",))
    client.train.inputs[0, 0] = float("nan")
    return client


def two_samples(labels):
    return fedtrain.Samples(torch.zeros(2, 4), labels), fedtrain.Samples(torch.zeros(2, 4), labels)


# --- callbacks


class Recorder(fedtrain.Callback):
    def __init__(self):
        self.seen = []

    def on_run_start(self, start):
        self.seen.append(("run start", start.rounds_done))

    def on_round_start(self, round):
        self.seen.append(("round start", round))

    def on_evaluation(self, round, rows):
        self.seen.append(("evaluation", round, len(rows)))

    def on_round_end(self, progress):
        self.seen.append(("round end", progress.round))

    def on_checkpoint(self, round, path):
        assert path.exists()
        self.seen.append(("checkpoint", round))

    def on_run_end(self, folder, summary):
        assert not (folder.path / "summary.json").exists()
        self.seen.append(("run end", summary["rounds"]))

    def on_run_stop(self, error):
        self.seen.append(("run stop", type(error).__name__))


def test_callbacks_are_told_everything_in_order(tmp_path):
    watch = Recorder()
    fedtrain.train(**TINY, eval_every=2, callbacks=[watch], out=tmp_path / "run", quiet=True)
    assert watch.seen == [
        ("run start", 0), ("round start", 1), ("round end", 1), ("round start", 2), ("evaluation", 2, 15),
        ("round end", 2), ("checkpoint", 2), ("run end", 2),
    ]  # fmt: skip


def test_a_callback_that_fails_stops_a_run_that_can_go_on(run, tmp_path):
    class Failing(Recorder):
        def on_round_end(self, progress):
            super().on_round_end(progress)
            raise ValueError("mine")

    watch = Failing()
    with pytest.raises(ValueError, match="mine"):
        fedtrain.train(**TINY, method="fedco2", callbacks=[watch], out=tmp_path / "run", quiet=True)
    assert watch.seen[-2:] == [("checkpoint", 1), ("run stop", "ValueError")]
    watch = Recorder()
    again = fedtrain.train(resume=tmp_path / "run", callbacks=[watch], quiet=True)
    assert watch.seen[0] == ("run start", 1)
    assert (again.path / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()


# --- the package


def test_all_public_names_are_there_and_importing_is_light():
    assert all(getattr(fedtrain, name) is not None for name in fedtrain.__all__)
    assert set(fedtrain.__all__) == {name for names in fedtrain.HOMES.values() for name in names}
    with pytest.raises(AttributeError, match="no attribute 'teach'"):
        fedtrain.teach  # noqa: B018 - it is refused
    code = "import sys, fedtrain; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
