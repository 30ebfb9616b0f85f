"""The theory of a run: its checkpoints as networks, samples of its clients' data, and what the kernels say of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtrain.backends.serial import SerialBackend
from fedtrain.config.schema import Config, parse_config
from fedtrain.config.toml import merge_tables
from fedtrain.data.client_data import ClientData, Federation
from fedtrain.data.transforms import preprocess
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.delivery import Delivery
from fedtrain.federated.messages import Broadcast
from fedtrain.federated.residuals import drop_residual
from fedtrain.federated.server import federate
from fedtrain.inference.branch_networks import (
    PREFIX,
    BranchNetwork,
    is_sum_of_disjoint_branches,
    list_branch_names,
)
from fedtrain.methods.base import Batch
from fedtrain.models.own import ModelBuilder
from fedtrain.parameters import StateDict
from fedtrain.rng import make_generator
from fedtrain.runs.checkpoint import RunState, load_checkpoint, read_round
from fedtrain.runs.experiment import DTYPES, Experiment
from fedtrain.runs.folder import LAST_CHECKPOINT, RunFolder
from theory.errors import InputError
from theory.networks.kernels import ClientSamples
from theory.networks.network_study import (
    LocalSteps,
    NetworkCheckpoint,
    NetworkStudy,
    RealRound,
    study_networks,
)
from theory.networks.next_round import compute_outputs
from theory.networks.sharing import HeldOut
from theory.rng import make_data_rng

TOTAL_SAMPLES, MOST_SAMPLES, LEAST_SAMPLES = 100, 20, 2
"""Of all clients together, and of each, unless it is said how many."""
MOST_HELD_OUT, HELD_OUT_BATCH = 500, 50
"""Samples of each client that the fusion is weighed on, and how many pass at a time."""
REAL_ROUND = (
    "The real round is the run's own next one: batches of all training data, batch norm in training mode, momentum, "
    "weight decay and the method's whole loss. The kernel foretells it for the same batches from the cross entropy of "
    "each model alone, by plain SGD."
)


@dataclass(frozen=True)
class KernelStudyOptions:
    """How a run is looked at."""

    samples: int | None = None
    """Training samples of each client; without it as many as are quick."""
    dtype: str = "float64"
    seed: int = 0
    """Of the choice of samples."""
    next_round: bool = True
    """Whether to make a round with the networks, beside the one that the kernel predicts."""
    memory: int | None = None
    """Bytes for the kernels; without it most of what is free."""
    real_round: bool = False
    """Whether to make the run's own next round from every checkpoint, on all its data: as slow as training."""

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise InputError(f"samples is {self.samples}; it must be at least 1", ("samples",))
        if self.dtype not in DTYPES:
            raise InputError(f"dtype is {self.dtype!r}; choose float64 or float32", ("dtype",))


def find_checkpoints(folder: RunFolder) -> dict[int, Path]:
    """The checkpoints of a run by their rounds; refused where there are none."""
    last = folder.path / LAST_CHECKPOINT
    found = {read_round(path): path for path in sorted(last.parent.glob("round-*.safetensors"))}
    if last.exists():
        found.setdefault(read_round(last), last)
    if not found and folder.is_finished:
        raise InputError(
            f"{folder.path}: these are the records of a run, without its weights; name a run that has them"
        )
    if not found:
        raise InputError(
            f"{folder.path}: no checkpoint is here yet; go on with: fedco2 train --resume {folder.path}, and set "
            "checkpoints.every to keep some on the way"
        )
    return dict(sorted(found.items()))


def study_run(
    folder: RunFolder,
    data: Federation,
    options: KernelStudyOptions,
    device: str | None = None,
    build_model: ModelBuilder | None = None,
) -> NetworkStudy:
    """Kernels at the start and at every kept checkpoint of a run, on samples of its clients' training data."""
    paths = find_checkpoints(folder)
    machine = {"dtype": options.dtype, "fast_path": False, "amp": False, "backend": "serial"}
    machine |= {} if device is None else {"device": device}
    config = parse_config(merge_tables(folder.load_tables(), {"machine": machine}))
    trainer = Experiment(config, data, build_model).build_client_trainer()
    samples = draw_samples(data, config, options, trainer.device)
    steps = [count_steps(config, len(client.train), trainer) for client in data.clients]
    checkpoints = iterate_checkpoints(folder, paths, config, data, trainer, samples, options.real_round)
    try:
        study = study_networks(
            checkpoints,
            samples,
            local=LocalSteps(config.local.lr, tuple(steps)),
            next_round=options.next_round and config.local.uses_sgd,  # it foretells steps down the gradient
            memory=options.memory,
        )
    except InputError as error:
        if "memory" not in error.options:
            raise
        raise InputError(
            f"{str(error).split('; ')[0]}; lower samples, or use dtype float32", ("samples", "dtype")
        ) from None
    about: dict[str, Any] = {
        "run": str(folder.path), "method": config.method_name, "method_title": config.method.title,
        "title": data.title, "standin": data.standin, "classes": list(data.classes),
        "rounds": config.server.rounds, "seed": options.seed,
    }  # fmt: skip
    notes = [*study.notes, *([REAL_ROUND] if options.real_round else []), *describe_sampling(config, data)]
    return replace(study, about=about, notes=notes)


def count_samples(data: Federation, samples: int | None) -> list[int]:
    """How many training samples of each client are looked at."""
    most = samples or max(LEAST_SAMPLES, min(MOST_SAMPLES, TOTAL_SAMPLES // len(data.clients)))
    return [min(most, len(client.train)) for client in data.clients]


def draw_samples(data: Federation, config: Config, options: KernelStudyOptions, device: torch.device) -> ClientSamples:
    """Training samples of each client, drawn at random, as its network reads them when it predicts."""
    inputs, labels = [], []
    for number, (client, count) in enumerate(zip(data.clients, count_samples(data, options.samples), strict=True)):
        order = make_data_rng(options.seed, number).permutation(len(client.train))[:count]
        chosen = torch.from_numpy(order).sort().values
        chance = make_generator(options.seed, "theory", client.name)
        x = preprocess(
            client.train.inputs[chosen], data.preprocessing, training=False, noise=client.noise, rng=chance,
            dtype=DTYPES[options.dtype],
        )  # fmt: skip
        inputs.append(x.to(device))
        labels.append(client.train.labels[chosen].to(device))
    sizes = [float(len(client.train)) if config.server.weights == "size" else 1.0 for client in data.clients]
    weights = tuple(size / sum(sizes) for size in sizes)
    return ClientSamples(tuple(client.name for client in data.clients), tuple(inputs), tuple(labels), weights)


def count_steps(config: Config, samples: int, trainer: ClientTrainer) -> int:
    """SGD steps of a client in a round."""
    batches = config.local.split_into_batches(torch.arange(samples), bool(trainer.batch_norm_names))
    return config.local.epochs * sum(1 for _ in batches)


def iterate_checkpoints(
    folder: RunFolder,
    paths: dict[int, Path],
    config: Config,
    data: Federation,
    trainer: ClientTrainer,
    samples: ClientSamples,
    real_round: bool = False,
) -> Iterator[NetworkCheckpoint]:
    """The networks as training began, then as each checkpoint has them."""
    names = [client.name for client in data.clients]

    def build(state: RunState) -> NetworkCheckpoint:
        found = build_checkpoint(state, config, data, trainer, samples)
        made = make_real_round(state, config, data, trainer, samples) if real_round else None
        held_out = answer_held_out(found, config, data, samples) if found.is_sum else None
        return replace(found, real_round=made, held_out=held_out)

    yield build(RunState(trainer.initial_broadcast(names), trainer.initial_client_states(names)))
    for round, path in paths.items():
        if round == 0:
            continue
        state = load_checkpoint(path)
        own = {
            name: state.load_client_state(name, folder.client_state_store, trainer.initial_client_state)
            for name in names
        }
        yield build(replace(state, client_states=own))


def build_checkpoint(
    state: RunState, config: Config, data: Federation, trainer: ClientTrainer, samples: ClientSamples
) -> NetworkCheckpoint:
    """Every client's module, loaded with what the server and the client had."""
    method, dtype, device = trainer.method, trainer.precision.dtype, trainer.device
    message = convert_message(state.message, dtype, device)
    delivery = Delivery(trainer.starting_entries.get_shared, config.server, config.seed)
    modules, contexts = [], []
    for client in data.clients:
        personal = convert_entries(state.client_states[client.name], dtype, device)
        sent = delivery.receive_for_prediction(message, client.name)
        contexts.append(trainer.start_round(client.to(device), personal, sent))
        module = copy.deepcopy(trainer.module)
        module.load_state_dict({**drop_residual(personal), **sent.shared}, assign=True)  # shared entries exist once
        modules.append(module.eval())
    first = modules[0], contexts[0], samples.inputs[0]
    names = list_branch_names(method, *first)

    def wrap(branch: str | None) -> list[BranchNetwork]:
        pairs = zip(modules, contexts, strict=True)
        return [BranchNetwork(method, module, context, branch).eval() for module, context in pairs]

    is_sum = len(names) > 1 and is_sum_of_disjoint_branches(method, *first)
    return NetworkCheckpoint(
        message.round,
        {name: wrap(name) for name in names},
        frozenset(PREFIX + name for name in trainer.shared_names),
        is_sum,
        wrap(None) if len(names) > 1 and not is_sum else (),
    )


@torch.no_grad()
def answer_held_out(checkpoint: NetworkCheckpoint, config: Config, data: Federation, samples: ClientSamples) -> HeldOut:
    """What the models say of validation data, or of test data where a client has none."""
    split = "val" if all(client.val is not None for client in data.clients) else "test"
    outputs: dict[str, list[Tensor]] = {name: [] for name in checkpoint.networks}
    labels = []
    for number, client in enumerate(data.clients):
        held = client.test if client.val is None or split == "test" else client.val
        chance = make_generator(config.seed, "held out", client.name)
        chosen = torch.randperm(len(held), generator=chance)[:MOST_HELD_OUT]
        x = preprocess(
            held.inputs[chosen], data.preprocessing, training=False, noise=client.noise, rng=chance,
            dtype=samples.inputs[0].dtype,
        ).to(samples.inputs[0].device)  # fmt: skip
        for name, networks in checkpoint.networks.items():
            outputs[name].append(torch.cat([networks[number](part) for part in x.split(HELD_OUT_BATCH)]))
        labels.append(held.labels[chosen].to(x.device))
    return HeldOut(split, outputs, labels)


def make_real_round(
    state: RunState, config: Config, data: Federation, trainer: ClientTrainer, samples: ClientSamples
) -> RealRound:
    """The round that the run itself makes next, and what its networks then say of the samples."""
    dtype, device = trainer.precision.dtype, trainer.device
    message = convert_message(state.message, dtype, device)
    backend = SerialBackend(trainer, data.clients, delivery=config.server)
    backend.client_states = {name: convert_entries(own, dtype, device) for name, own in state.client_states.items()}
    server = config.server
    made = next(
        federate(
            backend, message, message.round + 1, participation=server.participation, weights=server.weights,
            aggregator=config.aggregator, remembered=state.server, codec=server.codec, seed=config.seed,
        )
    )  # fmt: skip
    after = build_checkpoint(RunState(made.message, backend.client_states), config, data, trainer, samples)
    outputs = {name: compute_outputs(networks, samples) for name, networks in after.networks.items()}
    passes = len(trainer.method.phases(message.round, config.local.epochs))

    def list_batches(client: ClientData) -> Iterator[Batch]:
        """Of the passes over the labels, which are the last ones."""
        for number in range(passes - config.local.epochs, passes):
            yield from trainer.iterate_batches(client, message.round, number)

    batches = [partial(list_batches, client.to(device)) for client in data.clients]
    return RealRound(outputs, batches, config.local.lr)


def convert_message(message: Broadcast, dtype: torch.dtype, device: torch.device) -> Broadcast:
    """The same in another precision; heads stay in the form in which they travelled, and become it when loaded."""
    peers = {name: {key: part.to(device) for key, part in head.items()} for name, head in message.peers.items()}
    return Broadcast(message.round, convert_entries(message.shared, dtype, device), peers)


def convert_entries(entries: StateDict, dtype: torch.dtype, device: torch.device) -> StateDict:
    """The same in another precision; what counts stays whole."""

    def convert(value: Tensor) -> Tensor:
        return value.to(device, dtype if value.is_floating_point() else None)

    return {name: convert(value) for name, value in entries.items()}


def describe_sampling(config: Config, data: Federation) -> Sequence[str]:
    """What a reader must know of this run."""
    notes = list(data.notes)
    if config.server.participation < 1:
        notes.append("Only some clients trained in each round; the next round here is one of all clients.")
    return notes
