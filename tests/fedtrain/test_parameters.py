import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedtrain.parameters import all_entries, batch_norm_entries, copy_entries, entries_under, is_finite

STATS = {"running_mean", "running_var", "num_batches_tracked"}


class Block(nn.Module):
    """Batch norm one level down, under a name that does not give it away."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)
        self.second = nn.BatchNorm2d(4)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), Block())
        self.head = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


class Impostor(nn.Module):
    """A module called "bn" that is no batch norm, and group norm, which is no batch norm either."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.Linear(3, 3)
        self.norm = nn.GroupNorm(1, 3)
        self.instance = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)


class Tied(nn.Module):
    """One batch-norm layer in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.BatchNorm1d(3)
        self.b = self.a


def test_everything_holds_parameters_and_buffers() -> None:
    net = ConvNet()
    assert all_entries(net) == {n for n, _ in net.named_parameters()} | {n for n, _ in net.named_buffers()}


def test_batch_norm_is_found_by_type_at_every_depth() -> None:
    layers = ("features.1", "features.3.second", "head.1")
    affine = {f"{layer}.{name}" for layer in layers for name in ("weight", "bias")}
    stats = {f"{layer}.{name}" for layer in layers for name in STATS}
    assert batch_norm_entries(ConvNet()) == affine | stats
    assert batch_norm_entries(ConvNet(), stats=False) == affine


@pytest.mark.parametrize("stats", [True, False])
def test_a_name_does_not_make_batch_norm(stats: bool) -> None:
    assert batch_norm_entries(Impostor(), stats=stats) == frozenset()


def test_a_layer_that_is_itself_batch_norm_or_bare_or_synchronised() -> None:
    assert batch_norm_entries(nn.BatchNorm1d(3)) == {"weight", "bias"} | STATS
    assert batch_norm_entries(nn.Sequential(nn.BatchNorm1d(3, affine=False)), stats=False) == frozenset()
    assert batch_norm_entries(nn.BatchNorm1d(3, track_running_stats=False)) == {"weight", "bias"}
    assert batch_norm_entries(nn.SyncBatchNorm(3), stats=False) == {"weight", "bias"}


def test_a_layer_in_two_places_is_named_twice() -> None:
    assert batch_norm_entries(Tied()) == all_entries(Tied())
    assert batch_norm_entries(Tied(), stats=False) == {"a.weight", "a.bias", "b.weight", "b.bias"}


def test_under_names_what_lies_below() -> None:
    net = ConvNet()
    assert entries_under(net, "features", "head") == all_entries(net) == entries_under(net, "")
    assert entries_under(net, "head.2") == {"head.2.weight", "head.2.bias"}
    assert entries_under(net, "features") & entries_under(net, "head") == frozenset()
    assert entries_under(net) == frozenset()


def test_under_stops_at_whole_names() -> None:
    net = nn.ModuleDict({"head": nn.Linear(1, 1), "head2": nn.Linear(1, 1)})
    assert entries_under(net, "head") == {"head.weight", "head.bias"}


def test_under_refuses_an_unknown_path() -> None:
    with pytest.raises(AttributeError, match="haed"):
        entries_under(ConvNet(), "haed")


def test_pick_copies() -> None:
    net = ConvNet()
    before = copy_entries(net, all_entries(net))
    kept = net.head[0].weight
    with torch.no_grad():
        kept.add_(1)
    assert not before["head.0.weight"].requires_grad
    assert torch.equal(before["head.0.weight"] + 1, kept)


def test_pick_refuses_an_unknown_name() -> None:
    with pytest.raises(KeyError, match=r"ConvNet has no entry named head\.9"):
        copy_entries(ConvNet(), frozenset({"head.9", "head.0.weight"}))


@given(st.sets(st.sampled_from(sorted(all_entries(ConvNet())))))
def test_a_part_and_its_complement_make_the_whole(names: set[str]) -> None:
    net = ConvNet()
    part, rest = copy_entries(net, frozenset(names)), copy_entries(net, all_entries(net) - names)
    assert part.keys() == names
    assert list(part) == [name for name in net.state_dict() if name in names]
    net.load_state_dict(part | rest)  # strict: neither too few nor too many


@given(
    values=st.lists(st.floats(width=32), max_size=40),
    shape=st.sampled_from([(-1,), (1, -1)]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_infinity_and_nan_are_found_wherever_they_are(values, shape, dtype):
    entry = torch.tensor(values, dtype=dtype).reshape(shape) if values else torch.empty(0, dtype=dtype)
    assert is_finite(entry) == bool(entry.isfinite().all())


def test_counters_are_finite():
    assert is_finite(torch.tensor(7))
