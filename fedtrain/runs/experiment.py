"""A configuration brought to life: its data, its network, its clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from fedtrain.analysis.flops import FlopCounter, fill_with_virtual_zeros
from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.threads import ThreadsBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.presets import resolve_preset
from fedtrain.config.schema import Config, ModelSettings
from fedtrain.data.build import assemble_federation
from fedtrain.data.client_data import Federation
from fedtrain.data.source import LoadedDataset, load_dataset
from fedtrain.federated.client import ClientTrainer, OffloadFunction, Precision
from fedtrain.federated.server import sample_cohort
from fedtrain.methods import AnyMethod
from fedtrain.models import Net, build_alexnet, build_cifar_net, build_digits_net, build_two_layer_net
from fedtrain.runs.offload import offload
from theory.errors import InputError

ModelBuilder = Callable[..., nn.Module]
"""Builds a network with the parts ``features`` and ``head``: a module class or a function, called with ``classes`` and
``shape`` if it takes them."""
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Experiment:
    """What a run needs."""

    config: Config
    federation: Federation
    build_model: ModelBuilder | None = None
    """Builds the network if it is one of the user's own, which the configuration cannot name."""

    def get_model_builder(self) -> Callable[[], Net]:
        """Draws the networks."""
        shape = tuple(self.federation.clients[0].train.inputs.shape[1:])
        if self.build_model is not None:
            return bind_model_builder(self.build_model, len(self.federation.classes), shape)
        return get_model_builder(self.config.model, self.config.method, len(self.federation.classes), shape)

    def validate(self) -> None:
        """Refuse what would fail later: a device, a rule without data, a network that does not fit, an idle client."""
        self.config.machine.resolve_device()
        if self.config.evaluation.report == "best-by-validation" and not any(c.val for c in self.federation.clients):
            raise InputError(
                "evaluation.report is best-by-validation, and no client has validation data; set data.val_size, "
                "or evaluation.report = last"
            )
        if self.config.evaluation.test == "chosen" and not any(c.val for c in self.federation.clients):
            raise InputError(
                "evaluation.test is chosen, and no client has validation data to choose by; set data.val_size, "
                "or a larger evaluation.every"
            )
        if self.config.server.peers and not self.config.method.published:
            raise InputError(
                f"server.peers is {self.config.server.peers}, and {self.config.method.title} shows no heads to peers; "
                "leave it out"
            )
        shape = tuple(self.federation.clients[0].train.inputs.shape[1:])
        with torch.device("meta"):  # no memory, no time for weights
            trainer, network = self.build_client_trainer("meta"), self.get_model_builder()()
        try:
            with FlopCounter():
                fill_with_virtual_zeros(network)(torch.zeros(1, *shape))
        except RuntimeError:
            size = " x ".join(str(side) for side in shape)
            raise InputError(
                f"network {self.config.model.name!r} does not fit inputs of {size}; choose another model.name"
            ) from None
        for client in self.federation.clients:
            if self.config.server.on_client_failure == "stop":
                trainer.local.check_has_batches(client.name, len(client.train), bool(trainer.batch_norm_names))
            if not len(client.test):
                raise InputError(f"client {client.name}: it has no test samples; take fewer clients or raise alpha")

    def build_client_trainer(self, device: torch.device | str | None = None) -> ClientTrainer:
        """Where this experiment's clients take turns."""
        config, data = self.config, self.federation
        return ClientTrainer(
            config.method,
            self.get_model_builder(),
            len(data.classes),
            local=config.local,
            preprocessing=data.preprocessing,
            seed=config.seed,
            device=device or config.machine.resolve_device(),
            precision=Precision(DTYPES[config.machine.dtype], config.machine.amp),
            fast_path=config.machine.fast_path and config.machine.backend != "vmap",
        )

    def build_backend(self, folder: Path | None = None) -> SerialBackend:
        """All clients, in this process; what they keep on disk, if anything, is in the folder."""
        machine, server, clients = self.config.machine, self.config.server, self.federation.clients
        first = self.build_client_trainer()
        keep: OffloadFunction = partial(offload, folder=folder) if machine.client_state == "disk" else dict
        ways: dict[str, Any] = {
            "skip_failures": server.on_client_failure == "skip",
            "keep": keep,
            "peers": server.peers,
        }
        quick = machine.fast_path and first.device.type == "cpu"
        if machine.backend == "threads" or (machine.backend in ("auto", "distributed") and quick):
            chosen = len(sample_cohort([client.name for client in clients], server.participation, 0, 0))
            cores = torch.get_num_threads()
            if cores > 1 and chosen > 1:
                benches = [first, *(first.clone() for _ in range(min(chosen, cores + chosen % cores) - 1))]
                return ThreadsBackend(benches, clients, **ways)
        kind = VmapBackend if machine.backend == "vmap" else SerialBackend
        return kind(first, clients, **ways)


def plan_experiment(preset: str, given: Mapping[str, Any], root: Path | None = None) -> tuple[Config, LoadedDataset]:
    """The configuration and its data. Each depends on the other: a stand-in has shorter defaults."""
    config = resolve_preset(preset, given)
    found = load_dataset(config.data, root)
    return (resolve_preset(preset, given, standin=True) if found.standin else config), found


def build_experiment(
    config: Config, data: LoadedDataset | Federation, build_model: ModelBuilder | None = None
) -> Experiment:
    """With the clients that the configuration makes of the data, or with those that are there already."""
    federation = data if isinstance(data, Federation) else assemble_federation(config.data, data)
    made = Experiment(config, federation, build_model)
    made.validate()
    return made


def bind_model_builder(build: ModelBuilder, classes: int, shape: tuple[int, ...]) -> Callable[[], Net]:
    """A builder without arguments: the number of classes and the shape of an input are passed if it asks for them."""
    known = {"classes": classes, "shape": shape}
    try:
        parameters = inspect.signature(build).parameters.values()
    except ValueError:  # a class written in C
        parameters = ()  # type: ignore[assignment]
    needed = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    if other := [name for name in needed if name not in known]:
        raise InputError(
            f"the model needs {', '.join(other)}, which nobody gives it; let it take no arguments, or classes and shape"
        )
    bound = partial(build, **{one.name: known[one.name] for one in parameters if one.name in known})
    return cast(Callable[[], Net], bound)  # its parts are checked when it is built


def get_model_builder(
    settings: ModelSettings, method: AnyMethod, classes: int, shape: tuple[int, ...] = (3, 28, 28)
) -> Callable[[], Net]:
    """Draws networks, cut where the method wants it."""
    if settings.name == "own":
        raise InputError("this run has a network of its own; give the function or class that builds it: model=...")
    cut = method.split_at if settings.split_at == "auto" else settings.split_at
    return {
        "digits": partial(build_digits_net, classes, split_at=cut, dense_norm=settings.norm),
        "alexnet": partial(build_alexnet, classes, split_at=cut, dense_norm=settings.norm),
        "cifar": partial(build_cifar_net, classes, split_at=cut, norm=settings.norm),
        "two-layer": partial(build_two_layer_net, torch.Size(shape).numel(), classes, width=settings.width),
    }[settings.name]
