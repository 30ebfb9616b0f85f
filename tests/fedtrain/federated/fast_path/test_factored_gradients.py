"""Steps whose large gradients stay factored are the plain steps, whatever a loss does with the weights."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedtrain.config.local import LocalSettings
from fedtrain.federated.fast_path import factored_gradients
from fedtrain.federated.fast_path.factored_gradients import FactoredLinear, FactoredSGDStep, replace_large_linear_layers
from fedtrain.federated.fast_path.fused_sgd import FusedSGDStep
from fedtrain.federated.sgd import SGDStep


class Twice(nn.Module):
    """A layer that is used twice, one whose weights are in the loss themselves, and a small one without bias."""

    def __init__(self):
        super().__init__()
        self.again, self.pulled, self.last = nn.Linear(5, 5), nn.Linear(5, 4), nn.Linear(4, 2, bias=False)

    def forward(self, x):
        return self.last(self.pulled(self.again(self.again(x).tanh()).tanh()).tanh())


def pair(monkeypatch_least=8):
    torch.manual_seed(0)
    plain = Twice().double()
    quick = copy.deepcopy(plain)
    before, factored_gradients.MIN_FACTORED_WEIGHTS = factored_gradients.MIN_FACTORED_WEIGHTS, monkeypatch_least
    try:
        replace_large_linear_layers(quick)
    finally:
        factored_gradients.MIN_FACTORED_WEIGHTS = before
    return plain, quick


def distance(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one.parameters(), other.parameters(), strict=True))


@given(
    shape=st.sampled_from([(3, 5), (1, 5), (2, 3, 5)]),
    decay=st.sampled_from([0.0, 0.3]),
    pull=st.sampled_from([0.0, 0.5]),
    bare=st.booleans(),
    seed=st.integers(0, 99),
)
def test_both_come_to_the_same_weights(shape, decay, pull, bare, seed):
    plain, quick = pair()
    x = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    for module, kind in ((plain, SGDStep), (quick, FactoredSGDStep)):
        start = module.pulled.weight.detach().clone() + 1
        step = kind(module, LocalSettings(lr=0.1, weight_decay=decay), [module.last.weight] if bare else [])
        for _ in range(3):
            step(
                lambda module=module, start=start: (
                    module(x).square().sum() + pull * (module.pulled.weight - start).square().sum()
                )
            )
    assert distance(plain, quick) < 1e-13


def test_the_gradient_of_a_large_layer_is_never_there():
    plain, quick = pair()
    for module, kind in ((plain, SGDStep), (quick, FactoredSGDStep)):
        kind(module, LocalSettings(), [])(lambda module=module: module(torch.ones(2, 5, dtype=torch.float64)).sum())
    assert plain.again.weight.grad is not None
    assert quick.again.weight.grad is None
    assert quick.again.bias.grad is not None
    assert not quick.again.factors  # nothing is left that would keep a batch in memory
    copy.deepcopy(quick)


def test_a_step_that_broke_off_leaves_nothing_to_the_next_client():
    plain, quick = pair()
    x = torch.ones(3, 5, dtype=torch.float64)

    def breaks(grad):
        raise RuntimeError("out of memory")

    hook = quick.again.bias.register_hook(breaks)  # when the layers above have left their factors
    with pytest.raises(RuntimeError, match="out of memory"):
        FactoredSGDStep(quick, LocalSettings(lr=0.1), [])(lambda: quick(x).sum())
    hook.remove()
    assert quick.pulled.factors
    for module, kind in ((plain, SGDStep), (quick, FactoredSGDStep)):
        kind(module, LocalSettings(lr=0.1), [])(lambda module=module: module(x).sum())
    assert distance(plain, quick) < 1e-12


def test_a_phase_that_does_not_touch_a_layer_does_not_shrink_it():
    _, quick = pair()
    before = quick.again.weight.detach().clone()
    FactoredSGDStep(quick, LocalSettings(lr=0.1, weight_decay=0.5), [])(
        lambda: quick.last(torch.ones(2, 4).double()).sum()
    )
    assert torch.equal(quick.again.weight, before)


def test_only_large_linear_layers_are_replaced_and_no_name_changes():
    plain, quick = pair(monkeypatch_least=20)
    assert {type(quick.again), type(quick.pulled)} == {FactoredLinear}
    assert type(quick.last) is nn.Linear
    assert list(plain.state_dict()) == list(quick.state_dict())
    assert quick(torch.ones(1, 5).double()).equal(plain(torch.ones(1, 5).double()))


def test_a_layer_with_two_names_stays_one_and_one_with_hooks_stays_itself(monkeypatch):
    monkeypatch.setattr(factored_gradients, "MIN_FACTORED_WEIGHTS", 0)
    shared, hooked = nn.Linear(2, 2), nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    module = nn.Sequential(shared, nn.Sequential(shared), hooked)
    replace_large_linear_layers(module)
    assert module[0] is module[1][0]
    assert isinstance(module[0], FactoredLinear)
    assert module[2] is hooked


@pytest.mark.parametrize(
    ("fast_path", "momentum", "kind"),
    [(True, 0.0, FactoredSGDStep), (True, 0.5, FusedSGDStep), (False, 0.0, SGDStep)],
)
def test_the_trainer_takes_it_where_it_holds(fast_path, momentum, kind, toy, method, monkeypatch):
    monkeypatch.setattr(factored_gradients, "MIN_FACTORED_WEIGHTS", 0)
    trainer = toy.build_client_trainer(method, fast_path=fast_path, momentum=momentum)
    assert trainer.step_class is kind
    assert any(isinstance(layer, FactoredLinear) for layer in trainer.module.modules()) == (kind is FactoredSGDStep)
