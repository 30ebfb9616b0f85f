"""Scores beside accuracy and loss, from probabilities and labels, by scikit-learn's formulas.

Where the labels are all of one class, most of them are undefined, which is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fedtrain.registry import MetricName

Probabilities = NDArray[np.float64]
"""Of each sample and class."""
Labels = NDArray[np.int64]
CALIBRATION_BINS = 15
NEEDS_NO_OTHER_CLASS = ("ece", "brier")


def compute_metrics(
    names: Sequence[MetricName], probabilities: Probabilities, labels: Labels
) -> dict[str, float | None]:
    """Each score by name. Of two classes, the second is the positive one."""
    lost = not np.isfinite(probabilities).all()  # of a network that blew up; its loss says so
    single = len(np.unique(labels)) < 2
    undefined = {name for name in names if lost or (single and name not in NEEDS_NO_OTHER_CLASS)}
    return {name: None if name in undefined else FORMULAS[name](probabilities, labels) for name in names}


def compute_balanced_accuracy(p: Probabilities, y: Labels) -> float:
    """The mean of the shares of each class that are recognised, over the classes that there are."""
    from sklearn.metrics import recall_score  # takes a second to load, so only where it is wanted

    return float(recall_score(y, p.argmax(1), labels=np.unique(y), average="macro"))


def compute_macro_f1(p: Probabilities, y: Labels) -> float:
    """The mean over classes, those that there are and those that are predicted."""
    from sklearn.metrics import f1_score

    return float(f1_score(y, p.argmax(1), average="macro", zero_division=0))


def compute_auroc(p: Probabilities, y: Labels) -> float:
    """The area under the ROC curve; with more than two classes, the mean of each against the rest."""
    from sklearn.metrics import roc_auc_score

    return fmean(float(roc_auc_score(y == k, p[:, k])) for k in _list_positive_classes(p, y))


def compute_auprc(p: Probabilities, y: Labels) -> float:
    """The average precision; with more than two classes, the mean of each against the rest."""
    from sklearn.metrics import average_precision_score

    return fmean(float(average_precision_score(y == k, p[:, k])) for k in _list_positive_classes(p, y))


def compute_sensitivity(p: Probabilities, y: Labels) -> float:
    """The share of the second class that is recognised."""
    return float((p.argmax(1)[y == 1] == 1).mean())


def compute_specificity(p: Probabilities, y: Labels) -> float:
    """The share of the first class that is recognised."""
    return float((p.argmax(1)[y == 0] == 0).mean())


def compute_calibration_error(p: Probabilities, y: Labels) -> float:
    """ECE = Σ_b n_b/n |accuracy_b - confidence_b| over bins b of equal width of the likeliest class's probability."""
    confidence, right = p.max(1), p.argmax(1) == y
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, right - confidence, CALIBRATION_BINS)
    return float(abs(gaps).sum() / len(y))


def compute_brier(p: Probabilities, y: Labels) -> float:
    """The mean of Σ_k (p_k - [y = k])²; of two classes half of it, which is the error of the second's probability."""
    errors = ((p - np.eye(p.shape[1])[y]) ** 2).sum(1)
    return float(errors.mean() / (2 if p.shape[1] == 2 else 1))


FORMULAS = {
    "balanced_accuracy": compute_balanced_accuracy,
    "macro_f1": compute_macro_f1,
    "auroc": compute_auroc,
    "auprc": compute_auprc,
    "sensitivity": compute_sensitivity,
    "specificity": compute_specificity,
    "ece": compute_calibration_error,
    "brier": compute_brier,
}


def _list_positive_classes(p: Probabilities, y: Labels) -> list[int]:
    """The classes that are told from the rest."""
    return [1] if p.shape[1] == 2 else np.unique(y).tolist()
