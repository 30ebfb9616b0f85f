"""The trainer and its slow literal twin, which share no training code, come to the same numbers in double precision."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import reference
from fedtrain.federated.fast_path import factored_gradients
from fedtrain.methods import METHODS

TOLERANCE = 1e-10  # rounding is 1e-16, and 30 steps through batch norm on few samples make 1e-13 of it
TASK: dict[str, Any] = {
    "rounds": 3, "classes": 4, "seed": 3, "lr": 0.1, "batch_size": 20, "dtype": torch.float64, "mean": (0.4, 0.5, 0.3),
    "std": (0.3, 0.2, 0.25),
}  # fmt: skip
CONVENTIONS: dict[str, dict[str, Any]] = {
    "feature": {},
    "feature, decay": {"weight_decay": 1e-2},
    "label": {"weights": "size", "momentum": 0.9, "weight_decay": 1e-5, "epochs": 2, "participation": 0.5},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in METHODS),
    ("singleset", {"start": "own"}),
    # of several epochs the published form leaves out the first step of each, the trainer that of the round
    ("fedprox", {"mu": 0.1, "squared": False, "epochs": 1}),
    ("moon", {"previous": "initial"}),
    ("fedrod", {"balanced": True}),
    ("fedrod", {"personal_sgd": "plain"}),
    ("fedrep", {"head_epochs": 1}),
    ("pfedme", {"lam": 2.0, "inner_steps": 2}),
    ("apfl", {"alpha": 0.25}),
    ("apfl", {"adaptive": True}),
    ("pfedme", {"lam": 2.0, "inner_steps": 2, "outer_lr": 0.3}),
    ("fml", {"alpha": 0.9, "beta": 0.2}),
    ("knnper", {"weight": 0.9, "k": 3, "scale": 0.1}),
    ("finetune", {"passes": 2}),
    ("fedbn", {"bn_stats": "shared"}),
    ("cooperate", {"online": "fedper"}),
    ("cooperate", {"online": "fedrod"}),
    ("cooperate", {"online": "fedrep", "offline": "fedavg"}),
    *(("fedco2", {"intra": side}) for side in ("none", "online", "offline")),
    *(("fedco2", {"inter": side}) for side in ("none", "online", "offline")),
    ("fedco2", {"gen": "mean", "mu": 0.5}),
    ("fedco2", {"personal": "head"}),
    ("fedco2", {"personal": "bn+head"}),
    ("fedco2", {"personal": "bn+head", "bn_stats": "shared"}),
    ("fedco2", {"bn_stats": "shared", "start": "own"}),
    ("fedco2", {"intra": "none", "inter": "none", "fusion": "probabilities"}),
]
# Not in the order of their names, of unequal sizes, 41 = 2 * 20 + 1 leaving a last batch of one, which is not used.
CLIENTS = reference.build_small_clients({"north": 33, "east": 20, "south": 41, "west": 26})


@pytest.fixture(autouse=True)
def tricks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every linear layer is large enough for the tricks of the fast path."""
    monkeypatch.setattr(factored_gradients, "MIN_FACTORED_WEIGHTS", 0)


@cache
def run_twin(method: str, given: tuple[tuple[str, Any], ...]) -> reference.Result:
    return reference.run_reference(method, reference.build_small_net, CLIENTS, **TASK | dict(given))


def format_variant(variant: tuple[str, dict[str, Any]]) -> str:
    return " ".join([variant[0], *(f"{name}={value}" for name, value in variant[1].items())])


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("variant", VARIANTS, ids=format_variant)
def test_the_trainer_agrees_with_its_literal_twin(variant: tuple[str, dict[str, Any]], convention: str) -> None:
    method, given = variant[0], CONVENTIONS[convention] | variant[1]
    literal = run_twin(method, tuple(given.items()))
    found = reference.measure_differences(
        literal, reference.run_fedtrain(method, reference.build_small_net, CLIENTS, **TASK | given)
    )
    assert found.entries < TOLERANCE
    assert found.loss < TOLERANCE
    assert found.accuracy == 0
    default = {name: value for name, value in given.items() if name in reference.Job.__dataclass_fields__}
    if convention == "label" and default != given:  # an option that changed nothing would be compared in vain
        usual = run_twin(method, tuple(default.items()))
        if usual.states["east"].keys() == literal.states["east"].keys():  # else it changed the very modules
            assert max(reference.measure_differences(literal, usual)) > 1e-6


def test_training_data_are_scored_alike() -> None:
    given = TASK | {"rounds": 1, "evaluate_train": True}
    both = [
        train("fedco2", reference.build_small_net, CLIENTS, **given)
        for train in (reference.run_reference, reference.run_fedtrain)
    ]
    assert set(both[0].scores[0]["east"]) == {"train", "test"}
    assert reference.measure_differences(*both).loss < TOLERANCE


def test_the_twin_has_every_method_and_shares_no_training_code() -> None:
    assert reference.METHODS.keys() == METHODS.keys()
    file = Path(reference.__file__)
    body = ast.parse(file.read_text(encoding="utf-8")).body
    parts = [
        node for part in file.parent.glob("reference_lib/*.py") for node in ast.parse(part.read_text("utf-8")).body
    ]
    ours = {node.module for node in body + parts if isinstance(node, ast.ImportFrom) and "fedtrain" in str(node.module)}
    assert ours == {"fedtrain.rng", "fedtrain.data.client_data", "fedtrain.models"}
    inside = {
        node.name for node in body for each in ast.walk(node) if isinstance(each, ast.ImportFrom) and each not in body
    }
    assert inside == {"run_fedtrain"}


def test_the_script_says_how_far_apart_they_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("sys.argv", ["reference.py", "--method", "fedrod", "--rounds", "1"])
    reference.main()
    *clients, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in clients] == ["north", "east", "south", "west"]
    assert last.startswith("largest difference from the trainer: entries ")
