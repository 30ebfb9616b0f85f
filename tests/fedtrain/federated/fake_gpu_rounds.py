"""Rounds on a GPU that is not there, for test_fake_gpu.py: a process of its own, for torch learns of a new device.

The device is called gpu, and torch's fake tensors are on it: they have no numbers, and mind devices as CUDA does. Each
case is a round and an evaluation; what a fake tensor cannot say, its number, is made up. (A build of torch without
CUDA cannot go backward on fake tensors of the device cuda itself.)

Prints JSON: what was wrong, by case; nothing if nothing was.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.sgd import sgd as plain_sgd
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from conftest import Toy

from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.threads import ThreadsBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.data.client_data import ClientData, Preprocessing, Samples
from fedtrain.federated import aggregate, client
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.codec import entries, numbers
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS
from fedtrain.methods.base import AnyMethod
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.models import build_cifar_net

GPU = "gpu:0"
MODE = FakeTensorMode()
BACKENDS = {"serial": SerialBackend, "threads": ThreadsBackend, "vmap": VmapBackend}

CODECS = ("bfloat16", "int8", "topk:0.1", "topk:0.1+int8", "lowrank:2", "lowrank:2+float16")
"""Each way to shorten, alone and with a format of numbers; float16 is played with every method."""


class NoStream:
    """In the place of a stream of CUDA."""

    def __init__(self) -> None:
        self.waited = self.synchronized = 0

    def wait_stream(self, other: object) -> None:
        """Counted."""
        self.waited += 1

    def synchronize(self) -> None:
        """Counted."""
        self.synchronized += 1


def convert_module(
    module: nn.Module, convert: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> nn.Module:
    """What ``Module._apply`` does, by new parameters: its own way swaps contents, which fake tensors refuse."""
    made: dict[nn.Parameter, nn.Parameter] = {}  # one parameter may have two names
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                if value not in made:
                    made[value] = nn.Parameter(convert(value.detach()), value.requires_grad)
                part._parameters[name] = made[value]
        part._buffers |= {name: convert(value) for name, value in part._buffers.items() if value is not None}
    return module


def copy_fake(value: torch.Tensor, memo: dict[int, object]) -> torch.Tensor:
    """What ``deepcopy`` does, without a look at storage, of which fake tensors have none."""
    made = value.detach().clone()
    memo[id(value)] = made = nn.Parameter(made, value.requires_grad) if isinstance(value, nn.Parameter) else made
    return made


def apply_sgd(weights, gradients, momenta, **how):  # type: ignore[no-untyped-def]
    """Torch's SGD: fake tensors know the plain one, not the fused one."""
    return plain_sgd(weights, gradients, momenta, **{**how, "fused": False, "foreach": False})


@contextmanager
def pretend() -> Iterator[None]:
    """Where nothing asks for numbers, and every thread knows the mode."""

    def in_mode(work):  # type: ignore[no-untyped-def]
        def run(*args):  # type: ignore[no-untyped-def]
            with MODE:
                return work(*args)

        return run

    with (
        patch.object(FakeTensorMode, "avoid_device_init", True),  # numbers that are known are not put on the device
        patch.object(FakeTensor, "__deepcopy__", copy_fake),
        patch.object(nn.Module, "_apply", convert_module),
        patch.object(torch.Tensor, "item", lambda self: 0.5),
        patch.object(torch.Tensor, "__bool__", lambda self: False),  # nothing is out of bounds
        patch.object(client, "is_finite", lambda value: True),
        patch.object(aggregate, "is_finite", lambda value: True),
        patch.object(entries, "is_finite", lambda value: True),
        patch.object(numbers, "is_finite", lambda value: True),
        patch.object(ClientTrainer, "train", in_mode(ClientTrainer.train)),
        patch.object(ClientTrainer, "evaluate", in_mode(ClientTrainer.evaluate)),
        patch("fedtrain.federated.sgd.sgd", apply_sgd),
        patch("fedtrain.backends.vmap.stacked_clients.sgd", apply_sgd),
        patch("torch.cuda.stream", lambda stream: nullcontext()),
        patch("torch.cuda.default_stream", lambda device: NoStream()),
        MODE,
    ):
        yield


def play(method: AnyMethod, backend: str = "serial", codec: str = "none", **options: object) -> None:
    """A round and an evaluation; an error if something is wrong."""
    toy = Toy()
    trainer = toy.build_client_trainer(method, device=GPU, **options)
    trainer.codec = codec
    check(trainer, toy.build_clients()[:2], backend)


def play_images(method: AnyMethod) -> None:
    """The same on the CIFAR network, with all that is done to images."""
    how = Preprocessing((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), augment=True, augment_val=True)
    toy = Toy()
    toy.classes = 10
    trainer = toy.build_client_trainer(method, device=GPU, make=lambda: build_cifar_net(10), preprocessing=how)

    def samples() -> Samples:
        return Samples(torch.zeros(8, 3, 32, 32, dtype=torch.uint8), torch.arange(8) % 10)

    check(trainer, [ClientData(name, samples(), samples(), samples(), noise=3.0) for name in "ab"], "serial")


def check(trainer: ClientTrainer, clients: list[ClientData], backend: str) -> None:
    """A round and an evaluation; everything stays on the GPU."""
    kind, streams = BACKENDS[backend], []
    here = kind([trainer, trainer.clone()] if backend == "threads" else trainer, clients)
    if backend == "threads":
        here.streams = {one: NoStream() for one in here.trainers}
        streams = list(here.streams.values())
    begun = replace(here.initial_broadcast(), round=1)  # methods that look back do so from the second round on
    message = next(federate(here, begun, 2, codec=trainer.codec)).message
    scores = here.evaluate(message, ("train", "val", "test"))
    if set(scores) != {one.name for one in clients}:
        raise AssertionError(f"scores of {sorted(scores)}")
    for state in (message.shared, *message.peers.values(), *here.client_states.values()):
        for name, value in state.items():
            if str(value.device) != GPU:
                raise AssertionError(f"{name} is on {value.device}")
    if any(stream.waited != stream.synchronized for stream in streams) or (
        streams and not sum(stream.waited for stream in streams)
    ):
        raise AssertionError("a turn did not wait for its stream")


@dataclass(frozen=True)
class ForgottenTensor(FedAvg):
    """It leaves a tensor on the CPU, which must be found."""

    def loss(self, module, batch, context):  # type: ignore[no-untyped-def]
        """With it."""
        return super().loss(module, batch, context) + (module(batch[0]) + torch.zeros(3)).sum()


def list_cases() -> dict[str, Callable[[], None]]:
    """What is played."""
    cases: dict[str, Callable[[], None]] = {}
    for name, kind in METHODS.items():
        made = kind()
        cases[f"{name}, serial, float16"] = lambda made=made: play(made, codec="float16")  # type: ignore[misc]
        cases[f"{name}, threads"] = lambda made=made: play(made, "threads")  # type: ignore[misc]
        cases[f"{name}, vmap"] = lambda made=made: play(made, "vmap", fast_path=False)  # type: ignore[misc]
    for method in (FedCO2(), Copa()):
        cases[f"{method.title}, images"] = lambda method=method: play_images(method)  # type: ignore[misc]
    for codec in CODECS:
        cases[f"Fed-CO2, serial, {codec}"] = lambda codec=codec: play(FedCO2(), codec=codec)  # type: ignore[misc]
    cases["plain steps, clipped"] = lambda: play(FedAvg(), fast_path=False, max_grad_norm=1.0)
    for backend in BACKENDS:
        cases[f"a forgotten tensor, {backend}"] = lambda backend=backend: play(  # type: ignore[misc]
            ForgottenTensor(), backend, fast_path=False
        )
    return cases


def main() -> None:
    """Play all cases, or those whose name contains what is said."""
    _setup_privateuseone_for_python_backend("gpu")
    wrong, played = {}, 0
    with pretend():
        for name, case in list_cases().items():
            if sys.argv[1:] and sys.argv[1] not in name:
                continue
            played += 1
            try:
                case()
            except Exception as error:
                wrong[name] = str(error)[:500]
                if sys.argv[1:]:
                    traceback.print_exc(limit=-6)
    print(json.dumps({"played": played, "wrong": wrong}))


if __name__ == "__main__":
    main()
