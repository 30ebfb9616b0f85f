"""What is recorded: each case is a name and what is said on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from golden_words import CLIENTS, DISTRIBUTED, FORECAST, SERIAL, THEORY, THREADS, TRAIN, VMAP

METHODS = ("singleset", "fedavg", "fedprox", "fedper", "moon", "fedrod", "copa", "fedbn", "fedco2")

EXACT, DOUBLE, SINGLE, GROWN = 0.0, 1e-6, 2e-2, 2e-1
"""How far numbers may be off on a machine that none was recorded on: not at all, in float64, in float32, and where
hundreds of steps with momentum let rounding grow."""
ACCURACY = 0.02
"""How far the share of right classes may be off there: the head of two layers is all ±1, so that often two classes
have the same logit, and rounding decides."""


@dataclass(frozen=True)
class Case:
    """A command, and how closely another machine must agree."""

    name: str
    command: tuple[str, ...]
    options: Mapping[str, Any]
    then: Mapping[str, Any] | None = None
    """What is said when a run is taken up again; None: it is not."""
    tolerance: float = EXACT
    like: str | None = None
    """The case whose recording this one must reproduce bit by bit; None: it has its own."""
    grows: bool = False
    """Whether new findings may join: their digests count on kinds of machines that recorded them, those of the old ones
    on all. Verdicts are always compared."""
    own_data: Mapping[str, str] = field(default_factory=dict)
    """Options that take a file of own data, and which."""


# --- training

SMALL = {"data": "standin", "network": "two-layer", "threads": 1}
FEATURE = SMALL | {
    "dataset": "digits", "skew": "domain", "hidden": 16, "share": 0.02, "participation": 0.6, "rounds": 2,
    "dtype": "float64",
}  # fmt: skip
"""In float64, so that other machines can be held to more digits."""
SPREAD = SMALL | {
    "dataset": "cifar10", "clients": 12, "hidden": 8, "local_epochs": 1, "eval_every": 2, "participation": 0.25,
    "rounds": 2, "lr": 0.002, "dtype": "float64",
}  # fmt: skip
LABEL = SPREAD | {"skew": "dirichlet", "alpha": 0.3, "clients": 6, "participation": 0.5, "dtype": "float32"}
RESUMED = {"rounds": 4, "threads": 1}
DIGITS = SMALL | {"dataset": "digits", "network": "digits", "share": 0.01, "participation": 0.6, "rounds": 1}
CIFAR = SMALL | {
    "dataset": "cifar10", "network": "cifar", "skew": "dirichlet", "clients": 20, "local_epochs": 1,
    "participation": 0.1, "rounds": 1, "lr": 0.002,
}  # fmt: skip
OFFICE = SMALL | {"dataset": "office", "hidden": 8, "rounds": 1, "first": 20, "val_size": 10}


def train(name: str, options: Mapping[str, Any], also: Mapping[str, Any], **more: Any) -> Case:
    """A run; in float64 if the options say so."""
    said = {**options, **also}
    usual = DOUBLE if said.get("dtype") == "float64" else SINGLE
    return Case(name, TRAIN, said, tolerance=more.pop("tolerance", usual), **more)


CONVENTIONS = {"feature": (FEATURE, DOUBLE), "label": (LABEL, GROWN)}
RESUMED_RUNS = [
    train(f"{convention} {method}", options, also={"method": method}, then=RESUMED, tolerance=tolerance)
    for convention, (options, tolerance) in CONVENTIONS.items()
    for method in METHODS
]
OTHER_RUNS = [
    # convolutions: the fast path with threads, what is to give the same, and the other ways to compute it
    train("digits threads", DIGITS, also={"method": "fedbn", "backend": THREADS, "threads": 2}),
    train("digits in turn", DIGITS, also={"method": "fedbn", "backend": SERIAL}, like="digits threads"),
    train("digits stacked", DIGITS, also={"method": "fedbn", "backend": VMAP}),
    train("digits plain", DIGITS, also={"method": "fedbn", "fast_path": "false"}),
    train("cifar fedco2", CIFAR, also={"method": "fedco2"}),
    train("cifar plain fedco2", CIFAR, also={"method": "fedco2", "fast_path": "false"}),
    # two layers, and all the other switches
    train("stacked fedco2", FEATURE, also={"method": "fedco2", "backend": VMAP}, then=RESUMED),
    train("plain fedco2", FEATURE, also={"method": "fedco2", "fast_path": "false"}, then=RESUMED),
    train("single fedco2", FEATURE, also={"method": "fedco2", "dtype": "float32"}, then=RESUMED),
    train("single plain copa", FEATURE, also={"method": "copa", "dtype": "float32", "fast_path": "false"}),
    train(
        "kept on disk", FEATURE, also={"method": "fedco2", "client_state": "disk"}, then=RESUMED, like="feature fedco2"
    ),
    train("few peers", FEATURE, also={"method": "fedco2", "peers": 2}),
    train("fedco2 online heads", FEATURE, also={"method": "fedco2", "intra": "none", "inter": "online"}),
    train("augmented", OFFICE, also={"method": "fedco2"}),
    # every other way to spread data, with what a client sees of them
    train("label+feature", FEATURE, also={"method": "fedbn", "skew": "label+feature", "share": "none", "rounds": 1}),
    train("noise", SPREAD, also={"preset": "cifar10-noise", "method": "fedco2", "skew": "iid", "noise": 20.0}),
    train("noise published", SPREAD, also={"preset": "cifar10-noise-published", "method": "fedbn", "skew": "iid"}),
    train("pathological", SPREAD, also={"method": "fedper", "skew": "pathological", "clients": 10}, tolerance=GROWN),
    train("pachinko", SPREAD, also={"dataset": "cifar100", "method": "fedrod", "skew": "pachinko"}),
    # the quirks of the published code
    train("published fedprox", FEATURE, also={"preset": "digits-published", "method": "fedprox"}),
    train("published moon", SPREAD, also={"preset": "cifar10-published", "method": "moon", "skew": "dirichlet"}),
    train("published fedrod", SPREAD, also={"preset": "cifar10-published", "method": "fedrod", "skew": "dirichlet"}),
]

RANKS = 2
ON_DISTRIBUTED = {"backend": DISTRIBUTED}
"""What a run is told beside the rest when its processes are already there."""
ON_RANKS = {
    "feature": [f"feature {method}" for method in METHODS],
    "label": ["label fedprox", "label copa", "label fedco2"],
}
"""Runs that several processes must reproduce; each line is one launch."""

# --- theory, forecasts, partitions

TINY = {"clients": 3, "samples": 6, "dim": 5, "width": 256, "steps": 20}
THEORIES = [
    Case("theory", THEORY, TINY, tolerance=DOUBLE, grows=True),
    Case(
        "theory isotropic", THEORY, TINY | {"covariance": "isotropic", "draws": 2, "seed": 3, "alpha": 0.8},
        tolerance=DOUBLE, grows=True,
    ),
    Case("theory own data", THEORY, {"width": 256, "steps": 20, "certify": True}, tolerance=DOUBLE, grows=True,
         own_data={"dataset": "numbers"}),
]  # fmt: skip
FORECASTS = [
    Case("forecast", FORECAST, {"dataset": "digits", "data": "standin", "samples": 24, "width": 256}, tolerance=DOUBLE,
         grows=True),
    Case("forecast own data", FORECAST, {"width": 256}, tolerance=DOUBLE, grows=True, own_data={"dataset": "classes"}),
    Case("forecast numbers", FORECAST, {"width": 128, "network_seed": 5}, tolerance=DOUBLE, grows=True,
         own_data={"dataset": "numbers"}),
]  # fmt: skip


def clients(name: str, dataset: str, skew: str, **more: Any) -> Case:
    """A partition: whole numbers, the same on every machine."""
    return Case(f"clients {name}", CLIENTS, {"dataset": dataset, "data": "standin", "skew": skew, **more})


PARTITIONS = [
    clients("domain", "digits", "domain", percent=0.05),
    clients("domain office", "office", "domain"),
    clients("label+feature", "digits", "label+feature", data_seed=1),
    clients("label+feature office", "office", "label+feature", divide=2),
    clients("iid", "cifar10", "iid", clients=7),
    clients("pathological", "cifar10", "pathological", clients=20, classes_per_client=3),
    clients("dirichlet", "cifar10", "dirichlet", alpha=0.3, clients=12),
    clients("dirichlet cifar100", "cifar100", "dirichlet", alpha=1.0, clients=5, data_seed=4),
    clients("pachinko", "cifar100", "pachinko", clients=10, alpha=0.5),
]

CASES = {case.name: case for case in (*RESUMED_RUNS, *OTHER_RUNS, *THEORIES, *FORECASTS, *PARTITIONS)}
