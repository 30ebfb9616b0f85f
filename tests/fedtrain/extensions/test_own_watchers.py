"""Callbacks, trackers, optimisers, aggregators, data sets of strangers: used by name, recorded, refused in a line."""

import pytest
import torch

import fedtrain
from cli.main import main
from fedtrain.errors import TrainingError
from fedtrain.extensions.errors import ExtensionError
from fedtrain.runs.callbacks import build_callbacks
from fedtrain.trackers import build_tracker
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")

HEAD = """from dataclasses import dataclass
from typing import ClassVar
import torch
import fedtrain
from fedtrain.aggregators import average_states
from fedtrain.trackers import Tracker

"""
WATCH = """class Watch(fedtrain.Callback):
    def on_round_end(self, progress):
        seen.append(progress.round)
seen = []
"""
SIGN = '''class SignSGD(torch.optim.Optimizer):
    """w - lr sign(gradient)."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad.sign(), alpha=group["lr"])
'''
HALF = """@dataclass(frozen=True)
class Halfway(fedtrain.Aggregator):
    share: float = 0.5
    title: ClassVar[str] = "halfway"

    def combine(self, replies):
        mean = average_states(replies.states, replies.weights)
        for name in replies.parameters:
            mean[name] = torch.lerp(replies.before[name], mean[name], self.share)
        return fedtrain.Aggregate(mean)
"""
LOAD = """def load():
    chance = torch.Generator().manual_seed(0)
    def draw(n):
        return torch.randn(n, 6, generator=chance), torch.arange(n) % 3
    names = ("north", "south")
    return [fedtrain.ClientData.from_arrays(name, train=draw(12), test=draw(6)) for name in names], ["x", "y", "z"]
"""


@pytest.fixture
def train(toy, tmp_path):
    """A tiny run."""

    def now(out="run", **more):
        how = {"clients": toy.build_clients(), "model": toy.build_net, "rounds": 1, "batch_size": 8, "quiet": True}
        return fedtrain.train(method="fedavg", out=tmp_path / out, **(how | more))

    return now


def kinds(run):
    return {one["kind"]: one["name"] for one in run.manifest["extensions"]} | {}


def test_a_callback_by_reference_class_or_instance_is_told(write, train):
    write("watch_a.py", HEAD + WATCH)
    run = train(callbacks=["./watch_a.py:Watch"])
    import watch_a

    assert watch_a.seen == [1]
    assert kinds(run)["callback"] == "watch_a:Watch"
    plain = train("plain", callbacks=[watch_a.Watch, watch_a.Watch()])
    assert watch_a.seen == [1, 1, 1]
    assert plain.rows == run.rows  # who watches changes nothing


def test_a_plug_in_is_a_callback_too(write, install):
    write("watch_b.py", HEAD + WATCH)
    install("callback", ("watcher", "watch_b:Watch"))
    assert type(build_callbacks(["watcher"])[0]).__name__ == "Watch"


def test_a_changed_callback_is_no_other_run(write, train, toy, forget, capsys):
    write("watch_c.py", HEAD + WATCH)
    train(callbacks=["watch_c:Watch"])
    forget()
    write("watch_c.py", HEAD + WATCH + "# changed\n")
    how = {"clients": toy.build_clients(), "model": toy.build_net, "rounds": 2}
    fedtrain.train(resume="run", callbacks=["./watch_c.py:Watch"], **how)
    assert "has changed" not in capsys.readouterr().out


def test_an_optimiser_by_reference_and_by_class(write, train, forget):
    write("sign_a.py", HEAD + SIGN)
    run = train(optimizer="sign_a:SignSGD", momentum=0)
    assert run.config.local.optimizer == kinds(run)["optimizer"] == "sign_a:SignSGD"
    import sign_a

    assert train("other", optimizer=sign_a.SignSGD, momentum=0).rows == run.rows
    start, end = (run.trained.trainer.initial_broadcast(["b"]).shared, run.trained.state.message.shared)
    steps = (end["head.3.bias"] - start["head.3.bias"]) / run.config.local.lr
    assert not torch.allclose(steps, torch.zeros_like(steps))
    with pytest.raises(InputError, match=r"sign_a:SignSGD has none; set local.momentum = 0"):
        train("third", optimizer="sign_a:SignSGD", momentum=0.9)
    forget()
    with pytest.raises(InputError, match="optimizer sign_a:SignSGD is code outside fedco2"):
        fedtrain.load_run(run.path).config  # noqa: B018
    assert fedtrain.load_run(run.path, optimizer="./sign_a.py:SignSGD").config.local.lr == run.config.local.lr


def test_a_run_with_an_own_aggregator_is_opened_by_who_names_it(write, train, forget):
    write("half_a.py", HEAD + HALF)
    run = train(aggregator="half_a:Halfway", settings={"aggregator.share": 0.25})
    assert kinds(run)["aggregator"] == "half_a:Halfway"
    forget()
    opened = fedtrain.load_run(run.path, aggregator="./half_a.py:Halfway")
    assert opened.config.aggregator.share == 0.25


def test_a_data_set_by_reference_can_be_skewed_and_evaluated(write, train, forget, capsys):
    write("data_a.py", HEAD + LOAD)
    how = {"dataset": "./data_a.py:load", "clients": None, "model": "mlp", "batch_size": 4}
    run = train(**how)
    assert run.config.data.dataset == kinds(run)["dataset"] == "data_a:load"
    assert {row["client"] for row in run.rows} == {"north", "south"}
    assert run.manifest["data"]["classes"] == ["x", "y", "z"]
    assert len(fedtrain.plan(dataset="data_a:load", skew="iid", clients=3).experiment.federation.clients) == 3
    forget()
    assert main(["evaluate", str(run.path)]) == 2
    assert "name it yourself (--dataset)" in capsys.readouterr().err
    assert main(["evaluate", str(run.path), "--dataset", "data_a:load"]) == 0
    forget()
    write("data_a.py", HEAD + LOAD.replace("manual_seed(0)", "manual_seed(1)"))
    with pytest.raises(InputError, match="does not give what the run was planned with"):
        fedtrain.train(resume=run.path, dataset="./data_a.py:load", rounds=2, quiet=True)


def test_a_tracker_by_reference(write, train):
    write(
        "csv_a.py",
        HEAD
        + """class Lines(Tracker):
    def open(self, folder, settings, rounds_done):
        self.file = (folder.path / "lines").open("a")

    def log(self, numbers, round):
        self.file.write("".join(f"{name} {value}\\n" for name, value in numbers.items()))

    def close(self, *, finished):
        self.file.close()
""",
    )
    run = train(track="csv_a:Lines")
    assert "b/test/fused/accuracy" in (run.path / "lines").read_text()
    assert kinds(run)["tracker"] == "csv_a:Lines"


BROKEN = {
    "class A(fedtrain.Callback):\n    def __init__(self, path): ...": "bad_a.py:8: TypeError: A.__init__() missing 1",
    "class A(fedtrain.Callback):\n    def on_round_end(self): ...": (
        "(bad_a.py:9): on_round_end(self) cannot be called as it is to be; write on_round_end(self, progress)"
    ),
    "class A: ...": "is no fedtrain.Callback; name a subclass of it, or an instance",
    "A = 3": "is no fedtrain.Callback",
    "import nothing_of_this_name": "bad_a.py:8: ModuleNotFoundError: No module named 'nothing_of_this_name'",
    "B = 3": "bad_a.py has no 'A'",
    "def A(:": "bad_a.py:8: SyntaxError",
}


@pytest.mark.parametrize(("source", "said"), BROKEN.items(), ids=range(len(BROKEN)))
def test_what_cannot_be_a_callback_is_refused_with_its_place(write, source, said):
    write("bad_a.py", HEAD + source)
    with pytest.raises(ExtensionError) as caught:
        build_callbacks(["bad_a:A"])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_a_tracker_is_refused_with_its_place(write, forget):
    write("bad_b.py", HEAD + "class A(Tracker): ...\nclass B: ...\nclass C(Tracker):\n    def log(self): ...")
    with pytest.raises(ExtensionError, match=r"bad_b:A \(bad_b.py:8\) does not define close, log, open"):
        build_tracker("bad_b:A")
    with pytest.raises(ExtensionError, match=r"bad_b:B is no subclass of fedtrain.trackers.Tracker"):
        build_tracker("bad_b:B")
    with pytest.raises(ExtensionError, match="does not define close, open"):
        build_tracker("bad_b:C")


AGGREGATORS = {
    HALF.replace("        return fedtrain.Aggregate(mean)", "        return mean"): (
        TrainingError,
        "(bad_c.py:8): combine gives an instance of dict; return fedtrain.Aggregate(shared)",
    ),
    HALF.replace("return fedtrain", "return replies.nothing"): (ExtensionError, "bad_c.py:17: AttributeError"),
    HALF.replace("combine(self, replies)", "combine(self)"): (ExtensionError, "write combine(self, replies)"),
    HALF.replace("torch.lerp(", "float('nan') * torch.lerp("): (TrainingError, "is not finite"),
    HALF.replace("self.share)", "self.share)[None]"): (TrainingError, "is torch.float32 (1, "),
    HALF.replace("@dataclass(frozen=True)\n", ""): (ExtensionError, "is no dataclass; write @dataclass(frozen=True)"),
    "Halfway = 3": (ExtensionError, "is an instance of int; name a subclass of fedtrain.Aggregator"),
}


@pytest.mark.parametrize(("source", "wrong"), AGGREGATORS.items(), ids=range(len(AGGREGATORS)))
def test_what_cannot_be_an_aggregator_is_refused(write, train, source, wrong):
    write("bad_c.py", HEAD + source)
    kind, said = wrong
    with pytest.raises(kind) as caught:
        train(aggregator="bad_c:Halfway")
    assert said in str(caught.value)


OPTIMIZERS = {
    SIGN.replace("lr=0.01", "speed=0.01").replace('{"lr": lr}', "{}"): "bad_d.py:8) takes no lr",
    SIGN.replace("lr=0.01", "lr, nerve"): "needs nerve, which no setting is for; give defaults to them",
    SIGN.replace("super()", "self.nothing or super()"): "optimizer bad_d:SignSGD failed: bad_d.py:12: AttributeError",
    "SignSGD = 3": "optimizer bad_d:SignSGD is no subclass of torch.optim.Optimizer",
}


@pytest.mark.parametrize(("source", "said"), OPTIMIZERS.items(), ids=range(len(OPTIMIZERS)))
def test_what_cannot_be_an_optimiser_is_refused_with_its_place(write, train, source, said):
    write("bad_d.py", HEAD + source)
    with pytest.raises(ExtensionError) as caught:
        train(optimizer="bad_d:SignSGD", momentum=0)
    assert said in str(caught.value)


DATA = {
    "def load(): ...": "(bad_e.py) gives an instance of NoneType; return a list of fedtrain.ClientData",
    "load = 3": "is an instance of int; name a function that returns clients",
    "def load():\n    open('/nowhere')": "failed: bad_e.py:9: FileNotFoundError",
    LOAD.replace('names = ("north", "south")', 'names = ("north", "north")'): "two clients are called 'north'",
    LOAD.replace("arange(n) % 3", "arange(n) % 4"): "a label is 3, and 3 classes are named",
    LOAD.replace("randn(n, 6, generator=chance)", "randn(n, 6, generator=chance).log()"): "replace or drop values",
    LOAD.replace('("north", ', '("a/b", '): "cannot be the name of a file",
}


@pytest.mark.parametrize(("source", "said"), DATA.items(), ids=range(len(DATA)))
def test_what_cannot_be_a_data_set_is_refused_with_its_place(write, source, said):
    write("bad_e.py", HEAD + source)
    with pytest.raises(ExtensionError) as caught:
        fedtrain.plan(dataset="bad_e:load")
    assert said in str(caught.value)


def test_an_error_of_a_callback_is_one_line_and_debug_shows_where(write, capsys):
    write(
        "boom.py", HEAD + LOAD + "class Boom(fedtrain.Callback):\n    def on_round_end(self, progress):\n        1 / 0"
    )
    how = ["--dataset", "./boom.py:load", "--rounds", "1", "--method", "fedavg", "--callback", "boom:Boom"]
    assert main(["train", *how, "--out", "one"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "callback boom:Boom failed: boom.py:16: ZeroDivisionError: division by zero" in said
    assert len(said.splitlines()) == 1
    assert main(["--debug", "train", *how, "--out", "two"]) == 2
    assert "Traceback" in capsys.readouterr().err
