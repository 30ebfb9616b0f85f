"""The networks have the shapes and parameter counts of the reference, at either cut."""

import pytest
import torch
from torch import nn

from fedtrain.models import build_alexnet, build_cifar_net, build_digits_net
from fedtrain.parameters import all_entries, batch_norm_entries


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def build(make, **options):
    with torch.device("meta"):  # shapes only: AlexNet has 57 million weights
        return make(**options)


@pytest.mark.parametrize(
    ("make", "options", "total"),
    [
        (build_digits_net, {"dense_norm": True}, 14_219_210),
        (build_digits_net, {"dense_norm": False}, 14_214_090),
        (build_alexnet, {"dense_norm": True}, 57_063_498),
        (build_alexnet, {"dense_norm": False}, 57_047_114),
        (build_cifar_net, {"norm": False}, 121_182),
        (build_cifar_net, {"norm": True}, 121_686),
        (build_cifar_net, {"classes": 100, "norm": False}, 128_832),
        (build_cifar_net, {"classes": 100, "norm": True}, 129_336),
    ],
)
@pytest.mark.parametrize("cut", ["conv", "last"])
def test_parameter_counts(make, options, total, cut):
    assert count(build(make, split_at=cut, **options)) == total


@pytest.mark.parametrize(
    ("make", "features", "head", "affine"),
    [(build_digits_net, 312_768, 13_906_442, 5_632), (build_alexnet, 2_472_000, 54_591_498, 18_688)],
)
def test_the_cut_after_the_convolutions(make, features, head, affine):
    net = build(make)
    assert (count(net.features), count(net.head)) == (features, head)
    entries = net.state_dict()
    assert sum(entries[name].numel() for name in batch_norm_entries(net, stats=False)) == affine
    shared = frozenset(dict(net.named_parameters())) - batch_norm_entries(net)
    assert sum(entries[name].numel() for name in shared) == count(net) - affine


@pytest.mark.parametrize(("make", "inputs"), [(build_digits_net, 512), (build_alexnet, 4096), (build_cifar_net, 84)])
def test_the_cut_before_the_last_layer(make, inputs):
    head = build(make, split_at="last").head
    assert [type(layer) for layer in head] == [nn.Linear]
    assert head[0].in_features == inputs


@pytest.mark.parametrize(
    ("make", "options", "side"),
    [
        (build_digits_net, {}, 28),
        (build_alexnet, {}, 256),
        (build_cifar_net, {}, 32),
        (build_cifar_net, {"norm": False}, 32),
    ],
)
def test_images_become_logits(make, options, side):
    net = build(make, classes=7, **options)
    assert net(torch.empty(2, 3, side, side, device="meta")).shape == (2, 7)


def test_cutting_elsewhere_is_the_same_network():
    first, second = build_cifar_net(split_at="conv"), build_cifar_net(split_at="last")
    for ours, theirs in zip(second.state_dict().values(), first.state_dict().values(), strict=True):
        ours.copy_(theirs)
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first.eval()(x), second.eval()(x))


def test_without_norm_there_is_none():
    assert batch_norm_entries(build_cifar_net(norm=False)) == frozenset()
    assert len(batch_norm_entries(build_cifar_net(norm=True))) == 4 * 5
    assert batch_norm_entries(build_cifar_net()) < all_entries(build_cifar_net())
