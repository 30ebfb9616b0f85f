"""Evaluation of a sample of the clients: the same ones in every round, on every backend, and said wherever it shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fedtrain
from fedtrain.analysis import cost
from fedtrain.config.schema import Config, EvaluationSettings, MachineSettings, ServerSettings
from fedtrain.data.client_data import Federation, Preprocessing
from fedtrain.federated.server import sample_evaluated_clients
from fedtrain.methods.fedbn import FedBN
from fedtrain.runs.experiment import build_experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")
NAMES = [f"client{k}" for k in range(40)]
TWO = Config(
    method=FedBN(),
    server=ServerSettings(rounds=3),
    evaluation=EvaluationSettings(clients=2),
    machine=MachineSettings("cpu"),
)


def test_the_sample_is_a_function_of_the_seed_and_not_of_the_order():
    drawn = sample_evaluated_clients(NAMES, 7, seed=3)
    assert len(drawn) == 7
    assert drawn == [name for name in NAMES if name in drawn]
    assert set(sample_evaluated_clients(NAMES[::-1], 7, seed=3)) == set(drawn)
    assert sample_evaluated_clients(NAMES, 7, seed=4) != drawn
    assert sample_evaluated_clients(NAMES, 0, 3) == sample_evaluated_clients(NAMES, 99, 3) == NAMES


def work(toy, config):
    federation = Federation(tuple(toy.build_clients()), ("x", "y", "z"), "Toy", True, Preprocessing())
    return build_experiment(config, federation, lambda: toy.build_net())


def run(toy, config, path):
    folder = RunFolder(path)
    experiment = work(toy, config)
    folder.begin(experiment.config, {"data": {"title": "Toy", "standin": True, "classes": ["x"], "clients": []}})
    return run_rounds(experiment, folder), folder.load_rows()


@pytest.mark.parametrize("backend", ["serial", "threads", "vmap"])
def test_a_run_evaluates_the_same_few_in_every_round_and_trains_as_ever(backend, toy, tmp_path):
    machine = replace(TWO.machine, backend=backend)
    few, rows = run(toy, replace(TWO, machine=machine), tmp_path / "few")
    everyone = replace(TWO, machine=machine, evaluation=EvaluationSettings())
    _, all_rows = run(toy, everyone, tmp_path / "all")
    chosen = sample_evaluated_clients(toy.names, 2, TWO.seed)
    assert rows == [row for row in all_rows if row["client"] in chosen]
    assert {(row["round"], row["client"]) for row in rows} == {(r, name) for r in (1, 2, 3) for name in chosen}
    assert list(few["rules"]["last"]["clients"]) == chosen
    assert few["notes"][-1] == "evaluated on 2 of 3 clients, drawn at random and the same in every round"


def test_nothing_is_said_where_all_are_evaluated(toy):
    for count in (0, 3, 8):
        assert work(toy, replace(TWO, evaluation=EvaluationSettings(clients=count))).federation.notes == ()


def test_fewer_take_less_time(toy, monkeypatch):
    monkeypatch.setattr(cost, "measure_matmul_rate", lambda device: 1e9)
    full, few = (
        cost.estimate_round_seconds(work(toy, replace(TWO, evaluation=EvaluationSettings(clients=count))))
        for count in (0, 2)
    )
    assert few == (full[0], pytest.approx(full[1] * 2 / 3))


def test_a_negative_number_is_refused():
    with pytest.raises(InputError, match=r"evaluation.clients is -1; it must be 0 \(all\) or more"):
        EvaluationSettings(clients=-1)


def test_the_option_is_a_setting():
    data = [
        fedtrain.ClientData.from_arrays(n, train=([[0.0, 1.0]] * 4, [0, 1] * 2), test=([[0.0, 1.0]], [0]))
        for n in "abc"
    ]
    planned = fedtrain.plan(clients=data, eval_clients=2, model="two-layer")
    assert planned.config.evaluation.clients == 2
    assert "evaluated on 2 of 3 clients" in planned.experiment.federation.notes[-1]
