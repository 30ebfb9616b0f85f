"""The options of a run by name, and the setting that each stands for: keywords in Python, flags on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from fedtrain.config.toml import TomlTable, merge_tables, parse_override
from theory.errors import InputError
from theory.text import suggest_name

if TYPE_CHECKING:
    from torch.optim import Optimizer

SETTING_FOR_OPTION = {
    "method": "method.name",
    "model": "model.name",
    "head": "model.head",
    "dataset": "data.dataset",
    "data": "data.source",
    "client_column": "data.client_column",
    "target": "data.target",
    "split_column": "data.split_column",
    "categories": "data.categories",
    "ignore": "data.ignore",
    "missing": "data.missing",
    "standardise": "data.standardise",
    "image_size": "data.image_size",
    "skew": "data.skew",
    "alpha": "data.alpha",
    "clients": "data.clients",
    "hold_out": "data.hold_out",
    "data_seed": "data.seed",
    "rounds": "server.rounds",
    "participation": "server.participation",
    "aggregator": "aggregator.name",
    "peers": "server.peers",
    "codec": "server.codec",
    "broadcast_codec": "server.broadcast_codec",
    "heads_every": "server.heads_every",
    "local_epochs": "local.epochs",
    "batch_size": "local.batch_size",
    "optimizer": "local.optimizer",
    "lr": "local.lr",
    "lr_schedule": "local.lr_schedule",
    "momentum": "local.momentum",
    "weight_decay": "local.weight_decay",
    "eval_every": "evaluation.every",
    "eval_clients": "evaluation.clients",
    "metrics": "evaluation.metrics",
    "save_predictions": "evaluation.save_predictions",
    "checkpoint_every": "checkpoints.every",
    "on_client_failure": "server.on_client_failure",
    "device": "machine.device",
    "threads": "machine.threads",
    "fast_path": "machine.fast_path",
    "backend": "machine.backend",
    "client_state": "machine.client_state",
    "seed": "seed",
}


class TrainOptions(TypedDict, total=False):
    """What ``fedco2 train --help`` lists, as keywords of `fedtrain.train`."""

    dataset: str | Path
    """digits, office, domainnet, cifar10, cifar100, the name of one that was added, the path of your own, or a
    reference to a function that gives one."""
    data: Literal["auto", "real", "standin"]
    """Real data if they are there, else the built-in stand-in; only real data; only the stand-in."""
    client_column: str
    """Table: the column that says whose a row is."""
    target: str
    """Table: the column to be predicted."""
    split_column: str
    """Table: the column that says train or test."""
    categories: Sequence[str]
    """Table: columns that are categories although they hold numbers."""
    ignore: Sequence[str]
    """Table: columns that are left out."""
    missing: Literal["mean", "drop", "refuse"]
    """Table: what is done with missing values."""
    standardise: Literal["auto", "client", "pooled", "none"]
    """Whose mean and standard deviation numbers are standardised by."""
    image_size: int
    """Found images: resized to squares of so many pixels."""
    head: str
    """The submodule that is the head of a network of yours, if it has no parts features and head."""
    skew: Literal["domain", "label+feature", "iid", "pathological", "dirichlet", "pachinko"]
    """How the clients' data differ."""
    alpha: float
    """Dirichlet concentration; smaller is more skewed."""
    data_seed: int
    """Of the partition."""
    hold_out: str
    """A client that takes no part in training, and is reported on as one that was never seen."""
    rounds: int
    """Rounds of federated training."""
    participation: float
    """Share of the clients that train in a round."""
    peers: int
    """Number of peer heads sent to each client (default: all)."""
    codec: str
    """How clients send what they learnt: none (in full), float16, bfloat16, int8, topk:0.01, lowrank:4 and so on."""
    broadcast_codec: str
    """How the server sends what it averaged: the same words."""
    heads_every: int
    """Publish and send heads every so many rounds."""
    local_epochs: int
    """Passes over the local data in a round."""
    batch_size: int
    """Samples of a step."""
    optimizer: str | type[Optimizer]
    """sgd, adam, adamw, or another class of ``torch.optim`` by name; or one of yours: the class, or a reference."""
    lr: float
    """Learning rate."""
    lr_schedule: Literal["constant", "cosine", "step"]
    """How the learning rate falls over rounds."""
    momentum: float
    """Momentum of SGD."""
    weight_decay: float
    """Weight decay."""
    seed: int
    """Of networks, batches, noise and cohorts."""
    eval_every: int
    """Evaluate every so many rounds, and after the last."""
    eval_clients: int
    """Evaluate so many clients, drawn once for the whole run (default: all)."""
    metrics: str
    """Scores beside accuracy and loss: none, all, or names separated by commas, such as auroc,brier."""
    save_predictions: bool
    """Keep what the last weights say of every test sample in the run folder."""
    checkpoint_every: int
    """Keep the checkpoint of every so many rounds."""
    on_client_failure: Literal["stop", "skip"]
    """When a client fails: stop the run, or leave the client out of that round."""
    device: str
    """auto, cpu or cuda."""
    threads: int
    """Cores to use."""
    fast_path: bool
    """Faster training steps, equal up to rounding."""
    backend: Literal["auto", "serial", "threads", "vmap", "distributed"]
    """How clients run."""
    client_state: Literal["memory", "disk"]
    """Where personal state waits for its client's turn."""


def nest_options(options: Mapping[str, Any], sets: Iterable[str] = ()) -> TomlTable:
    """Options by name, and overrides such as ``method.mu=0.5``, as the tables of a configuration; overrides win."""
    for name in options:
        if name not in SETTING_FOR_OPTION:
            raise InputError(f"unknown option {name!r}; {suggest_name(name, SETTING_FOR_OPTION)}")
    paths = {
        SETTING_FOR_OPTION[name]: str(value) if isinstance(value, Path) else value
        for name, value in options.items()
        if value is not None
    }
    return merge_tables(nest_settings(paths), *(_nest(*parse_override(text)) for text in sets))


def nest_settings(settings: Mapping[str, Any]) -> TomlTable:
    """Settings by path, ``{"method.mu": 0.5}``, as the tables of a configuration."""
    tables: TomlTable = {}
    for path, value in settings.items():
        section, dot, key = path.partition(".")
        if not dot and section != "seed":
            raise InputError(f"setting {path!r} has no section; write it as section.key, for instance local.lr")
        tables = merge_tables(tables, _nest(section, key, value))
    return tables


def _nest(section: str, key: str, value: Any) -> TomlTable:
    return {section: {key: value}} if key else {section: value}
