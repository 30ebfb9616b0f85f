"""Every method as a plain loop, slow and literal: python benchmarks/reference.py --method fedco2 --rounds 3.

Nothing that trains is taken from fedtrain: only networks, clients' data, and random numbers (first weights, order of
samples, who trains in a round), so that both start alike and see the same batches. Two uses: in double precision the
trainer must come to the same numbers, and its speed is given as a multiple of this. Hence no tricks: a deep
copy wherever one is handy, an SGD for each model, samples one by one through a DataLoader, gradients even for frozen
heads. Not here: augmentation and noise.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from reference_lib.common import (
    Job,
    Result,
    Score,
    Scores,
    average,
    build_client_network,
    build_common_network,
    build_own_predictor,
    build_sgd,
    evaluate,
    iterate_batches,
    list_batch_norm_names,
    list_head_names,
    merge_state_dicts,
    select_cohort,
    train_and_average_except,
    train_on_labels,
)
from reference_lib.shared_models import fedproto, fedrep, finetune, knnper, scaffold
from reference_lib.two_models import apfl, ditto, fml, pfedme
from torch import Tensor, nn

from fedtrain.data.client_data import ClientData, Samples
from fedtrain.models import Net
from fedtrain.rng import make_generator

__all__ = ["Job", "Result", "Score", "Scores", "main", "measure_differences", "run_fedtrain", "run_reference"]


def singleset(job: Job, *, start: str = "common") -> Result:
    """Every client alone."""
    models = {
        c.name: build_common_network(job) if start == "common" else build_client_network(job, c.name)
        for c in job.clients
    }
    scores = []
    for round in range(job.rounds):
        for client in select_cohort(job, round):
            train_on_labels(job, models[client.name], client, round)
        scores.append(evaluate(job, build_own_predictor(models)))
    return Result({name: model.state_dict() for name, model in models.items()}, scores)


def fedavg(job: Job) -> Result:
    """Nothing is kept."""
    return train_and_average_except(job, kept=())


def fedper(job: Job) -> Result:
    """The head is kept."""
    return train_and_average_except(job, kept=list_head_names(build_common_network(job)))


def lgfedavg(job: Job) -> Result:
    """All but the head is kept."""
    model = build_common_network(job)
    return train_and_average_except(job, kept=model.state_dict().keys() - list_head_names(model))


def fedbn(job: Job, *, bn_stats: str = "local") -> Result:
    """Batch norm is kept, with its running statistics or without."""
    return train_and_average_except(
        job, kept=list_batch_norm_names(build_common_network(job), statistics=bn_stats == "local")
    )


def fedprox(job: Job, *, mu: float = 1e-2, squared: bool = True) -> Result:
    """FedAvg with a pull to the model that the round began with."""
    models = {client.name: build_common_network(job) for client in job.clients}
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            model = models[client.name].train()
            server = copy.deepcopy(model)
            optimiser = build_sgd(job, model)
            for epoch in range(job.epochs):
                for step, (x, y) in enumerate(iterate_batches(job, model, client, round, epoch)):
                    optimiser.zero_grad()
                    loss = F.cross_entropy(model(x), y)
                    distance = torch.zeros((), dtype=job.dtype)
                    for w, w_server in zip(model.parameters(), server.parameters(), strict=True):
                        distance = distance + (w - w_server.detach()).pow(2).sum()
                    if squared:
                        loss = loss + mu / 2 * distance
                    elif round > 0 and step > 0:  # the published form: a root, which has no gradient where w = w_server
                        loss = loss + mu / 2 * distance.sqrt()
                    loss.backward()
                    optimiser.step()
        average(job, sampled, models)
        scores.append(evaluate(job, build_own_predictor(models)))
    return Result({name: model.state_dict() for name, model in models.items()}, scores)


def moon(job: Job, *, mu: float = 1.0, tau: float = 0.5, previous: str = "last") -> Result:
    """FedAvg whose features are to be like the global model's and unlike the client's previous model's."""
    models = {client.name: build_common_network(job) for client in job.clients}
    before = {
        client.name: build_common_network(job)
        if previous == "last"
        else build_client_network(job, client.name, "previous")
        for client in job.clients
    }
    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            model = models[client.name].train()
            global_model = copy.deepcopy(model).eval().requires_grad_(False)
            previous_model = before[client.name].eval().requires_grad_(False)
            optimiser = build_sgd(job, model)
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, model, client, round, epoch):
                    optimiser.zero_grad()
                    z = model.features(x)
                    like = F.cosine_similarity(z, global_model.features(x), dim=1)
                    unlike = F.cosine_similarity(z, previous_model.features(x), dim=1)
                    logits = torch.stack([like, unlike], dim=1) / tau
                    contrast = F.cross_entropy(logits, torch.zeros(len(y), dtype=torch.long))
                    (F.cross_entropy(model.head(z), y) + mu * contrast).backward()
                    optimiser.step()
            if previous == "last":
                before[client.name] = copy.deepcopy(model)
        average(job, sampled, models)
        scores.append(evaluate(job, build_own_predictor(models)))
    return Result({name: merge_state_dicts(model=models[name], previous=before[name]) for name in models}, scores)


def fedrod(job: Job, *, balanced: bool = False, personal_sgd: str = "same") -> Result:
    """A generic network for all, and on its features a personal head that corrects the logits."""
    generic = {client.name: build_common_network(job) for client in job.clients}
    personal = {client.name: build_common_network(job, "personal head").head for client in job.clients}

    def predict(name: str, x: Tensor) -> dict[str, Tensor]:
        z = generic[name].eval().features(x)
        one, other = generic[name].head(z), personal[name].eval()(z)
        return {"fused": one + other, "generic": one, "personal": other}

    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        for client in sampled:
            model, head = generic[client.name].train(), personal[client.name].train()
            optimiser = build_sgd(job, model)
            plain = torch.optim.SGD(head.parameters(), lr=job.lr)
            head_optimiser = plain if personal_sgd == "plain" else build_sgd(job, head)
            frequency = torch.bincount(client.train.labels, minlength=job.classes).to(job.dtype) / len(client.train)
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, model, client, round, epoch):
                    # the generic network, on its own logits
                    z = model.features(x)
                    logits = model.head(z)
                    optimiser.zero_grad()
                    F.cross_entropy(logits + frequency.log() if balanced else logits, y).backward()
                    optimiser.step()
                    # the personal head, on the output of the generic network before its step
                    head_optimiser.zero_grad()
                    F.cross_entropy(logits.detach() + head(z.detach()), y).backward()
                    head_optimiser.step()
        average(job, sampled, generic)
        scores.append(evaluate(job, predict))
    return Result({name: merge_state_dicts(generic=generic[name], personal=personal[name]) for name in generic}, scores)


def copa(job: Job) -> Result:
    """Heads are kept, but everyone's head judges everyone's features, and all heads vote."""
    models = {client.name: build_common_network(job) for client in job.clients}

    def predict(name: str, x: Tensor) -> dict[str, Tensor]:
        z = models[name].eval().features(x)
        own = models[name].head(z)
        peers = [model.eval().head(z) for other, model in models.items() if other != name]
        if not peers:
            return {"fused": own}
        everyone = torch.stack([own, *peers]).mean(0)
        return {"fused": everyone, "own": own, "peers": torch.stack(peers).mean(0)}

    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        heads = {name: copy.deepcopy(model.head).eval() for name, model in models.items()}  # before anyone trains
        for client in sampled:
            model = models[client.name].train()
            optimiser = build_sgd(job, model)
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, model, client, round, epoch):
                    optimiser.zero_grad()
                    z = model.features(x)
                    loss = F.cross_entropy(model.head(z), y)
                    for name, head in heads.items():
                        if name != client.name:
                            loss = loss + F.cross_entropy(head(z), y)
                    loss.backward()
                    optimiser.step()
        average(job, sampled, models, kept=list_head_names(models[sampled[0].name]))
        scores.append(evaluate(job, predict))
    return Result({name: model.state_dict() for name, model in models.items()}, scores)


def fedco2(
    job: Job,
    *,
    intra: str = "both",
    inter: str = "both",
    mu: float = 1.0,
    gen: str = "sum",
    personal: str = "bn",
    bn_stats: str = "local",
    fusion: str = "logits",
    start: str = "common",
) -> Result:
    """An online model that is averaged but for its personal part, and an offline one that is not."""
    online = {c.name: build_common_network(job) for c in job.clients}
    offline = {
        c.name: copy.deepcopy(online[c.name]) if start == "common" else build_client_network(job, c.name, "offline")
        for c in job.clients
    }
    kept: set[str] = set()
    if personal in ("bn", "bn+head"):
        kept |= list_batch_norm_names(build_common_network(job), statistics=bn_stats == "local")
    if personal in ("head", "bn+head"):
        kept |= list_head_names(build_common_network(job))

    def predict(name: str, x: Tensor) -> dict[str, Tensor]:
        one, other = online[name].eval()(x), offline[name].eval()(x)
        fused = one + other if fusion == "logits" else ((one.softmax(1) + other.softmax(1)) / 2).log()
        return {"fused": fused, "online": one, "offline": other}

    scores = []
    for round in range(job.rounds):
        sampled = select_cohort(job, round)
        heads = {name: copy.deepcopy(model.head).eval() for name, model in offline.items()}  # before anyone trains
        for client in sampled:
            on, off = online[client.name].train(), offline[client.name].train()
            on_optimiser, off_optimiser = build_sgd(job, on), build_sgd(job, off)
            phase = 0

            # Phase 1: each model learns from the other one, as that was when the round began.
            if round > 0 and intra != "none":
                on_teacher, off_teacher = copy.deepcopy(on).eval(), copy.deepcopy(off).eval()
                for x, _ in iterate_batches(job, on, client, round, phase):
                    if intra in ("online", "both"):
                        on_optimiser.zero_grad()
                        target = off_teacher(x).softmax(1).detach()
                        F.kl_div(on(x).log_softmax(1), target, reduction="batchmean").backward()
                        on_optimiser.step()
                    if intra in ("offline", "both"):
                        off_optimiser.zero_grad()
                        target = on_teacher(x).softmax(1).detach()
                        F.kl_div(off(x).log_softmax(1), target, reduction="batchmean").backward()
                        off_optimiser.step()
                phase += 1

            # Phase 2: each model learns from the labels, under its own head and under those of the peers.
            foreign = [head for name, head in heads.items() if name != client.name]
            for epoch in range(job.epochs):
                for x, y in iterate_batches(job, on, client, round, phase + epoch):
                    for side, model, optimiser in (("online", on, on_optimiser), ("offline", off, off_optimiser)):
                        optimiser.zero_grad()
                        z = model.features(x)
                        loss = F.cross_entropy(model.head(z), y)
                        if inter in (side, "both"):
                            for head in foreign:
                                weight = mu / len(foreign) if gen == "mean" else mu
                                loss = loss + weight * F.cross_entropy(head(z), y)
                        loss.backward()
                        optimiser.step()
        average(job, sampled, online, kept)
        scores.append(evaluate(job, predict))
    return Result({name: merge_state_dicts(online=online[name], offline=offline[name]) for name in online}, scores)


def cooperate(job: Job, *, online: str = "fedbn", offline: str = "singleset") -> Result:
    """Two methods, each trained as if it were alone; only their logits meet."""
    sides: dict[str, Result] = {}
    logits: dict[str, list[dict[str, dict[str, Tensor]]]] = {"online": [], "offline": []}
    for side, method in (("online", online), ("offline", offline)):
        sides[side] = METHODS[method](replace(job, keep_logits=logits[side]))
    scores: list[Scores] = []
    for round, (ones, others) in enumerate(zip(logits["online"], logits["offline"], strict=True)):
        scores.append({})
        for client in job.clients:
            scores[round][client.name] = {}
            for split, one in ones[client.name].items():
                labels = {"train": client.train, "val": client.val, "test": client.test}[split].labels  # type: ignore[union-attr]
                fused = one + others[client.name][split]
                right, loss = (fused.argmax(1) == labels).double().mean(), F.cross_entropy(fused, labels)
                scores[round][client.name][split] = {
                    "fused": Score(right.item(), loss.item()),
                    "online": sides["online"].scores[round][client.name][split]["fused"],
                    "offline": sides["offline"].scores[round][client.name][split]["fused"],
                }
    states = {
        client.name: {
            f"{side}.{entry}": value
            for side, result in sides.items()
            for entry, value in result.states[client.name].items()
        }
        for client in job.clients
    }
    return Result(states, scores)


METHODS: dict[str, Callable[..., Result]] = {
    "singleset": singleset,
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedper": fedper,
    "moon": moon,
    "fedrod": fedrod,
    "copa": copa,
    "finetune": finetune,
    "scaffold": scaffold,
    "fedrep": fedrep,
    "lgfedavg": lgfedavg,
    "ditto": ditto,
    "pfedme": pfedme,
    "apfl": apfl,
    "fml": fml,
    "knnper": knnper,
    "fedproto": fedproto,
    "fedbn": fedbn,
    "cooperate": cooperate,
    "fedco2": fedco2,
}


def split_options(
    make: Callable[[], Net], clients: Sequence[ClientData], given: Mapping[str, Any]
) -> tuple[Job, dict[str, Any]]:
    """Part what was given into the job and the options of the method."""
    ours = {name: value for name, value in given.items() if name in Job.__dataclass_fields__}
    return Job(make, clients, **ours), {name: value for name, value in given.items() if name not in ours}


def run_reference(method: str, make: Callable[[], Net], clients: Sequence[ClientData], **given: Any) -> Result:
    """Train by a method; given are fields of `Job`, and options by the names that fedtrain's method gives them."""
    job, options = split_options(make, clients, given)
    return METHODS[method](job, **options)


def run_fedtrain(method: str, make: Callable[[], Net], clients: Sequence[ClientData], **given: Any) -> Result:
    """The same training by fedtrain, with the same arguments."""
    from fedtrain.backends.serial import SerialBackend
    from fedtrain.config.local import LocalSettings
    from fedtrain.config.method_tables import parse_method
    from fedtrain.data.client_data import Preprocessing
    from fedtrain.federated.client import ClientTrainer, Precision
    from fedtrain.federated.messages import Split
    from fedtrain.federated.server import federate
    from fedtrain.methods import METHODS as OURS

    job, options = split_options(make, clients, given)
    local = LocalSettings(job.lr, job.momentum, job.weight_decay, job.epochs, job.batch_size)
    look, numbers = Preprocessing(job.mean, job.std), Precision(job.dtype)
    trainer = ClientTrainer(
        parse_method(OURS[method], options),
        make,
        job.classes,
        local=local,
        preprocessing=look,
        seed=job.seed,
        precision=numbers,
        participation=job.participation,
    )
    backend = SerialBackend(trainer, clients)
    splits: list[Split] = ["train", "val", "test"] if job.evaluate_train else ["val", "test"]
    message, scores = backend.initial_broadcast(), []
    for done in federate(
        backend, message, job.rounds, participation=job.participation, weights=job.weights, seed=job.seed
    ):
        message = done.message
        found: Scores = {}
        for name, by_split in backend.evaluate(message, splits).items():
            found[name] = {
                split: {branch: Score(s.accuracy, s.loss) for branch, s in by_branch.items()}
                for split, by_branch in by_split.items()
            }
        scores.append(found)
    return Result({name: {**backend.client_states[name], **message.shared} for name in backend.client_names}, scores)


class Differences(NamedTuple):
    """Largest differences between two results."""

    entries: float
    """Of a tensor's entries, relative to its largest."""
    loss: float
    accuracy: float


def measure_differences(one: Result, other: Result) -> Differences:
    """How far two results are from each other; they must speak of the same things."""

    def pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        if a.keys() != b.keys():
            raise ValueError(f"not the same names: {sorted(a.keys() ^ b.keys())}")
        for name in a:
            yield from pairs(a[name], b[name]) if isinstance(a[name], Mapping) else [(a[name], b[name])]

    def relative(a: Tensor, b: Tensor) -> float:
        difference = (a.double() - b.double()).abs().nan_to_num(nan=math.inf)
        return float(difference.max() / (b.double().abs().max() or 1.0))

    scores = [pair for a, b in zip(one.scores, other.scores, strict=True) for pair in pairs(a, b)]
    return Differences(
        max(relative(a, b) for a, b in pairs(one.states, other.states)),
        max(abs(a.loss - b.loss) / (b.loss or 1.0) for a, b in scores),
        max(abs(a.accuracy - b.accuracy) for a, b in scores),
    )


def build_small_net() -> Net:
    """For images of 3 x 8 x 8 of 4 classes, with batch norm on both sides of the cut."""
    conv = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return Net(conv, nn.Sequential(nn.Linear(54, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4)))


def build_small_clients(sizes: Mapping[str, int], seed: int = 0) -> list[ClientData]:
    """Images with a pattern for each class, on a ground and with a contrast that differ from client to client."""
    clients = []
    patterns = torch.rand(4, 3, 8, 8, generator=make_generator(seed, "patterns"))
    for position, (name, size) in enumerate(sizes.items()):
        rng = make_generator(seed, "images", name)
        parts = []
        for n in (size, size // 2 + 3):
            labels = torch.randint(4 if position else 3, (n,), generator=rng)  # the first client lacks a class
            noise = torch.rand(n, 3, 8, 8, generator=rng)
            images = 20 * position + 255 / (1 + position) * (0.7 * patterns[labels] + 0.3 * noise)
            parts.append(Samples(images.clamp(0, 255).to(torch.uint8), labels))
        clients.append(ClientData(name, train=parts[0], test=parts[1]))
    return clients


def main() -> None:
    """Run one method both ways on four small clients, and print how far apart they end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=METHODS, default="fedco2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    clients = build_small_clients({"north": 33, "east": 20, "south": 45, "west": 26}, options.seed)
    task = {"rounds": options.rounds, "epochs": options.epochs, "seed": options.seed}
    task |= {"lr": 0.1, "batch_size": 16, "classes": 4, "dtype": torch.float64}
    plain = run_reference(options.method, build_small_net, clients, **task)
    ours = run_fedtrain(options.method, build_small_net, clients, **task)
    for name, split in plain.scores[-1].items():
        print(f"{name:8}", *(f"{branch} {score.accuracy:.3f}" for branch, score in split["test"].items()))
    weights, loss, accuracy = measure_differences(plain, ours)
    print(f"largest difference from the trainer: entries {weights:.1e}, loss {loss:.1e}, accuracy {accuracy:.1e}")


if __name__ == "__main__":
    main()
