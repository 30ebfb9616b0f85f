"""What there is to choose from, by name. Nothing is loaded to list it, so that the command line starts at once."""

from __future__ import annotations

from typing import Literal, get_args

METHOD_CLASSES = {
    "singleset": "SingleSet",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedper": "FedPer",
    "moon": "Moon",
    "fedrod": "FedRoD",
    "copa": "Copa",
    "finetune": "FineTune",
    "scaffold": "Scaffold",
    "fedrep": "FedRep",
    "lgfedavg": "LGFedAvg",
    "ditto": "Ditto",
    "pfedme": "PFedMe",
    "apfl": "APFL",
    "fml": "FML",
    "knnper": "KnnPer",
    "fedproto": "FedProto",
    "fedbn": "FedBN",
    "cooperate": "Cooperate",
    "fedco2": "FedCO2",
}
"""The class of each method; it is in the module of ``fedtrain.methods`` that has the method's name."""

AGGREGATOR_CLASSES = {
    "mean": ("mean", "Mean"),
    "fedavgm": ("server_optimizers", "FedAvgM"),
    "fedadam": ("server_optimizers", "FedAdam"),
    "fedyogi": ("server_optimizers", "FedYogi"),
    "fedadagrad": ("server_optimizers", "FedAdagrad"),
    "median": ("robust", "CoordinateMedian"),
    "trimmed-mean": ("robust", "TrimmedMean"),
    "norm-clipping": ("robust", "NormClipping"),
}
"""The module of ``fedtrain.aggregators`` and the class of each way to aggregate."""

TRACKER_CLASSES = {"tensorboard": "TensorBoard", "wandb": "Wandb", "mlflow": "MLflow"}
"""The class of each tracker; it is in the module of ``fedtrain.trackers`` that has the tracker's name."""

BuiltInModel = Literal["digits", "alexnet", "cifar", "two-layer", "mlp", "resnet"]
MODEL_NAMES: tuple[BuiltInModel, ...] = get_args(BuiltInModel)

MetricName = Literal["balanced_accuracy", "macro_f1", "auroc", "auprc", "sensitivity", "specificity", "ece", "brier"]
METRIC_NAMES: tuple[MetricName, ...] = get_args(MetricName)
TWO_CLASS_METRICS: tuple[MetricName, ...] = ("sensitivity", "specificity")

FusionRule = Literal["own", "logits", "probabilities", "weighted", "best"]
FUSION_RULES: tuple[FusionRule, ...] = get_args(FusionRule)

DATASET_NAMES = ("digits", "office", "domainnet", "cifar10", "cifar100")
