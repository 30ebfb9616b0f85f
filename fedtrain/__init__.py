"""Federated learning when clients' data differ: train, load runs, evaluate and compare them.

    import fedtrain

    run = fedtrain.train(dataset="digits", method="fedco2", rounds=10)
    run.accuracy()

What is where: ``methods`` (nine small files), ``models``, ``data`` (data sets, partitions, stand-ins), ``config``
(settings and presets), ``federated`` (messages, server, client), ``backends`` (where clients run), ``runs`` (loop,
folder, checkpoints), ``inference``, ``report``, ``reproduce`` and ``flower``. The story of a run is ``training``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedtrain.registry import METHOD_CLASSES

if TYPE_CHECKING:
    from fedtrain.comparison import Comparison, compare
    from fedtrain.config.schema import Config
    from fedtrain.data.client_data import ClientData, Samples
    from fedtrain.errors import TrainingError
    from fedtrain.methods import METHODS
    from fedtrain.methods.copa import Copa
    from fedtrain.methods.fedavg import FedAvg
    from fedtrain.methods.fedbn import FedBN
    from fedtrain.methods.fedco2 import FedCO2
    from fedtrain.methods.fedper import FedPer
    from fedtrain.methods.fedprox import FedProx
    from fedtrain.methods.fedrod import FedRoD
    from fedtrain.methods.moon import Moon
    from fedtrain.methods.singleset import SingleSet
    from fedtrain.models.net import Net
    from fedtrain.run import Run, evaluate, load_run
    from fedtrain.runs.callbacks import Callback, RoundProgress, RunStart
    from fedtrain.training import TrainingPlan, plan, train
    from theory.errors import InputError

HOMES = {
    "fedtrain.comparison": ("Comparison", "compare"),
    "fedtrain.config.schema": ("Config",),
    "fedtrain.data.client_data": ("ClientData", "Samples"),
    "fedtrain.errors": ("TrainingError",),
    "fedtrain.methods": ("METHODS",),
    **{f"fedtrain.methods.{name}": (kind,) for name, kind in METHOD_CLASSES.items()},
    "fedtrain.models.net": ("Net",),
    "fedtrain.run": ("Run", "evaluate", "load_run"),
    "fedtrain.runs.callbacks": ("Callback", "RoundProgress", "RunStart"),
    "fedtrain.training": ("TrainingPlan", "plan", "train"),
    "theory.errors": ("InputError",),
}  # fmt: skip
"""Where each public name is defined. They are loaded when they are first used, so that importing this package is
quick and takes no torch."""

__all__ = [
    "METHODS",
    "Callback",
    "ClientData",
    "Comparison",
    "Config",
    "Copa",
    "FedAvg",
    "FedBN",
    "FedCO2",
    "FedPer",
    "FedProx",
    "FedRoD",
    "InputError",
    "Moon",
    "Net",
    "RoundProgress",
    "Run",
    "RunStart",
    "Samples",
    "SingleSet",
    "TrainingError",
    "TrainingPlan",
    "compare",
    "evaluate",
    "load_run",
    "plan",
    "train",
]


def __getattr__(name: str) -> Any:
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'fedtrain' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
