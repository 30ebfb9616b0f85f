"""Twins of methods with one network and something beside it: FedRep, fine-tuning, kNN-Per, SCAFFOLD, FedProto."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from fedtrain.data.client_data import ClientData
from fedtrain.models import Net
from reference_lib.common import (
    Job,
    PreparedSamples,
    Result,
    average,
    build_common_network,
    build_own_predictor,
    build_sgd,
    evaluate,
    iterate_batches,
    list_head_names,
    merge_state_dicts,
    select_cohort,
    train_on_labels,
)


def fedrep(job: Job, *, head_epochs: int = 10) -> Result:
    """The head is kept; it is trained first, then the features."""
    models = {client.name: build_common_network(job) for client in job.clients}
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            model = models[client.name].train()
            optimiser = build_sgd(job, model)
            for phase in range(head_epochs + job.epochs):
                trained, fixed = (model.head, model.features) if phase < head_epochs else (model.features, model.head)
                for x, y in iterate_batches(job, model, client, round, phase):
                    trained.requires_grad_(True)
                    fixed.requires_grad_(False)
                    optimiser.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    optimiser.step()
            model.requires_grad_(True)
        average(job, sampled, models, kept=list_head_names(models[sampled[0].name]))
        scores.append(evaluate(job, build_own_predictor(models)))
    return Result({name: model.state_dict() for name, model in models.items()}, scores)


def finetune(job: Job, *, passes: int = 1) -> Result:
    """FedAvg; copies of the model that were trained a little more predict."""
    models = {client.name: build_common_network(job) for client in job.clients}
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            train_on_labels(job, models[client.name], client, round)
        average(job, sampled, models)
        adapted = copy.deepcopy(models)
        for client in job.clients:
            model = adapted[client.name].train()
            optimiser = build_sgd(job, model)
            for number in range(passes):
                for x, y in iterate_batches(job, model, client, round + 1, f"before prediction {number}"):
                    optimiser.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    optimiser.step()
        scores.append(evaluate(job, build_own_predictor(adapted)))
    return Result({name: model.state_dict() for name, model in models.items()}, scores)


def remember(job: Job, model: Net, client: ClientData) -> list[tuple[Tensor, int]]:
    """Features and label of each training sample, one by one."""
    model.eval()
    with torch.no_grad():
        samples = DataLoader(PreparedSamples(job, client.train), 1, generator=torch.Generator())
        return [(model.features(x)[0].flatten(), int(y)) for x, y in samples]


def knnper(job: Job, *, weight: float = 0.5, k: int = 10, scale: float = 1.0) -> Result:
    """FedAvg; the model and the nearest training samples predict together."""
    models = {client.name: build_common_network(job) for client in job.clients}
    memory: dict[str, list[tuple[Tensor, int]]] = {}

    def predict(name: str, x: Tensor) -> dict[str, Tensor]:
        model = models[name].eval()
        votes = torch.zeros(len(x), job.classes, dtype=job.dtype)
        for row, z in enumerate(model.features(x).flatten(1)):
            distances = [(float((z - other).pow(2).sum()), label) for other, label in memory[name]]
            nearest = sorted(distances, key=lambda pair: pair[0])[:k]
            total = sum(math.exp(-distance / (len(z) * scale)) for distance, _ in nearest)
            for distance, label in nearest:
                votes[row, label] += math.exp(-distance / (len(z) * scale)) / total
        votes = votes.clamp(min=torch.finfo(job.dtype).tiny)
        logits = model(x)
        fused = (weight * votes + (1 - weight) * logits.softmax(1)).log()
        return {"fused": fused, "model": logits, "neighbours": votes.log()}

    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            train_on_labels(job, models[client.name], client, round)
        average(job, sampled, models)
        memory = {client.name: remember(job, models[client.name], client) for client in job.clients}
        scores.append(evaluate(job, predict))
    return Result({name: model.state_dict() for name, model in models.items()}, scores)


def scaffold(job: Job) -> Result:
    """FedAvg with c - c_i added to every gradient; c_i is the mean gradient of a round, as it moved weights."""
    models = {client.name: build_common_network(job) for client in job.clients}
    zeros = [torch.zeros_like(weight) for weight in build_common_network(job).parameters()]
    c, own = zeros, {client.name: zeros for client in job.clients}
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        changes = []
        for client in sampled:
            model, c_i = models[client.name].train(), own[client.name]
            optimiser = build_sgd(job, model)
            gradients: list[list[Tensor]] = []
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, model, client, round, epoch):
                    optimiser.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    gradients.append([])
                    for weight, everyone, mine in zip(model.parameters(), c, c_i, strict=True):
                        assert weight.grad is not None
                        gradients[-1].append(weight.grad + job.weight_decay * weight.detach())
                        weight.grad = weight.grad + everyone - mine
                    optimiser.step()
            # momentum uses the gradient of a step again in all later ones
            steps = len(gradients)
            uses = [sum(job.momentum**later for later in range(steps - step)) for step in range(steps)]
            mean = [
                torch.stack([use / sum(uses) * gradient for use, gradient in zip(uses, path, strict=True)]).sum(0)
                for path in zip(*gradients, strict=True)  # of each parameter
            ]
            changes.append([new - old for new, old in zip(mean, c_i, strict=True)])
            own[client.name] = mean
        average(job, sampled, models)
        sizes = [len(client.train) if job.weights == "size" else 1 for client in sampled]
        for size, change in zip(sizes, changes, strict=True):
            c = [old + job.participation * size / sum(sizes) * step for old, step in zip(c, change, strict=True)]
        scores.append(evaluate(job, build_own_predictor(models)))
    return Result(
        {
            name: {
                **merge_state_dicts(model=models[name]),
                "server_variate": torch.cat([value.flatten() for value in c]),
                "client_variate": torch.cat([value.flatten() for value in own[name]]),
            }
            for name in models
        },
        scores,
    )


def fedproto(job: Job, *, lam: float = 1.0) -> Result:
    """Networks are kept; the mean features of each class, over all clients, are common."""
    models = {client.name: build_common_network(job) for client in job.clients}
    sums: Tensor | None = None
    shares = torch.zeros(job.classes, dtype=job.dtype)

    def predict(name: str, x: Tensor) -> dict[str, Tensor]:
        assert sums is not None
        model = models[name].eval()
        z = model.features(x).flatten(1)
        squares = torch.zeros(len(x), job.classes, dtype=job.dtype)
        for label in range(job.classes):
            if shares[label] > 0:
                squares[:, label] = (z - sums[label] / shares[label]).pow(2).sum(1)
        for label in range(job.classes):
            if shares[label] == 0:
                squares[:, label] = squares.max(1).values + 1
        return {"fused": -squares, "head": model(x), "prototypes": -squares}

    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        answers = []
        for client in sampled:
            model = models[client.name].train()
            optimiser = build_sgd(job, model)
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, model, client, round, epoch):
                    optimiser.zero_grad()
                    z = model.features(x)
                    loss = F.cross_entropy(model.head(z), y)
                    for feature, label in zip(z.flatten(1), y.tolist(), strict=True):
                        if sums is not None and shares[label] > 0:
                            prototype = sums[label] / shares[label]
                            loss = loss + lam * (feature - prototype).pow(2).mean() / len(y)
                    loss.backward()
                    optimiser.step()
            own_sums = torch.zeros(job.classes, z.flatten(1).shape[1], dtype=job.dtype)
            own_shares = torch.zeros(job.classes, dtype=job.dtype)
            for feature, label in remember(job, model, client):
                own_sums[label] += feature / len(client.train)
                own_shares[label] += 1 / len(client.train)
            answers.append((own_sums, own_shares, len(client.train) if job.weights == "size" else 1))
        total = sum(size for *_, size in answers)
        sums = torch.stack([size / total * one for one, _, size in answers]).sum(0)
        shares = torch.stack([size / total * one for _, one, size in answers]).sum(0)
        scores.append(evaluate(job, predict))
    assert sums is not None
    return Result(
        {
            name: {**merge_state_dicts(model=model), "feature_sums": sums, "class_shares": shares}
            for name, model in models.items()
        },
        scores,
    )
