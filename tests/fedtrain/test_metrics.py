"""Every score equals that of torchmetrics, or of scikit-learn where ours is our own; undefined ones are None."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedtrain.config.schema import EvaluationSettings, parse_metrics
from fedtrain.metrics import NEEDS_NO_OTHER_CLASS, compute_metrics
from fedtrain.registry import METRIC_NAMES, TWO_CLASS_METRICS
from theory.errors import InputError


@st.composite
def answers(draw):
    """Probabilities that agree with nothing, with ties among them, and labels of some of the classes."""
    k, n, seed = draw(st.integers(2, 4)), draw(st.integers(2, 30)), draw(st.integers(0, 10**6))
    chance = np.random.default_rng(seed)
    z = np.round(chance.normal(size=(n, k)) * 2, draw(st.sampled_from([0, 3])))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return p, chance.integers(draw(st.integers(2, k)), size=n)


def ask_torchmetrics(p, y):
    """By the mean over the classes that there are, as the formulas say."""
    from torchmetrics.functional import classification as tm

    probabilities, labels, k = torch.tensor(p), torch.tensor(y), p.shape[1]
    # the first of equal probabilities is the prediction, for torchmetrics too
    predicted, there = torch.tensor(p.argmax(1)), torch.tensor(np.unique(y))
    positive = [1] if k == 2 else there.tolist()
    return {
        "balanced_accuracy": tm.multiclass_recall(predicted, labels, k, average="none")[there].mean().item(),
        "macro_f1": tm.multiclass_f1_score(predicted, labels, k, average="macro").item(),
        "auroc": np.mean([tm.binary_auroc(probabilities[:, c], (labels == c).int()).item() for c in positive]),
        "auprc": np.mean(
            [tm.binary_average_precision(probabilities[:, c], (labels == c).int()).item() for c in positive]
        ),
        "sensitivity": tm.binary_recall(predicted, labels).item() if k == 2 else None,
        "specificity": tm.binary_specificity(predicted, labels).item() if k == 2 else None,
        "ece": tm.multiclass_calibration_error(probabilities, labels, k, n_bins=15).item(),
    }


@given(answers())
@settings(max_examples=15, deadline=None)
def test_scores_are_those_of_torchmetrics(answer):
    p, y = answer
    assume(len(np.unique(y)) > 1)
    names = parse_metrics("all", p.shape[1])
    ours = compute_metrics(names, p, y)
    for name, theirs in ask_torchmetrics(p, y).items():
        if name in names:
            assert ours[name] == pytest.approx(theirs, abs=1e-6), name  # float32 there


@given(answers())
@settings(max_examples=15, deadline=None)
def test_brier_is_that_of_scikit_learn(answer):
    from sklearn.metrics import brier_score_loss

    p, y = answer
    theirs = (
        brier_score_loss(y, p[:, 1], pos_label=1)
        if p.shape[1] == 2
        else brier_score_loss(y, p, labels=range(p.shape[1]), scale_by_half=False)
    )
    assert compute_metrics(["brier"], p, y)["brier"] == pytest.approx(theirs)


@given(answers(), st.integers(0, 1))
@settings(max_examples=10, deadline=None)
def test_of_one_class_nothing_is_defined_but_calibration(answer, label):
    p, y = answer
    found = compute_metrics(parse_metrics("all", p.shape[1]), p, np.full_like(y, label))
    assert {name for name, value in found.items() if value is not None} == set(NEEDS_NO_OTHER_CLASS)


def test_a_network_that_blew_up_has_no_scores():
    found = compute_metrics(METRIC_NAMES, np.full((4, 2), np.nan), np.array([0, 1, 0, 1]))
    assert set(found.values()) == {None}


def test_perfect_and_worst_predictions():
    y = np.array([0, 1, 1])
    best, worst = np.eye(2)[y], np.eye(2)[1 - y]
    assert compute_metrics(METRIC_NAMES, best, y) == dict.fromkeys(METRIC_NAMES, 1.0) | {"ece": 0.0, "brier": 0.0}
    assert compute_metrics(METRIC_NAMES, worst, y)["auroc"] == 0
    assert compute_metrics(METRIC_NAMES, worst, y)["brier"] == 1


# ---- which of them


def test_the_setting_names_scores_in_one_order_and_once():
    assert parse_metrics("none") == ()
    assert parse_metrics("all", 2) == METRIC_NAMES
    assert parse_metrics("all", 3) == tuple(name for name in METRIC_NAMES if name not in TWO_CLASS_METRICS)
    assert parse_metrics("brier, auroc,brier") == ("auroc", "brier")


def test_wrong_scores_are_refused():
    with pytest.raises(InputError, match=r"unknown score 'auc' in evaluation\.metrics; did you mean"):
        EvaluationSettings(metrics="auc")
    with pytest.raises(InputError, match="names sensitivity, which is of two classes, and there are 10"):
        parse_metrics("sensitivity", 10)
