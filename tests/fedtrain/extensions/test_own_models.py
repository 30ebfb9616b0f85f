"""A stranger's network: by reference, with its head named where it has no two parts, and tried before training."""

import pytest
import torch
from torch import nn

import fedtrain
from fedtrain.extensions.errors import ExtensionError
from fedtrain.models.own import bind_model_builder, check_own_network, cut_at_head
from theory.errors import InputError

NETS = """
from torch import nn

class Plain(nn.Module):
    def __init__(self, classes, shape):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU())
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        return self.fc(self.body(x))

def make(classes, shape):
    return Plain(classes, shape)

NOT = 3
"""


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.fc(self.fc(self.body(x)))


class NotLast(Twice):
    def forward(self, x):
        return self.body(self.fc(x))


class Scaled(Twice):
    def forward(self, x):
        return 2 * self.fc(self.body(x))


class Skipping(Twice):
    """Looks at more of the head than its answer."""

    def forward(self, x):
        return self.fc(self.body(x) * (2 if isinstance(self.fc, nn.Linear) else 1))


class Tied(Twice):
    def __init__(self):
        super().__init__()
        self.body.weight = self.fc.weight

    def forward(self, x):
        return self.fc(self.body(x))


@pytest.mark.usefixtures("no_figures")
def test_a_reference_trains_like_the_object(write, toy, tmp_path, forget):
    write("nets_a.py", NETS)
    how = {
        "clients": toy.build_clients(),
        "rounds": 1,
        "batch_size": 8,
        "quiet": True,
        "method": "fedper",
        "head": "fc",
    }
    run = fedtrain.train(model="./nets_a.py:make", out=tmp_path / "one", **how)
    assert (run.config.model.name, run.config.model.head) == ("nets_a:make", "fc")
    assert {name.split(".")[0] for name in run.trained.trainer.shared_names} == {"features"}
    assert run.manifest["extensions"][0]["name"] == "nets_a:make"
    rows = run.rows
    forget()
    with pytest.raises(InputError, match="no file or message makes fedco2 load code"):
        fedtrain.load_run(run.path).trained  # noqa: B018
    assert fedtrain.load_run(run.path, model="nets_a:make").evaluate(clients=toy.build_clients())
    from nets_a import Plain

    assert fedtrain.train(model=Plain, out=tmp_path / "two", **how).rows == rows


def test_the_parts_together_are_the_network():
    """Nested too: the head may lie deep inside."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 5), nn.Sequential(nn.ReLU(), nn.Linear(5, 3)))
    x = torch.randn(4, 6)
    expected = network(x)
    cut = cut_at_head(network, "1.1")
    assert torch.equal(cut(x), expected)
    assert torch.equal(cut.head(cut.features(x)), expected)
    assert {name.split(".")[0] for name in cut.state_dict()} == {"features", "head"}
    assert len(cut.state_dict()) == 4


@pytest.mark.parametrize(
    ("network", "head", "said"),
    [
        (Twice, "fc", "a head is called once"),
        (NotLast, "fc", "a head is called once, on one tensor, and its answer must be the network's"),
        (Scaled, "fc", "its answer must be the network's"),
        (Skipping, "fc", r"head\(features\(x\)\) is another answer than that of model Skipping \(.*py:\d+\)"),
        (Tied, "fc", "has weights in common"),
        (Scaled, "neck", r"model.head is 'neck'; Scaled \(.*test_own_models.py:\d+\) has body, fc"),
    ],
)
def test_what_cannot_be_a_head_is_refused(network, head, said):
    with pytest.raises(InputError, match=said):
        check_own_network(network, 6, (6,), head)


def test_a_head_that_can_be_one_is_taken():
    class Good(Twice):
        def forward(self, x):
            return self.fc(self.body(x))

    check_own_network(Good, 6, (6,), "fc")


class Root(nn.Module):
    def forward(self, x):
        return x.sqrt()


def fails(classes, shape):
    return nn.Linear(shape[0], classes + undefined)  # noqa: F821


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (fails, r"model fails failed: .*test_own_models.py:\d+: NameError"),
        (lambda: [1], "makes an instance of list; let it return a torch.nn.Module"),
        (lambda: nn.Linear(7, 3), "fails on inputs of 6: .*RuntimeError"),
        (lambda: nn.Linear(6, 4), r"answers 2 inputs with shape \(2, 4\); give logits of shape \(2, 3\)"),
        (
            lambda: nn.Sequential(nn.Linear(6, 3), nn.LogSigmoid(), Root()),
            r"\(.*test_own_models.py:\d+\) .* not finite",
        ),
        (lambda: nn.LSTM(6, 3), "answers 2 inputs with an instance of tuple"),
    ],
)
def test_a_network_that_does_not_do_is_refused_with_its_place(build, said):
    with pytest.raises(ExtensionError, match=said):
        check_own_network(build, 3, (6,))


def test_what_the_builder_needs_is_given_or_asked_for():
    with pytest.raises(ExtensionError, match=r"model <lambda> \(.*test_own_models.py:\d+\) needs depth, which nobody"):
        bind_model_builder(lambda classes, depth: None, 3, (6,))


def test_what_is_no_builder_is_refused(write, toy):
    write("nets_b.py", NETS)
    with pytest.raises(ExtensionError, match="model nets_b:NOT is an instance of int"):
        fedtrain.plan(model="nets_b:NOT", clients=toy.build_clients())
    with pytest.raises(InputError, match=r"model.head is for networks of yours; digits has a head"):
        fedtrain.plan(dataset="digits", data="standin", model="digits", head="fc", load_images=False)
    with pytest.raises(InputError, match="unknown model 'digit'; did you mean 'digits'"):
        fedtrain.plan(dataset="digits", data="standin", model="digit", load_images=False)
