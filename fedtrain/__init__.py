"""Federated learning when clients' data differ: train, load runs, evaluate and compare them.

    import fedtrain

    run = fedtrain.train(dataset="digits", method="fedco2", rounds=10)
    run.accuracy()

What is where: ``methods`` (a small file each), ``models``, ``data`` (data sets, partitions, stand-ins), ``config``
(settings and presets), ``federated`` (messages, server, client), ``backends`` (where clients run), ``runs`` (loop,
folder, checkpoints), ``inference``, ``report``, ``reproduction`` and ``flower``. The story of a run is ``training``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedtrain.registry import METHOD_CLASSES

if TYPE_CHECKING:
    from fedtrain.aggregators import AGGREGATORS, Aggregate, Aggregator, CohortReplies
    from fedtrain.aggregators.mean import Mean
    from fedtrain.aggregators.robust import CoordinateMedian, NormClipping, TrimmedMean
    from fedtrain.aggregators.server_optimizers import FedAdagrad, FedAdam, FedAvgM, FedYogi
    from fedtrain.analysis.forecast_report import ForecastReport
    from fedtrain.comparison import Comparison, compare
    from fedtrain.config.schema import Config
    from fedtrain.data.client_data import ClientData, Samples
    from fedtrain.errors import TrainingError
    from fedtrain.forecasting import forecast
    from fedtrain.methods import METHODS, Method
    from fedtrain.methods.apfl import APFL
    from fedtrain.methods.cooperate import Cooperate
    from fedtrain.methods.copa import Copa
    from fedtrain.methods.ditto import Ditto
    from fedtrain.methods.fedavg import FedAvg
    from fedtrain.methods.fedbn import FedBN
    from fedtrain.methods.fedco2 import FedCO2
    from fedtrain.methods.fedper import FedPer
    from fedtrain.methods.fedproto import FedProto
    from fedtrain.methods.fedprox import FedProx
    from fedtrain.methods.fedrep import FedRep
    from fedtrain.methods.fedrod import FedRoD
    from fedtrain.methods.finetune import FineTune
    from fedtrain.methods.fml import FML
    from fedtrain.methods.knnper import KnnPer
    from fedtrain.methods.lgfedavg import LGFedAvg
    from fedtrain.methods.moon import Moon
    from fedtrain.methods.pfedme import PFedMe
    from fedtrain.methods.scaffold import Scaffold
    from fedtrain.methods.singleset import SingleSet
    from fedtrain.models.net import Net
    from fedtrain.reproduction.outcome import Reproduction
    from fedtrain.reproduction.reproduce import ReproductionPlan, plan_reproduction, reproduce
    from fedtrain.run import Run, evaluate, load_run
    from fedtrain.runs.callbacks import Callback, RoundProgress, RunStart
    from fedtrain.training import TrainingPlan, plan, train
    from theory.errors import InputError

HOMES = {
    "fedtrain.aggregators": ("AGGREGATORS", "Aggregate", "Aggregator", "CohortReplies"),
    "fedtrain.aggregators.mean": ("Mean",),
    "fedtrain.aggregators.robust": ("CoordinateMedian", "NormClipping", "TrimmedMean"),
    "fedtrain.aggregators.server_optimizers": ("FedAdagrad", "FedAdam", "FedAvgM", "FedYogi"),
    "fedtrain.comparison": ("Comparison", "compare"),
    "fedtrain.config.schema": ("Config",),
    "fedtrain.data.client_data": ("ClientData", "Samples"),
    "fedtrain.errors": ("TrainingError",),
    "fedtrain.methods": ("METHODS", "Method"),
    "fedtrain.analysis.forecast_report": ("ForecastReport",),
    "fedtrain.forecasting": ("forecast",),
    **{f"fedtrain.methods.{name}": (kind,) for name, kind in METHOD_CLASSES.items()},
    "fedtrain.models.net": ("Net",),
    "fedtrain.reproduction.outcome": ("Reproduction",),
    "fedtrain.reproduction.reproduce": ("ReproductionPlan", "plan_reproduction", "reproduce"),
    "fedtrain.run": ("Run", "evaluate", "load_run"),
    "fedtrain.runs.callbacks": ("Callback", "RoundProgress", "RunStart"),
    "fedtrain.training": ("TrainingPlan", "plan", "train"),
    "theory.errors": ("InputError",),
}  # fmt: skip
"""Where each public name is defined. They are loaded when they are first used, so that importing this package is
quick and takes no torch."""

__all__ = [
    "AGGREGATORS",
    "APFL",
    "FML",
    "METHODS",
    "Aggregate",
    "Aggregator",
    "Callback",
    "ClientData",
    "CohortReplies",
    "Comparison",
    "Config",
    "Cooperate",
    "CoordinateMedian",
    "Copa",
    "Ditto",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBN",
    "FedCO2",
    "FedPer",
    "FedProto",
    "FedProx",
    "FedRep",
    "FedRoD",
    "FedYogi",
    "FineTune",
    "ForecastReport",
    "InputError",
    "KnnPer",
    "LGFedAvg",
    "Mean",
    "Method",
    "Moon",
    "Net",
    "NormClipping",
    "PFedMe",
    "Reproduction",
    "ReproductionPlan",
    "RoundProgress",
    "Run",
    "RunStart",
    "Samples",
    "Scaffold",
    "SingleSet",
    "TrainingError",
    "TrainingPlan",
    "TrimmedMean",
    "compare",
    "evaluate",
    "forecast",
    "load_run",
    "plan",
    "plan_reproduction",
    "reproduce",
    "train",
]


def __getattr__(name: str) -> Any:
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'fedtrain' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
