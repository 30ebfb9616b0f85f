"""What the literal twins of the methods share: the task, samples one by one, cohorts, averages and scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from fedtrain.data.client_data import ClientData, Samples
from fedtrain.models import Net
from fedtrain.rng import fork_rng, make_generator

Predict = Callable[[str, Tensor], dict[str, Tensor]]
"""Logits of a client's prediction ("fused"), and of its branches if there are several."""


@dataclass(frozen=True)
class Job:
    """The task, and how clients train."""

    make: Callable[[], Net]
    clients: Sequence[ClientData]
    rounds: int
    classes: int
    seed: int = 0
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    epochs: int = 1
    batch_size: int = 32
    participation: float = 1.0
    """The share of clients that train in a round."""
    weights: Literal["uniform", "size"] = "uniform"
    dtype: torch.dtype = torch.float32
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    evaluate_train: bool = False
    """Score the training data too after each round, as published."""
    before_round: Callable[[int], None] = lambda round: None
    """Called as each round begins."""
    load_sample: Callable[[Samples, int, bool], Tensor] | None = None
    """Brings one sample to the network, while training or not, if it is not to be taken from memory as it is."""
    keep_logits: list[dict[str, dict[str, Tensor]]] | None = None
    """Where the logits of every evaluation go, by client and split, if somebody wants them."""


class Score(NamedTuple):
    """How one branch of one client does on one split."""

    accuracy: float
    loss: float


Scores = dict[str, dict[str, dict[str, Score]]]
"""By client, split and branch."""


@dataclass(frozen=True)
class Result:
    """What came out: every entry of every client's models, and the scores after each round."""

    states: dict[str, dict[str, Tensor]]
    scores: list[Scores]


class PreparedSamples(Dataset[tuple[Tensor, Tensor]]):
    """Samples as a network reads them, prepared one at a time."""

    def __init__(self, job: Job, samples: Samples, training: bool = False) -> None:
        self.job, self.samples, self.training = job, samples, training
        channels = (-1, *[1] * (samples.inputs.ndim - 2))
        self.mean = torch.tensor(job.mean, dtype=job.dtype).reshape(channels)
        self.std = torch.tensor(job.std, dtype=job.dtype).reshape(channels)

    def __len__(self) -> int:
        return len(self.samples.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.job.load_sample:
            return self.job.load_sample(self.samples, index, self.training), self.samples.labels[index]
        raw = self.samples.inputs[index]
        x = raw.to(self.job.dtype)
        if raw.dtype == torch.uint8:
            x = x / 255
        return (x - self.mean) / self.std, self.samples.labels[index]


def build_common_network(job: Job, part: str = "") -> Net:
    """The common start; another one for each ``part``."""
    with fork_rng(job.seed, "network", part):
        return job.make().to(job.dtype)


def build_client_network(job: Job, client: str, part: str = "") -> Net:
    """A start of the client's own."""
    with fork_rng(job.seed, "network", part, "of", client):
        return job.make().to(job.dtype)


def select_cohort(job: Job, round: int) -> list[ClientData]:
    """The clients that train in this round, by name; with this a round begins."""
    job.before_round(round)
    ranked = sorted(job.clients, key=lambda client: client.name)
    drawn = torch.randperm(len(ranked), generator=make_generator(job.seed, "cohort", round))
    size = max(1, math.floor(len(ranked) * job.participation + 1e-9))
    return [ranked[i] for i in sorted(drawn[:size].tolist())]


def iterate_batches(
    job: Job, model: nn.Module, client: ClientData, round: int, phase: int | str
) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass over the training data, in the order that belongs to this client, round and phase."""
    order = torch.randperm(len(client.train), generator=make_generator(job.seed, client.name, round, phase, "order"))
    dataset = PreparedSamples(job, client.train, training=True)
    for x, y in DataLoader(dataset, job.batch_size, sampler=order.tolist(), generator=torch.Generator()):
        if len(y) == 1 and list_batch_norm_names(model):
            continue  # one sample has no variance
        yield x, y


def build_sgd(job: Job, model: nn.Module) -> torch.optim.SGD:
    """A new optimiser, as in every round."""
    return torch.optim.SGD(model.parameters(), lr=job.lr, momentum=job.momentum, weight_decay=job.weight_decay)


def list_batch_norm_names(model: nn.Module, statistics: bool = True) -> set[str]:
    """State-dict names of batch norm; without ``statistics`` only weights and biases."""
    names = set()
    for path, layer in model.named_modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            for name in layer.state_dict():
                if statistics or name in ("weight", "bias"):
                    names.add(f"{path}.{name}")
    return names


def list_head_names(model: Net) -> set[str]:
    """State-dict names of the head."""
    return {name for name in model.state_dict() if name.startswith("head.")}


def average(
    job: Job, sampled: Sequence[ClientData], models: Mapping[str, nn.Module], kept: Collection[str] = ()
) -> None:
    """The server: mean over those who trained of each entry that is not kept, written into everyone's model."""
    sizes = [len(client.train) if job.weights == "size" else 1 for client in sampled]
    states = [models[client.name].state_dict() for client in sampled]
    for name, first in states[0].items():
        if name in kept:
            continue
        mean = torch.zeros_like(first)
        if name.endswith("num_batches_tracked"):
            mean.copy_(first)  # a counter has no mean
        else:
            for state, size in zip(states, sizes, strict=True):
                mean += size / sum(sizes) * state[name]
        for model in models.values():
            model.state_dict()[name].copy_(mean)


def evaluate(job: Job, predict: Predict) -> Scores:
    """Accuracy and cross entropy of every client on its own data."""
    found: Scores = {}
    kept: dict[str, dict[str, Tensor]] = {}
    for client in job.clients:
        splits = {"train": client.train if job.evaluate_train else None, "val": client.val, "test": client.test}
        found[client.name], kept[client.name] = {}, {}
        for split, samples in splits.items():
            if samples is None:
                continue
            right: dict[str, int] = {}
            loss: dict[str, float] = {}
            fused = []
            with torch.no_grad():
                for x, y in DataLoader(PreparedSamples(job, samples), job.batch_size, generator=torch.Generator()):
                    outputs = predict(client.name, x)
                    fused.append(outputs["fused"])
                    for branch, logits in outputs.items():
                        right[branch] = right.get(branch, 0) + int((logits.argmax(1) == y).sum())
                        loss[branch] = loss.get(branch, 0.0) + F.cross_entropy(logits, y).item() * len(y)
            n = len(samples)
            found[client.name][split] = {branch: Score(right[branch] / n, loss[branch] / n) for branch in right}
            kept[client.name][split] = torch.cat(fused)
    if job.keep_logits is not None:
        job.keep_logits.append(kept)
    return found


def build_own_predictor(models: Mapping[str, nn.Module]) -> Predict:
    """Each client predicts with its one model."""
    return lambda name, x: {"fused": models[name].eval()(x)}


def merge_state_dicts(**models: nn.Module) -> dict[str, Tensor]:
    """One state dict of several models, each under its name."""
    return {f"{part}.{name}": value for part, model in models.items() for name, value in model.state_dict().items()}


def train_on_labels(job: Job, model: Net, client: ClientData, round: int) -> None:
    """Local training with cross entropy alone."""
    model.train()
    optimiser = build_sgd(job, model)
    for epoch in range(job.epochs):
        for x, y in iterate_batches(job, model, client, round, epoch):
            optimiser.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimiser.step()


def train_and_average_except(job: Job, kept: Collection[str]) -> Result:
    """Train on labels and average, but for the entries kept."""
    models = {client.name: build_common_network(job) for client in job.clients}
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            train_on_labels(job, models[client.name], client, round)
        average(job, sampled, models, kept)
        scores.append(evaluate(job, build_own_predictor(models)))
    return Result({name: model.state_dict() for name, model in models.items()}, scores)
