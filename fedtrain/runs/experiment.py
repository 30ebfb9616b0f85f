"""Build what a configuration describes: its data, its network, its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from fedtrain.analysis.flops import FlopCounter, fill_with_virtual_zeros
from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.threads import ThreadsBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.presets import resolve_preset
from fedtrain.config.schema import Config, ModelSettings, parse_metrics
from fedtrain.data.build import assemble_federation
from fedtrain.data.client_data import Federation
from fedtrain.data.source import LoadedDataset, load_dataset
from fedtrain.extensions.errors import ExtensionError, explain_failure
from fedtrain.extensions.references import BUILT_IN, build_unknown_error, find_extension
from fedtrain.federated.client import ClientTrainer, OffloadFunction, Precision
from fedtrain.federated.server import sample_cohort
from fedtrain.federated.try_method import try_method
from fedtrain.methods import METHODS, AnyMethod
from fedtrain.methods.fusion import FusingMethod
from fedtrain.models import (
    Net,
    build_alexnet,
    build_cifar_net,
    build_digits_net,
    build_mlp,
    build_resnet,
    build_two_layer_net,
    choose_model,
)
from fedtrain.models.norm import NormLayer
from fedtrain.models.own import ModelBuilder, bind_model_builder, check_own_network
from fedtrain.rng import fork_rng
from fedtrain.runs.offload import offload
from theory.errors import InputError

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
        settings, classes = self.config.model, len(self.federation.classes)
        if self.build_model is not None:
            return bind_model_builder(self.build_model, classes, self.input_shape, settings.head)
        return get_model_builder(settings, self.config.method, classes, self.input_shape)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one input, without the batch."""
        return tuple(self.federation.clients[0].train.inputs.shape[1:])

    def validate(self) -> None:
        """Refuse what would fail later: a device, a rule without data, a network that does not fit, an idle client."""
        self.config.machine.resolve_device()
        if self.config.evaluation.report == "best-by-validation" and not any(c.val for c in self.federation.clients):
            raise InputError(
                "evaluation.report is best-by-validation, and no client has validation data; set data.val_size, "
                "data.validation_share or evaluation.report = last"
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
        self._validate_fusion()
        self._validate_local_training()
        self._check_network()
        if self.config.method_name not in METHODS:
            with fork_rng("trial"):
                try_method(self.config.method, self.get_model_builder(), len(self.federation.classes), self.input_shape)
        with torch.device("meta"), explain_failure(self.config.method.title):  # no memory, no time for weights
            trainer = self.build_client_trainer("meta")
        if not self.config.local.uses_sgd:  # ours takes any network; the others load the compiler
            trainer.build_step(0)
        for client in self.federation.clients:
            if self.config.server.on_client_failure == "stop":
                trainer.local.check_has_batches(client.name, len(client.train), bool(trainer.batch_norm_names))
            if not len(client.test):
                raise InputError(f"client {client.name}: it has no test samples; take fewer clients or raise alpha")

    def _validate_fusion(self) -> None:
        method = self.config.method
        if not isinstance(method, FusingMethod) or not method.chooses_fusion:
            return
        if not any(client.val for client in self.federation.clients):
            raise InputError(
                f"method.fusion is {method.fusion}, and no client has validation data to choose by; "
                "set data.validation_share = 0.1, or method.fusion = logits"
            )

    def _check_network(self) -> None:
        """Refuse a network that does not fit the clients' inputs, or is none."""
        settings, shape = self.config.model, self.input_shape
        own = self.build_model or get_own_builder(settings.name)
        if own is not None:
            with fork_rng("trial"):
                check_own_network(own, len(self.federation.classes), shape, settings.head)
            return
        with torch.device("meta"):
            network = self.get_model_builder()()
        try:
            with FlopCounter():
                fill_with_virtual_zeros(network)(torch.zeros(1, *shape))
        except RuntimeError:
            size = " x ".join(str(side) for side in shape)
            raise InputError(
                f"network {settings.name!r} does not fit inputs of {size}; choose another model.name"
            ) from None

    def _validate_local_training(self) -> None:
        local, rounds = self.config.local, self.config.server.rounds
        if self.config.machine.backend == "vmap" and not local.uses_sgd:
            raise InputError(
                f"machine.backend vmap trains with sgd only, and local.optimizer is {local.optimizer}; "
                "set machine.backend = serial"
            )
        if local.lr_schedule == "cosine" and local.lr_min == 0 and rounds > (local.lr_rounds or rounds):
            raise InputError(
                f"server.rounds is {rounds}, and the learning rate falls to 0 in local.lr_rounds = {local.lr_rounds}; "
                "begin a new run with a longer fall, or with local.lr_min above 0"
            )

    @property
    def fast_path_note(self) -> str | None:
        """Why the fast path, which is asked for, does not serve all of local training; None if it does."""
        local, machine = self.config.local, self.config.machine
        if not machine.fast_path or machine.backend == "vmap":
            return None
        if not local.uses_sgd:
            return f"the fast path has no steps of its own for {local.optimizer}; torch's plain ones are taken"
        if local.max_grad_norm is not None and not local.momentum:
            return "local.max_grad_norm needs whole gradients; large linear layers are trained without their fast path"
        return None

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
            metrics=parse_metrics(config.evaluation.metrics, len(data.classes)),
            codec=config.server.codec,
            heads_every=config.server.heads_every,
            participation=config.server.participation,
        )

    def build_backend(self, folder: Path | None = None) -> SerialBackend:
        """All clients, in this process; what they keep on disk, if anything, is in the folder."""
        machine, server, clients = self.config.machine, self.config.server, self.federation.clients
        first = self.build_client_trainer()
        keep: OffloadFunction = partial(offload, folder=folder) if machine.client_state == "disk" else dict
        ways: dict[str, Any] = {
            "skip_failures": server.on_client_failure == "skip",
            "keep": keep,
            "delivery": server,
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
    config = resolve_preset(preset, given, standin=True) if found.standin else config
    return replace(config, data=found.settle(config.data)), found


def build_experiment(
    config: Config, data: LoadedDataset | Federation, build_model: ModelBuilder | None = None
) -> Experiment:
    """With the clients that the configuration makes of the data, or with those that are there already."""
    federation = data if isinstance(data, Federation) else assemble_federation(config.data, data)
    if config.model.name == "auto":  # said outright, so that the run is of this network whatever is chosen tomorrow
        chosen = choose_model(federation.clients[0].train.inputs.shape[1:])
        config = replace(config, model=replace(config.model, name=chosen))
    count, everyone = config.evaluation.clients, len(federation.clients)
    if 0 < count < everyone:  # wherever results are shown, so are the notes
        note = f"evaluated on {count:,} of {everyone:,} clients, drawn at random and the same in every round"
        federation = replace(federation, notes=(*federation.notes, note))
    made = Experiment(config, federation, build_model)
    made.validate()
    return made


def get_model_builder(
    settings: ModelSettings, method: AnyMethod, classes: int, shape: tuple[int, ...] = (3, 28, 28)
) -> Callable[[], Net]:
    """Draws networks, cut where the method wants it."""
    if settings.name == "own":
        raise InputError("this run has a network of its own; give the function or class that builds it: model=...")
    if (own := get_own_builder(settings.name)) is not None:
        return bind_model_builder(own, classes, shape, settings.head)
    cut = method.split_at if settings.split_at == "auto" else settings.split_at
    name = choose_model(shape) if settings.name == "auto" else settings.name
    if name == "resnet" and len(shape) != 3:
        size = " x ".join(str(side) for side in shape)
        raise InputError(f"network 'resnet' is for images, and an input here is of {size}; choose model.name = mlp")
    norm: NormLayer = settings.norm_kind if settings.norm else "none"
    builders: dict[str, Callable[[], Net]] = {
        "digits": partial(build_digits_net, classes, split_at=cut, dense_norm=settings.norm),
        "alexnet": partial(build_alexnet, classes, split_at=cut, dense_norm=settings.norm),
        "cifar": partial(build_cifar_net, classes, split_at=cut, norm=settings.norm),
        "two-layer": partial(build_two_layer_net, torch.Size(shape).numel(), classes, width=settings.width),
        "mlp": partial(build_mlp, torch.Size(shape).numel(), classes, units=settings.units, split_at=cut, norm=norm),
        "resnet": partial(
            build_resnet,
            cast(tuple[int, int, int], shape),
            classes,
            channels=settings.channels,
            split_at=cut,
            norm=norm,
        ),
    }
    return builders[name]


def get_own_builder(name: str) -> ModelBuilder | None:
    """What builds a network that is named by a reference or a plug-in; None for one of ours."""
    if name in BUILT_IN["model"]:
        return None
    found = find_extension("model", name)
    if found is None:
        raise build_unknown_error("model", name)
    if not callable(found.value):
        raise ExtensionError(
            f"model {name} is an instance of {type(found.value).__name__}; name a class or a function that builds one"
        )
    return cast(ModelBuilder, found.value)
