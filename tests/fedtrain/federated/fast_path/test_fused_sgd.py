"""Fused SGD is SGD, whatever the layout of a weight in memory."""

import copy

import pytest
import torch
from torch import nn

from fedtrain.config.local import LocalSettings
from fedtrain.federated.fast_path.fused_sgd import FusedSGDStep
from fedtrain.federated.sgd import SGDStep


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=str)
def test_both_come_to_the_same_weights(momentum, layout):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)).double()
    plain = plain.to(memory_format=layout)
    quick = copy.deepcopy(plain)
    x = torch.randn(5, 3, 6, 6, dtype=torch.float64).contiguous(memory_format=layout)
    for module, kind in ((plain, SGDStep), (quick, FusedSGDStep)):
        step = kind(module, LocalSettings(lr=0.1, momentum=momentum, weight_decay=0.2), [module[4].bias])
        for _ in range(4):
            step(lambda module=module: module(x).square().sum())
    for one, other in zip(plain.parameters(), quick.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert not torch.equal(plain[0].weight, torch.zeros_like(plain[0].weight))


def test_the_sgd_is_fused():
    assert FusedSGDStep(nn.Linear(2, 2), LocalSettings(), []).optimizer.fused
