"""Pooling first changes no bit."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedtrain.federated.fast_path.pooling import move_pooling_before_relu
from fedtrain.models import build_alexnet, build_cifar_net, build_digits_net


@given(
    window=st.sampled_from([(2, 2), (3, 2), (3, 1)]),
    values=st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), min_size=72, max_size=72),
    seed=st.integers(0, 99),
)
def test_the_same_outputs_and_gradients_with_ties_and_zeros(window, values, seed):
    after, before = (nn.Sequential(nn.Identity(), nn.ReLU(), nn.MaxPool2d(*window)) for _ in range(2))
    move_pooling_before_relu(before)
    assert [type(layer) for layer in before] == [nn.Identity, nn.MaxPool2d, nn.ReLU]
    found = []
    for module in (after, before):
        x = torch.tensor(values).reshape(2, 1, 6, 6).requires_grad_()
        y = module(x)
        y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(seed)))
        found += [y, x.grad]
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])


@pytest.mark.parametrize(("make", "pools"), [(build_digits_net, 2), (build_cifar_net, 2), (build_alexnet, 3)])
def test_it_is_found_in_every_network_and_no_name_changes(make, pools):
    with torch.device("meta"):
        plain = make(10)
    quick = copy.deepcopy(plain)
    move_pooling_before_relu(quick)
    assert list(quick.state_dict()) == list(plain.state_dict())
    kinds = [type(layer) for layer in quick.features]
    assert sum(kinds[i : i + 2] == [nn.MaxPool2d, nn.ReLU] for i in range(len(kinds))) == pools
    assert not any(kinds[i : i + 2] == [nn.ReLU, nn.MaxPool2d] for i in range(len(kinds)))
