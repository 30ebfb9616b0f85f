"""The networks for data of any shape: they fit, they train on every road alike, and their flops are counted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedtrain.analysis.flops import FlopCounter, fill_with_virtual_zeros
from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import Config, ModelSettings
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from fedtrain.federated.client import ClientTrainer, Precision
from fedtrain.federated.server import federate
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.models import build_mlp, build_resnet, choose_model
from fedtrain.parameters import all_entries, norm_entries
from fedtrain.rng import fork_rng
from fedtrain.runs.experiment import build_experiment, get_model_builder
from theory.errors import InputError

NORMS = ("batch", "group", "none")
TINY = {
    "mlp": lambda norm="batch", **cut: build_mlp(5, 3, units=8, norm=norm, **cut),
    "resnet": lambda norm="batch", **cut: build_resnet((2, 7, 6), 3, channels=4, norm=norm, **cut),
}
SHAPES = {"mlp": (5,), "resnet": (2, 7, 6)}


@given(
    sides=st.tuples(st.integers(1, 300), st.integers(1, 300)), colours=st.integers(1, 5), norm=st.sampled_from(NORMS)
)
@settings(max_examples=10, deadline=None)
def test_images_of_any_size_and_channels_become_logits(sides, colours, norm):
    with torch.device("meta"):
        net = build_resnet((colours, *sides), 4, channels=4, norm=norm)
    with FlopCounter():
        assert fill_with_virtual_zeros(net)(torch.zeros(2, colours, *sides)).shape == (2, 4)


def test_a_large_image_costs_little_more_than_one_of_64_pixels():
    def cost(side):
        with torch.device("meta"):
            net = build_resnet((3, side, side), channels=4)
        with FlopCounter() as count:
            fill_with_virtual_zeros(net)(torch.zeros(1, 3, side, side))
        return count.flops

    assert cost(64) < cost(256) < 2 * cost(64)


@pytest.mark.parametrize("name", TINY)
def test_the_two_cuts_are_of_one_network(name):
    first, second = (TINY[name](split_at=cut) for cut in ("conv", "last"))
    for ours, theirs in zip(second.state_dict().values(), first.state_dict().values(), strict=True):
        ours.copy_(theirs)
    x = torch.randn(3, *SHAPES[name], generator=torch.Generator().manual_seed(0))
    assert torch.equal(first.eval()(x), second.eval()(x))
    assert [type(layer) for layer in second.head] == [nn.Linear]
    assert [type(layer) for layer in first.head] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    assert norm_entries(first.features, "batch")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", TINY)
def test_normalisation_is_of_the_kind_that_was_asked_for(name, norm):
    net = TINY[name](norm)
    found = {kind for kind in ("batch", "group", "layer", "instance") if norm_entries(net, kind)}
    assert found == {norm} - {"none"}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", TINY)
def test_flops_are_those_that_torch_counts(name, norm):
    x = torch.zeros(3, *SHAPES[name])
    with FlopCounterMode(display=False) as torchs, torch.no_grad():
        TINY[name](norm)(x)
    with FlopCounter() as ours, torch.no_grad():
        fill_with_virtual_zeros(TINY[name](norm))(x)
    assert ours.flops == torchs.get_total_flops() > 0


def build_clients(name):
    chance = torch.Generator().manual_seed(2)

    def samples(n):
        return Samples(torch.randn(n, *SHAPES[name], generator=chance), torch.arange(n) % 3)

    return [ClientData(client, samples(n), samples(4)) for client, n in (("a", 7), ("b", 6))]


@pytest.mark.parametrize(
    ("name", "norm", "method"),
    [
        ("mlp", "batch", FedCO2()),
        ("mlp", "group", FedCO2(norm="group")),
        ("resnet", "batch", FedBN()),
        ("resnet", "group", FedBN(norm="group")),
    ],
)
def test_every_road_of_training_ends_at_the_same_place(name, norm, method):
    """One after the other, with the fast path, and all clients at once."""

    def train(kind, fast_path):
        local = LocalSettings(lr=0.05, batch_size=3)
        trainer = ClientTrainer(
            method, lambda: TINY[name](norm), 3, local=local, preprocessing=Preprocessing(),
            precision=Precision(torch.float64), fast_path=fast_path,
        )  # fmt: skip
        backend = kind(trainer, build_clients(name))
        *_, last = federate(backend, backend.initial_broadcast(), 2)
        return {**last.message.shared, **{f"a {key}": value for key, value in backend.client_states["a"].items()}}

    plain = train(SerialBackend, False)
    for other in (train(SerialBackend, True), train(VmapBackend, False)):
        assert other.keys() == plain.keys()
        for key, value in plain.items():
            torch.testing.assert_close(other[key], value, rtol=1e-9, atol=1e-9)  # float64 after four steps


@pytest.mark.parametrize("norm", NORMS)
def test_inputs_are_told_apart_even_if_they_are_a_single_pixel(norm):
    """Groups of one number would normalise it to 0."""
    with fork_rng(0, "networks"):
        nets = {(1, 1, 1): build_resnet((1, 1, 1), 3, channels=8, norm=norm), (5,): TINY["mlp"](norm)}
    for shape, net in nets.items():
        x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
        assert net(x).std(0).min() > 1e-4  # without a norm a small network is nearly flat; rounding is 1e-8


# ---- the choice


def test_images_get_a_resnet_and_all_else_an_mlp():
    assert [choose_model(shape) for shape in ((3, 28, 28), (1, 300, 20), (13,), (4, 5), ())] == [
        "resnet", "resnet", "mlp", "mlp", "mlp",
    ]  # fmt: skip


@pytest.mark.parametrize("name", TINY)
def test_a_run_says_which_network_was_chosen(name):
    config = Config(model=ModelSettings(name="auto", units=8, channels=4), method=FedAvg())
    federation = Federation(tuple(build_clients(name)), ("x", "y", "z"), "toy", False, Preprocessing())
    experiment = build_experiment(config, federation)
    assert experiment.config.model.name == name
    built, wanted = experiment.get_model_builder()(), TINY[name]()
    assert {k: v.shape for k, v in built.state_dict().items()} == {k: v.shape for k, v in wanted.state_dict().items()}


def test_a_resnet_of_a_table_is_refused():
    with pytest.raises(InputError, match=r"'resnet' is for images, and an input here is of 13; .*mlp"):
        get_model_builder(ModelSettings(name="resnet"), FedAvg(), 2, (13,))


# ---- which normalisation is personal


class Mixed(nn.Module):
    """Every kind of normalisation."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)
        )
        self.head = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2))


PERSONAL = {
    "batch": ("features.1",),
    "group": ("features.2",),
    "instance": ("features.3",),
    "layer": ("head.0",),
    "all": ("features.1", "features.2", "features.3", "head.0"),
}


@pytest.mark.parametrize("kind", PERSONAL)
def test_personal_is_the_normalisation_that_is_named(kind):
    net = Mixed()
    expected = frozenset(name for name in net.state_dict() if name.rpartition(".")[0] in PERSONAL[kind])
    assert all_entries(net) - FedBN(norm=kind).shared(net) == expected
    stats = frozenset(name for name in expected if "running" in name or "tracked" in name)
    assert all_entries(net) - FedBN(norm=kind, bn_stats="shared").shared(net) == expected - stats


def test_a_network_without_the_named_kind_is_refused_with_the_way_out():
    grouped, bare = TINY["mlp"]("group"), TINY["mlp"]("none")
    with pytest.raises(InputError, match=r"FedBN keeps batch norm personal .* set method\.norm = group"):
        FedBN().check(grouped)
    with pytest.raises(InputError, match=r"FedBN keeps normalisation personal .*model\.norm = true"):
        FedBN(norm="all").check(bare)
    FedBN(norm="group").check(grouped)
