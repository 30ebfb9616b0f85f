"""The checker passes every method of ours, and names the law that a broken one breaks."""

import re
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fedtrain.methods import METHODS
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedper import FedPer
from fedtrain.testing import LAWS, LawBroken, check_method


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_ours_keeps_every_law(name):
    check_method(METHODS[name]).raise_failures()


@dataclass(frozen=True)
class NamesNothing(FedAvg):
    title: ClassVar[str] = "NamesNothing"

    def shared(self, module):
        return super().shared(module) | {"neck.weight"}


@dataclass(frozen=True)
class Wide(FedAvg):
    title: ClassVar[str] = "Wide"

    def branches(self, module, x, context):
        return {"model": torch.cat([module(x)] * 2, -1)}


@dataclass(frozen=True)
class Meddling(FedAvg):
    title: ClassVar[str] = "Meddling"

    def branches(self, module, x, context):
        module.head[0].weight.data.add_(1)
        return super().branches(module, x, context)


@dataclass(frozen=True)
class Dropping(FedAvg):
    title: ClassVar[str] = "Dropping"

    def loss(self, module, batch, context):
        x, y = batch
        return context.cross_entropy(module(torch.nn.functional.dropout(x)), y)


@dataclass(frozen=True)
class Remembering(FedAvg):
    """Keeps the last weights where no checkpoint finds them."""

    title: ClassVar[str] = "Remembering"

    def finish(self, module, context):
        before = getattr(module, "before", None)
        weight = module.head[0].weight.data
        module.before = weight.clone()
        if before is not None:
            weight.lerp_(before, 0.5)


@dataclass(frozen=True)
class Unlearning(FedPer):
    title: ClassVar[str] = "Unlearning"

    def loss(self, module, batch, context):
        return -super().loss(module, batch, context)


@dataclass(frozen=True)
class Branching(FedAvg):
    title: ClassVar[str] = "Branching"

    def loss(self, module, batch, context):
        found = super().loss(module, batch, context)
        return found * 2 if found.item() > 1 else found


@dataclass(frozen=True)
class Moved(FedAvg):
    scale: float = 1.0
    title: ClassVar[str] = "Moved"

    def __post_init__(self):
        object.__setattr__(self, "scale", self.scale + 1)


@pytest.mark.parametrize(
    ("method", "law", "words"),
    [
        (NamesNothing, "meta device", "shared names neck.weight"),
        (Wide, "loss and predictions", r"test_testing.py:\d+\): branches\['model'\] gives a tensor of shape \(4, 6\)"),
        (Meddling, "shared entries agree", "branches must change no entry"),
        (Dropping, "no global randomness", "the global random generator was used"),
        (Remembering, "order does not matter", "depends on who trained before"),
        (Remembering, "resume", "must be a parameter or a buffer"),
        (Unlearning, "it learns", "does the loss lead to the labels"),
        (Branching, "vmap", "data-dependent control flow"),
        (Moved, "options are serialisable", "keep __post_init__ from changing fields"),
    ],
)
def test_what_a_law_forbids_is_found_and_said(method, law, words):
    failures = {one.law: one.failure for one in check_method(method).failures}
    assert re.search(words, failures[law])


def test_a_report_has_every_law_and_raises_those_that_fail():
    report = check_method(Wide)
    assert [one.law for one in report.results] == list(LAWS)
    assert "loss and predictions" in [one.law for one in report.failures]
    assert "test_testing.py" in report.place
    with pytest.raises(LawBroken, match=r"(?s)Wide .*loss and predictions: .*branches"):
        report.raise_failures()
    check_method(FedAvg()).raise_failures()


def test_without_a_module_nothing_else_is_tried():
    assert [one.law for one in check_method(NamesNothing).failures] == ["meta device"]
