"""All that decides a run, in one frozen object that TOML can hold."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w
import torch

from fedtrain.aggregators import Aggregator, get_aggregator_class, get_aggregator_name
from fedtrain.aggregators.mean import Mean
from fedtrain.config.codec import parse_codec
from fedtrain.config.data import DataSettings
from fedtrain.config.local import LocalSettings
from fedtrain.config.method_tables import get_method_class, get_method_name, parse_method, serialize_method
from fedtrain.config.old_names import NEW_NAMES
from fedtrain.config.toml import (
    TomlTable,
    coerce_value,
    format_error,
    format_value,
    parse_section,
    serialize_section,
)
from fedtrain.extensions.references import BUILT_IN, build_unknown_error, find_extension
from fedtrain.methods import AnyMethod
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.registry import METRIC_NAMES, TWO_CLASS_METRICS, MetricName
from theory.errors import InputError
from theory.text import suggest_name

BackendName = Literal["auto", "serial", "threads", "vmap", "distributed"]
ClientWeighting = Literal["uniform", "size"]
SelectionRule = Literal["last", "best-by-validation", "window"]


@dataclass(frozen=True)
class ModelSettings:
    """Which network, and where it is cut into features and head."""

    name: str = "digits"
    """A network of ours or a plug-in, or a reference to one of yours; ``auto``: resnet for images, mlp for all else;
    ``own``: one that was given in Python."""
    head: str | None = None
    """The submodule that is the head of a network of yours, if it has no parts ``features`` and ``head``."""
    norm: bool = True
    """Normalisation: on the dense layers too (digits, alexnet), or anywhere at all (cifar, mlp, resnet)."""
    norm_kind: Literal["batch", "group"] = "batch"
    """Which normalisation mlp and resnet have."""
    split_at: Literal["auto", "conv", "last"] = "auto"
    """Where features end: before the dense layers, before the last of them, or where the method wants it."""
    width: int = 1024
    """Hidden units of two-layer."""
    units: int = 64
    """Of each hidden layer of mlp."""
    channels: int = 16
    """Of the first stage of resnet; each next one has twice as many."""

    def __post_init__(self) -> None:
        ours = self.name in BUILT_IN["model"]
        if not ours and find_extension("model", self.name) is None:
            raise build_unknown_error("model", self.name)
        if ours and self.name != "own" and self.head is not None:
            raise InputError(f"model.head is for networks of yours; {self.name} has a head: leave it out", ("head",))
        for name in ("width", "units", "channels"):
            if getattr(self, name) < 1:
                raise InputError(f"model.{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class ServerSettings:
    """How rounds are made."""

    rounds: int = 300
    participation: float = 1.0
    """The share of the clients that trains in a round."""
    weights: ClientWeighting = "uniform"
    """Whether clients count alike in the mean, or by their number of samples; the median always counts them alike."""
    peers: int = 0
    """How many other clients' heads each one is sent, drawn afresh each round; 0 for all, as in the paper."""
    heads_every: int = 1
    """Heads are published and sent every so many rounds; in those between, clients learn without their peers."""
    codec: str = "none"
    """How clients send what they learnt and publish: none (in full), float16, bfloat16, int8, topk:SHARE,
    lowrank:RANK, or the latter two with a format of numbers, such as topk:0.01+int8."""
    broadcast_codec: str = "none"
    """How the server sends what it averaged: the same words."""
    on_client_failure: Literal["stop", "skip"] = "stop"
    """When a client cannot train: stop the run, or leave that client out of that round's mean."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"server.rounds is {self.rounds}; it must be at least 1")
        if not 0 < self.participation <= 1:
            raise InputError(
                f"server.participation is {self.participation}; it is a share of the clients: choose it in (0, 1]"
            )
        if self.peers < 0:
            raise InputError(f"server.peers is {self.peers}; it must be 0 (all) or more")
        if self.heads_every < 1:
            raise InputError(f"server.heads_every is {self.heads_every}; it must be at least 1")
        sent = parse_codec(self.codec)
        if not parse_codec(self.broadcast_codec, "server.broadcast_codec").is_none and sent.is_none:
            raise InputError(
                f"server.broadcast_codec is {self.broadcast_codec!r}, so clients must send what they add to what they "
                "got, and with server.codec = none they send entries; set server.codec = float16 or another"
            )


@dataclass(frozen=True)
class EvaluationSettings:
    """When clients are evaluated, and which evaluation is reported."""

    every: int = 1
    """Every so many rounds, and after the last one."""
    report: SelectionRule = "last"
    """The last round; the round of the best mean accuracy on validation data; the mean over the window."""
    window: int = 0
    """How many last rounds make the window; in it evaluation is every ``window_every`` rounds."""
    window_every: int = 5
    clients: int = 0
    """How many clients are evaluated, drawn once for the whole run; 0 for all."""
    train: bool = False
    """Whether training data are evaluated too."""
    metrics: str = "none"
    """Scores beside accuracy and loss: none, all, or names separated by commas, such as auroc,brier."""
    save_predictions: bool = False
    """Whether what the last weights say of every test sample is kept in the run folder."""
    test: Literal["always", "chosen"] = "always"
    """chosen: test data only where a rule may report them, which is at a new best of validation, in the window and
    after the last round."""

    def __post_init__(self) -> None:
        for name in ("every", "window_every"):
            if getattr(self, name) < 1:
                raise InputError(f"evaluation.{name} is {getattr(self, name)}; it must be at least 1")
        parse_metrics(self.metrics)
        if self.clients < 0:
            raise InputError(f"evaluation.clients is {self.clients}; it must be 0 (all) or more")
        if self.window < 0 or (self.report == "window" and not self.window):
            raise InputError(f"evaluation.window is {self.window}; to report a window it must be at least 1")

    def is_due(self, round: int, rounds: int) -> bool:
        """Whether this round, counted from 1, is evaluated."""
        return round == rounds or round % self.every == 0 or self.is_in_window(round, rounds)

    def always_tests(self, round: int, rounds: int) -> bool:
        """Whether test data are evaluated in this round, if it is due, whatever validation says."""
        return self.test == "always" or round == rounds or self.is_in_window(round, rounds)

    def is_in_window(self, round: int, rounds: int) -> bool:
        """Whether this round is one of those whose mean is the window's; others may be evaluated between them."""
        counted = round == rounds or round % self.window_every == 0
        return self.window > 0 and round >= rounds - self.window and counted


def parse_metrics(text: str, classes: int = 2) -> tuple[MetricName, ...]:
    """The scores that ``evaluation.metrics`` names, for data of so many classes."""
    known = [name for name in METRIC_NAMES if classes == 2 or name not in TWO_CLASS_METRICS]
    if text in ("none", "all"):
        return tuple(known) if text == "all" else ()
    wanted = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in wanted:
        if name not in METRIC_NAMES:
            raise InputError(
                f"unknown score {format_value(name)} in evaluation.metrics; "
                f"{suggest_name(name, [*METRIC_NAMES, 'all', 'none'])}"
            )
        if name not in known:
            raise InputError(
                f"evaluation.metrics names {name}, which is of two classes, and there are {classes}; leave it out"
            )
    return tuple(name for name in known if name in wanted)


@dataclass(frozen=True)
class CheckpointSettings:
    """Which checkpoints stay; the last one always does, and is written as often as costs little."""

    every: int = 0
    """Keep one of every so many rounds; 0 for none."""
    keep: int = 3
    """How many of those stay, the latest."""

    def __post_init__(self) -> None:
        for name, least in (("every", 0), ("keep", 1)):
            if getattr(self, name) < least:
                raise InputError(f"checkpoints.{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True)
class MachineSettings:
    """Where it runs; the mathematics do not depend on it."""

    device: str = "auto"
    """cpu, cuda, cuda:1, or auto: CUDA if it is there."""
    threads: int | None = None
    """Threads of torch; without it torch decides."""
    dtype: Literal["float32", "float64"] = "float32"
    amp: bool = False
    """Automatic mixed precision: losses and predictions in bfloat16, for GPUs that are fast with it."""
    fast_path: bool = True
    """Faster ways to compute a training step, equal to the plain one up to rounding."""
    backend: BackendName = "auto"
    """serial: one client after the other; threads: several at a time, a core each (on CUDA a stream); vmap: all
    clients of a round in one computation (for GPUs); distributed: divided among processes, each with cores or a GPU
    of its own; auto: threads on CPUs with the fast path, else serial."""
    client_state: Literal["memory", "disk"] = "memory"
    """Where a client's own entries wait for its turn; on disk they take memory only while nobody else needs it."""

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise InputError(f"machine.threads is {self.threads}; it must be at least 1")
        if self.device == "auto":
            return
        try:
            kind = torch.device(self.device).type
        except RuntimeError:
            raise InputError(f"unknown device {self.device!r}; use auto, cpu or cuda") from None
        if kind not in ("cpu", "cuda"):
            raise InputError(f"device {self.device!r} is not supported; use auto, cpu or cuda")

    def resolve_device(self) -> torch.device:
        """The device to run on; refused if it is not there, which the settings of a run made elsewhere need not be."""
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        device = torch.device(("cuda" if there else "cpu") if self.device == "auto" else self.device)
        if device.type == "cuda" and not there:
            raise InputError(
                f"device {self.device!r} is not there: this torch sees no CUDA; use cpu", options=("device",)
            )
        if device.type == "cuda" and (device.index or 0) >= there:
            raise InputError(f"device {self.device!r} is not there: the last one here is cuda:{there - 1}")
        return device


@dataclass(frozen=True)
class Config:
    """A run is a function of this, of the data, and of nothing else."""

    seed: int = 1
    """Of networks, batches, augmentation, noise and cohorts; the partition has its own."""
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    method: AnyMethod = field(default_factory=FedCO2)
    local: LocalSettings = field(default_factory=LocalSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    aggregator: Aggregator = field(default_factory=Mean)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    machine: MachineSettings = field(default_factory=MachineSettings)

    @property
    def method_name(self) -> str:
        """What the command line calls the method; of a class that is not part of fedco2, where it is defined."""
        return get_method_name(self.method)

    @property
    def aggregator_name(self) -> str:
        """What the command line calls the aggregator."""
        return get_aggregator_name(type(self.aggregator))


SECTIONS: dict[str, type[Any]] = {
    "data": DataSettings,
    "model": ModelSettings,
    "local": LocalSettings,
    "server": ServerSettings,
    "evaluation": EvaluationSettings,
    "checkpoints": CheckpointSettings,
    "machine": MachineSettings,
}


def parse_config(tables: Mapping[str, Any]) -> Config:
    """Read a configuration, every key and type checked."""
    for key, value in tables.items():
        if key not in {*SECTIONS, "method", "aggregator", "seed"}:
            known = [*SECTIONS, "method", "aggregator", "seed"]
            raise InputError(f"unknown section {format_value(key)}; {suggest_name(key, known)}")
        if key != "seed" and not isinstance(value, Mapping):
            raise InputError(f"{key} is {format_value(value)}; it must be a section: [{key}]")
        for path in (f"{key}.{name}" for name in value) if isinstance(value, Mapping) else ():
            if path in NEW_NAMES:
                raise InputError(f"{path} has a new name; write {NEW_NAMES[path]}")
    sections = {name: parse_section(kind, tables.get(name, {}), name) for name, kind in SECTIONS.items()}
    method = dict(tables.get("method", {}))
    kind = get_method_class(method.pop("name", "fedco2"))
    server = dict(tables.get("aggregator", {}))
    server_kind = get_aggregator_class(coerce_value(server.pop("name", "mean"), str, "aggregator.name"))
    seed = tables.get("seed", 1)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise InputError(f"seed is {format_value(seed)}; it must be a whole number, 0 or more and below 2^63")
    chosen = parse_method(kind, method)
    sections["local"] = sections["local"].with_schedule_length(sections["server"].rounds)
    return Config(
        seed=seed,
        method=chosen,
        aggregator=parse_section(server_kind, server, "aggregator", server_kind.title),
        **sections,
    )


def serialize_config(config: Config) -> TomlTable:
    """The whole configuration, defaults included."""
    tables: TomlTable = {"seed": config.seed}
    for name in SECTIONS:
        tables[name] = serialize_section(getattr(config, name))
    tables["aggregator"] = {"name": config.aggregator_name, **serialize_section(config.aggregator)}
    return tables | {"method": {"name": config.method_name, **serialize_method(config.method)}}


def load_toml(path: Path) -> TomlTable:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a TOML file: {format_error(error)}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a TOML file") from None


def format_config(config: Config) -> str:
    """As TOML."""
    return tomli_w.dumps(serialize_config(config))
