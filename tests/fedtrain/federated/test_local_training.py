"""How clients train: optimisers, schedules, clipping, smoothing and class weights, by formulas of their own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import Config, MachineSettings, ServerSettings, parse_config, serialize_config
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.federated.client import ClientTrainer, Precision
from fedtrain.federated.fast_path.factored_gradients import FactoredSGDStep
from fedtrain.federated.fast_path.fused_sgd import FusedSGDStep
from fedtrain.federated.server import federate
from fedtrain.federated.sgd import OptimizerStep, SGDStep
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedrod import FedRoD
from fedtrain.models import Net
from fedtrain.runs.callbacks import Callback
from fedtrain.runs.loop import run_rounds
from theory.errors import InputError

LABELS = np.array([0, 0, 0, 0, 1, 1, 2, 0, 0, 1])
CLASSES = 4
"""Of which the client holds three."""


def softmax_regression():
    return Net(nn.Identity(), nn.Linear(3, CLASSES, bias=False))


@pytest.fixture
def client():
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(len(LABELS), 3)))
    samples = Samples(inputs, torch.from_numpy(LABELS))
    return ClientData("only", samples, samples)


def trained(client, rounds=2, **local):
    """The weights of softmax regression after some rounds of full batches, and before."""
    how = LocalSettings(**{"lr": 0.05, "epochs": 3, "batch_size": 100} | local)
    trainer = ClientTrainer(
        FedAvg(), softmax_regression, CLASSES, local=how, precision=Precision(torch.float64), fast_path=False
    )
    backend = SerialBackend(trainer, [client])
    message = backend.initial_broadcast()
    before = message.shared["head.weight"].numpy().copy()
    *_, last = federate(backend, message, rounds)
    return before, last.message.shared["head.weight"].numpy()


def gradient(W, X, smoothing=0.0, weights=None):
    """Of Σ_i Σ_c w_c t_ic (- log p_ic) / Σ_i w_{y_i}, t = (1 - s) onehot + s / K, by hand."""
    w = np.ones(CLASSES) if weights is None else weights
    scores = np.exp(X @ W.T)
    p = scores / scores.sum(1, keepdims=True)
    t = (1 - smoothing) * np.eye(CLASSES)[LABELS] + smoothing / CLASSES
    # the smoothed part is weighed by class, and the whole divided by the weights of the labels
    mass = (w * t).sum(1, keepdims=True)
    return (mass * p - w * t).T @ X / w[LABELS].sum()


# ---- formulas


def test_adam_begins_anew_in_every_round(client):
    """Kingma & Ba's Algorithm 1 in numpy, whose t, m and v are 0 again when a round begins."""
    x, found = trained(client, optimizer="adam", beta1=0.8, weight_decay=0.01)
    inputs = client.train.inputs.numpy()
    for _ in range(2):
        m = v = 0.0
        for t in (1, 2, 3):
            g = gradient(x, inputs) + 0.01 * x
            m, v = 0.8 * m + 0.2 * g, 0.999 * v + 0.001 * g * g
            x = x - 0.05 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(found, x, rtol=1e-10)


def test_adamw_takes_the_decay_out_of_the_gradient(client):
    x, found = trained(client, rounds=1, optimizer="AdamW", weight_decay=0.1)
    m = v = 0.0
    for t in (1, 2, 3):
        g = gradient(x, client.train.inputs.numpy())
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x = x * (1 - 0.05 * 0.1) - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(found, x, rtol=1e-10)


def test_clipping_smoothing_and_class_weights_are_their_formulas(client):
    """Balanced: n / (k n_c) over the k classes that are there; one that is not weighs nothing."""
    counts = np.bincount(LABELS, minlength=CLASSES)
    weights = np.where(counts > 0, len(LABELS) / (3 * np.maximum(counts, 1)), 0.0)
    x, found = trained(client, label_smoothing=0.2, class_weights="balanced", max_grad_norm=0.05, momentum=0.5)
    clipped = 0
    for _ in range(2):
        velocity = 0.0
        for _ in range(3):
            g = gradient(x, client.train.inputs.numpy(), 0.2, weights)
            norm = np.sqrt((g * g).sum())
            clipped += norm > 0.05
            velocity = 0.5 * velocity + g * min(1.0, 0.05 / (norm + 1e-6))
            x = x - 0.05 * velocity
    assert clipped
    np.testing.assert_allclose(found, x, rtol=1e-10)


def test_balanced_weights_are_those_of_scikit_learn(toy):
    sklearn = pytest.importorskip("sklearn.utils.class_weight")
    trainer = toy.build_client_trainer(FedAvg(), class_weights="balanced")
    labels = np.array([0, 0, 0, 2, 2, 1])
    expected = sklearn.compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(trainer.weigh_classes(torch.bincount(torch.from_numpy(labels))), expected, rtol=1e-6)


ROUNDS = 12


@pytest.mark.parametrize("warmup", [0, 3])
@pytest.mark.parametrize("schedule", ["constant", "cosine", "step"])
def test_schedules_are_those_of_torch(schedule, warmup):
    parameter = nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([parameter], lr=0.4)
    main = {
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(sgd, 1.0),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(sgd, ROUNDS - warmup, eta_min=0.1),
        "step": lambda: torch.optim.lr_scheduler.StepLR(sgd, 4, gamma=0.5),
    }[schedule]
    expected = []
    if warmup:  # torch's own rise, then its own fall with a clock of its own
        rise = torch.optim.lr_scheduler.LinearLR(sgd, 1 / warmup, total_iters=warmup - 1)
        for _ in range(warmup):
            expected.append(sgd.param_groups[0]["lr"])
            sgd.step()
            rise.step()
    sgd.param_groups[0]["lr"] = 0.4
    fall = main()
    for _ in range(ROUNDS - warmup):
        expected.append(sgd.param_groups[0]["lr"])
        sgd.step()
        fall.step()
    local = LocalSettings(
        lr=0.4, lr_schedule=schedule, lr_rounds=ROUNDS, lr_min=0.1, lr_step=4, lr_decay=0.5, warmup_rounds=warmup
    )
    assert [local.at_round(round).lr for round in range(ROUNDS)] == pytest.approx(expected)


# ---- laws


@given(st.integers(1, 50), st.integers(0, 20), st.integers(0, 99))
def test_a_learning_rate_stays_between_its_ends(rounds, warmup, round):
    total = rounds + warmup
    for schedule in ("constant", "cosine", "step"):
        local = LocalSettings(lr=0.3, lr_schedule=schedule, lr_rounds=total, lr_min=0.1, warmup_rounds=warmup)
        assert 0 < local.at_round(round).lr <= 0.3
        assert 0 < replace(local, lr_min=0.0).at_round(round % total).lr <= 0.3
    assert local.at_round(total).lr == pytest.approx(0.3)  # of "step", with a hundred rounds to its first
    assert replace(local, lr_schedule="cosine").at_round(total + round).lr == pytest.approx(0.1)
    assert LocalSettings(lr=0.3).at_round(round).lr == 0.3


def test_a_cosine_that_has_come_to_zero_can_be_looked_at_but_not_trained_with():
    local = LocalSettings(lr=0.3, lr_schedule="cosine", lr_rounds=5)
    assert local.compute_lr(5) == 0  # what an evaluation after the last round asks for
    with pytest.raises(InputError, match=r"in round 6; say more local\.lr_rounds or a local\.lr_min"):
        local.at_round(5)


def test_settings_that_change_nothing_change_no_bit(toy, same_run):
    plain = toy.train(FedCO2())
    idle = {"max_grad_norm": 1e9, "lr_schedule": "step", "lr_step": 100, "warmup_rounds": 1, "optimizer": "SGD"}
    assert same_run(toy.train(FedCO2(), optimizer="sgd", warmup_rounds=0), plain)
    other = toy.train(FedCO2(), fast_path=False, **idle)
    assert same_run(other, toy.train(FedCO2(), fast_path=False))


@pytest.mark.parametrize("method", [FedAvg(), FedRoD(balanced=True, personal_sgd="plain"), Copa(), FedCO2()])
@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop", "nadam"])
def test_any_optimiser_trains_every_kind_of_method(toy, method, name):
    run = toy.train(method, 2, optimizer=name, momentum=0.0, lr=0.01)
    first, last = (np.mean([update.loss for update in result.updates]) for result in run.history)
    assert math.isfinite(last)
    assert last < first


EVERYTHING = {
    "label_smoothing": 0.1,
    "class_weights": "balanced",
    "max_grad_norm": 0.3,
    "lr_schedule": "cosine",
    "lr_rounds": 3,
    "warmup_rounds": 1,
}


@pytest.mark.parametrize("method", [FedAvg(), FedRoD(personal_sgd="plain"), Copa(), FedCO2()], ids=lambda m: m.title)
def test_clients_that_advance_as_one_end_where_clients_that_take_turns_do(toy, method):
    """The gradients of all clients of a step are clipped each by itself, and weighed by each one's own classes."""
    runs = []
    for kind in (SerialBackend, VmapBackend):
        trainer = toy.build_client_trainer(method, precision=Precision(torch.float64), fast_path=False, **EVERYTHING)
        backend = kind(trainer, toy.build_clients())
        runs.append(list(federate(backend, backend.initial_broadcast(), 2)))
    for one, other in zip(*runs, strict=True):
        for name, value in one.message.shared.items():
            torch.testing.assert_close(other.message.shared[name], value, rtol=1e-9, atol=1e-9)
    plain = toy.train(method, 2, precision=Precision(torch.float64), fast_path=False)
    assert any(
        not torch.allclose(value, runs[0][-1].message.shared[name])
        for name, value in plain.message.shared.items()
        if value.is_floating_point()
    )


@pytest.mark.parametrize(
    ("local", "kind", "note"),
    [
        ({"momentum": 0.0}, FactoredSGDStep, None),
        ({"momentum": 0.5}, FusedSGDStep, None),
        ({"momentum": 0.0, "max_grad_norm": 1.0}, FusedSGDStep, "large linear layers are trained without"),
        ({"momentum": 0.5, "max_grad_norm": 1.0}, FusedSGDStep, None),
        ({"momentum": 0.0, "optimizer": "adam"}, OptimizerStep, "no steps of its own for adam"),
    ],
)
def test_the_fast_path_serves_what_it_can_and_says_what_it_cannot(toy, begin, no_figures, local, kind, note):
    assert toy.build_client_trainer(FedAvg(), **local).step_class is kind
    config = Config(local=LocalSettings(batch_size=8, **local), method=FedAvg(), server=ServerSettings(rounds=1))
    work, folder = begin(config)
    told = []

    class Listen(Callback):
        def on_note(self, text):
            told.append(text)

    run_rounds(work, folder, [Listen()])
    assert [note in text for text in told] == ([True] if note else [])
    slow = replace(config, machine=MachineSettings(fast_path=False))
    assert replace(work, config=slow).fast_path_note is None
    expected = SGDStep if local.get("optimizer") is None else OptimizerStep
    assert toy.build_client_trainer(FedAvg(), fast_path=False, **local).step_class is expected


def test_fast_and_plain_steps_agree_with_everything_switched_on(toy):
    quick, plain = (
        toy.train(FedCO2(), precision=Precision(torch.float64), fast_path=fast, **EVERYTHING) for fast in (True, False)
    )
    for name, value in plain.message.shared.items():
        torch.testing.assert_close(quick.message.shared[name], value, rtol=1e-9, atol=1e-9)


# ---- refusals


@pytest.mark.parametrize(
    ("local", "words"),
    [
        ({"optimizer": "adem"}, "unknown optimizer 'adem'; did you mean 'adam'"),
        ({"optimizer": "LBFGS"}, "several times a step"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum is 0.9, and adam has none; set local.momentum = 0"),
        ({"optimizer": "rprop", "weight_decay": 0.1}, "weight_decay is 0.1, and rprop has none"),
        ({"beta1": 0.9}, "beta1 is 0.9, and sgd has none"),
        ({"optimizer": "adam", "beta2": 1.0}, "beta2 is 1.0; choose it in"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0.0"),
        ({"warmup_rounds": -1}, "warmup_rounds is -1"),
        ({"lr_rounds": 3, "warmup_rounds": 3}, "lr_rounds is 3; it must be above"),
        ({"lr_min": 0.5}, "lr_min is 0.5"),
        ({"lr_step": 0}, "lr_step is 0"),
        ({"lr_decay": 1.5}, "lr_decay is 1.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(local, words):
    with pytest.raises(InputError, match=words):
        LocalSettings(**local)


def test_what_would_fail_later_is_refused_before_anything_is_written(begin, monkeypatch):
    adam = LocalSettings(optimizer="adam")
    work, _ = begin(Config(local=adam, machine=MachineSettings(backend="vmap")))
    with pytest.raises(InputError, match="vmap trains with sgd only"):
        work.validate()
    short = LocalSettings(lr_schedule="cosine", lr_rounds=3)
    work, _ = begin(Config(local=short, server=ServerSettings(rounds=4)))
    with pytest.raises(InputError, match=r"falls to 0 in local.lr_rounds = 3"):
        work.validate()
    with pytest.raises(InputError, match="say over how many rounds"):
        LocalSettings(lr_schedule="cosine").at_round(0)
    if hasattr(torch.optim, "Muon"):
        work, _ = begin(Config(local=LocalSettings(optimizer="muon", batch_size=8)))
        with pytest.raises(InputError, match=r"optimizer muon does not take this network: .*2D"):
            work.validate()


def test_a_cosine_is_written_down_with_its_length():
    """So that a run that is prolonged does not change the past."""
    config = parse_config({"local": {"lr_schedule": "cosine"}, "server": {"rounds": 30}})
    assert config.local.lr_rounds == 30
    tables = serialize_config(config)
    tables["server"]["rounds"] = 60
    assert parse_config(tables).local.lr_rounds == 30
    assert parse_config({"server": {"rounds": 30}}).local.lr_rounds is None
