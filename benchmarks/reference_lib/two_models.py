"""Twins of the methods with a generic and a personal model: Ditto, pFedMe, APFL, FML."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtrain.models import Net
from reference_lib.common import (
    Job,
    Predict,
    Result,
    average,
    build_common_network,
    build_sgd,
    evaluate,
    iterate_batches,
    list_batch_norm_names,
    merge_state_dicts,
    select_cohort,
)


def build_both(job: Job) -> tuple[dict[str, Net], dict[str, Net]]:
    """The generic and the personal models of all clients, all alike."""
    generic = {client.name: build_common_network(job) for client in job.clients}
    return generic, {name: copy.deepcopy(model) for name, model in generic.items()}


def build_personal_predictor(generic: Mapping[str, nn.Module], personal: Mapping[str, nn.Module]) -> Predict:
    """The personal model predicts."""

    def predict(name: str, x: Tensor) -> dict[str, Tensor]:
        own = personal[name].eval()(x)
        return {"fused": own, "generic": generic[name].eval()(x), "personal": own}

    return predict


def merge_results(generic: Mapping[str, nn.Module], personal: Mapping[str, nn.Module]) -> dict[str, dict[str, Tensor]]:
    """Every entry of both models, by client."""
    return {name: merge_state_dicts(generic=generic[name], personal=personal[name]) for name in generic}


def ditto(job: Job, *, lam: float = 1.0) -> Result:
    """FedAvg, and beside it a personal model with a pull to what the server sent."""
    generic, personal = build_both(job)
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            w, v = generic[client.name].train(), personal[client.name].train()
            server = copy.deepcopy(w).requires_grad_(False)
            w_optimiser, v_optimiser = build_sgd(job, w), build_sgd(job, v)
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, w, client, round, epoch):
                    w_optimiser.zero_grad()
                    F.cross_entropy(w(x), y).backward()
                    w_optimiser.step()
                    v_optimiser.zero_grad()
                    loss = F.cross_entropy(v(x), y)
                    for own, sent in zip(v.parameters(), server.parameters(), strict=True):
                        loss = loss + lam / 2 * ((own - sent) ** 2).sum()
                    loss.backward()
                    v_optimiser.step()
        average(job, sampled, generic)
        scores.append(evaluate(job, build_personal_predictor(generic, personal)))
    return Result(merge_results(generic, personal), scores)


def mix_models(alpha: float, v: Net, w: Net) -> Net:
    """A third model between two; its batch-norm statistics are those of the first."""
    mixed = copy.deepcopy(v)
    with torch.no_grad():
        for between, own, common in zip(mixed.parameters(), v.parameters(), w.parameters(), strict=True):
            between.copy_(alpha * own + (1 - alpha) * common)
    return mixed


def apfl(job: Job, *, alpha: float = 0.5, adaptive: bool = False) -> Result:
    """FedAvg, and beside it a personal model that is trained and used through its mixture with the generic one."""
    generic, personal = build_both(job)
    alphas = {client.name: alpha for client in job.clients}

    def predict(name: str, x: Tensor) -> dict[str, Tensor]:
        mixed = mix_models(alphas[name], personal[name], generic[name]).eval()(x)
        return {"fused": mixed, "generic": generic[name].eval()(x), "personal": mixed}

    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            w, v = generic[client.name].train(), personal[client.name].train()
            w_optimiser, v_optimiser = build_sgd(job, w), build_sgd(job, v)
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, w, client, round, epoch):
                    share = min(1.0, max(0.0, alphas[client.name]))
                    mixed = mix_models(share, v, w)
                    F.cross_entropy(mixed(x), y).backward()
                    v_optimiser.zero_grad()
                    slope = 0.0
                    for own, common, between in zip(v.parameters(), w.parameters(), mixed.parameters(), strict=True):
                        assert between.grad is not None
                        own.grad = share * between.grad  # d(α v + (1 - α) w) / dv = α
                        slope += float(((own - common).detach() * between.grad).sum())  # and / dα = v - w
                    if adaptive:
                        alphas[client.name] -= job.lr * slope
                    statistics = {name: mixed.state_dict()[name] for name in list_statistics(v)}
                    v.load_state_dict(statistics, strict=False)
                    w_optimiser.zero_grad()
                    F.cross_entropy(w(x), y).backward()
                    w_optimiser.step()
                    v_optimiser.step()
            alphas[client.name] = min(1.0, max(0.0, alphas[client.name]))
        average(job, sampled, generic)
        scores.append(evaluate(job, predict))
    states = merge_results(generic, personal)
    if adaptive:
        for name, state in states.items():
            state["alpha"] = torch.tensor(alphas[name], dtype=job.dtype)
    return Result(states, scores)


def list_statistics(model: nn.Module) -> set[str]:
    """Names of what batch norm has measured."""
    return list_batch_norm_names(model) - list_batch_norm_names(model, statistics=False)


def fml(job: Job, *, alpha: float = 0.5, beta: float = 0.5) -> Result:
    """Two models that learn from the labels and from each other."""
    generic, personal = build_both(job)
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            w, v = generic[client.name].train(), personal[client.name].train()
            w_optimiser, v_optimiser = build_sgd(job, w), build_sgd(job, v)
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, w, client, round, epoch):
                    w_said, v_said = w(x), v(x)
                    to_v = F.kl_div(v_said.log_softmax(1), w_said.softmax(1).detach(), reduction="batchmean")
                    to_w = F.kl_div(w_said.log_softmax(1), v_said.softmax(1).detach(), reduction="batchmean")
                    v_optimiser.zero_grad()
                    (alpha * F.cross_entropy(v_said, y) + (1 - alpha) * to_v).backward()
                    w_optimiser.zero_grad()
                    (beta * F.cross_entropy(w_said, y) + (1 - beta) * to_w).backward()
                    v_optimiser.step()
                    w_optimiser.step()
        average(job, sampled, generic)
        scores.append(evaluate(job, build_personal_predictor(generic, personal)))
    return Result(merge_results(generic, personal), scores)


def pfedme(job: Job, *, lam: float = 15.0, inner_steps: int = 5, outer_lr: float = 1.0) -> Result:
    """On every batch a personal model takes some steps on an elastic band, and the generic one follows it."""
    generic, personal = build_both(job)
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            w, theta = generic[client.name].train(), personal[client.name].train()
            optimiser = build_sgd(job, theta)
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, theta, client, round, epoch):
                    for _ in range(inner_steps):
                        optimiser.zero_grad()
                        loss = F.cross_entropy(theta(x), y)
                        for own, common in zip(theta.parameters(), w.parameters(), strict=True):
                            loss = loss + lam / 2 * ((own - common.detach()) ** 2).sum()
                        loss.backward()
                        optimiser.step()
                    with torch.no_grad():
                        for common, own in zip(w.parameters(), theta.parameters(), strict=True):
                            common.sub_(outer_lr * job.lr * lam * (common - own))
            for name in list_statistics(w):
                w.state_dict()[name].copy_(theta.state_dict()[name])
        average(job, sampled, generic)
        scores.append(evaluate(job, build_personal_predictor(generic, personal)))
    return Result(merge_results(generic, personal), scores)
