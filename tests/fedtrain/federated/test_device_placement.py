"""No GPU is needed to find a tensor that was left behind: torch's meta device holds no numbers but minds its own.

One client's half of a round is made on it, and every operation is watched: its tensors must be of one device, as a GPU
would demand. (The meta device itself lets an in-place operation with a tensor on the CPU pass.)
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedtrain.data.client_data import ClientData, Preprocessing, Samples
from fedtrain.federated.messages import Broadcast
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.models import Net

IMAGES = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "augment": True, "augment_val": True}


class OneDevice(TorchDispatchMode):
    """Refuse an operation on tensors of two devices, but for copies and numbers (0-d tensors), as a GPU does."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.ndim]
        devices = {tensor.device.type for tensor in tensors}
        if len(devices) > 1 and operation is not torch.ops.aten.copy_.default:
            raise RuntimeError(f"{operation} of tensors on more than one device: {devices}")
        return operation(*args, **(kwargs or {}))


def conv_net():
    features = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    head = [nn.Linear(196, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)]
    return Net(nn.Sequential(*features), nn.Sequential(*head))


def on_meta(toy, method, unit="pixel"):
    """A trainer on the meta device, and a client's data there."""
    samples = Samples(torch.zeros(10, 3, 16, 16, dtype=torch.uint8), torch.arange(10) % 3)
    client = ClientData("a", samples, samples, samples, noise=5.0).to("meta")
    how = Preprocessing(**IMAGES, noise_unit=unit)
    return toy.build_client_trainer(method, make=conv_net, device="meta", preprocessing=how, batch_size=10), client


def half_a_round(toy, method, round=1, unit="pixel"):
    trainer, client = on_meta(toy, method, unit)
    opening = trainer.initial_broadcast(["a", "b", "c"])
    with OneDevice():
        return trainer.train_locally(
            client, trainer.initial_client_state("a"), Broadcast(round, opening.shared, opening.peers)
        )


@pytest.mark.parametrize("round", [0, 1])
def test_training_leaves_nothing_on_the_cpu(method, round, toy):
    assert half_a_round(toy, method, round).device.type == "meta"


def test_nor_does_noise_of_the_other_unit(toy):
    assert half_a_round(toy, FedAvg(), unit="normalised").device.type == "meta"


def test_prediction_leaves_nothing_on_the_cpu(method, toy):
    trainer, client = on_meta(toy, method)
    message = trainer.initial_broadcast(["a", "b", "c"])
    with OneDevice():
        answers = trainer.predict(client, trainer.initial_client_state("a"), message, client.test.inputs)
    assert {tuple(logits.shape) for logits in answers.values()} == {(10, 3)}
    assert {logits.device.type for logits in answers.values()} == {"meta"}


@pytest.mark.parametrize("method", [FedCO2(), Copa()])
def test_heads_may_come_from_the_cpu(method, toy):
    """As over a network; the averaged entries are copied into the module in any case."""
    trainer, client = on_meta(toy, method)
    heads = toy.build_client_trainer(method, make=conv_net).initial_broadcast(["a", "b", "c"]).peers
    with OneDevice():
        loss = trainer.train_locally(
            client, trainer.initial_client_state("a"), Broadcast(1, trainer.initial_broadcast(["a"]).shared, heads)
        )
    assert loss.device.type == "meta"


# ---- that the device does find what was left behind


@dataclass(frozen=True)
class ForgottenPrior(FedAvg):
    def loss(self, module, batch, context):
        return super().loss(module, batch, context) + (module(batch[0]) + torch.zeros(3)).sum()


@dataclass(frozen=True)
class ForgottenInPlace(FedAvg):
    def loss(self, module, batch, context):
        batch[0].add_(torch.zeros(3, 1, 1))
        return super().loss(module, batch, context)


@dataclass(frozen=True)
class ForgottenIndex(FedAvg):
    def loss(self, module, batch, context):
        return super().loss(module, (batch[0], torch.arange(len(batch[0])) % 3), context)


@dataclass(frozen=True)
class ForgottenModule(FedAvg):
    def loss(self, module, batch, context):
        return super().loss(module, batch, context) + conv_net()(batch[0]).sum()


@dataclass(frozen=True)
class ForgottenHead(Copa):
    def loss(self, module, batch, context):
        return super().loss(module, batch, context) + nn.Linear(196, 3)(module.features(batch[0])).sum()


@dataclass(frozen=True)
class AskedForANumber(FedCO2):
    def loss(self, module, batch, context):
        loss = super().loss(module, batch, context)
        return loss / loss.item()


FORGETFUL = [ForgottenPrior, ForgottenInPlace, ForgottenIndex, ForgottenModule, ForgottenHead, AskedForANumber]


@pytest.mark.parametrize("method", FORGETFUL)
def test_a_tensor_on_the_cpu_is_an_error(method, toy):
    with pytest.raises((RuntimeError, NotImplementedError), match=r"device|meta"):
        half_a_round(toy, method())


def test_data_on_the_cpu_are_an_error(toy):
    trainer, client = on_meta(toy, FedAvg())
    with pytest.raises((RuntimeError, NotImplementedError), match=r"device|meta"):
        trainer.train_locally(client.to("cpu"), trainer.initial_client_state("a"), trainer.initial_broadcast(["a"]))
