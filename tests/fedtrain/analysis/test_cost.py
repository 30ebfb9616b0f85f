"""What a run will cost, predicted without running it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedtrain.analysis import cost
from fedtrain.analysis.cost import count_flops, estimate_round_seconds, measure_matmul_rate
from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import Config, MachineSettings, ModelSettings, ServerSettings
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from fedtrain.federated.client import ClientTrainer
from fedtrain.methods import METHODS
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.models import build_alexnet, build_cifar_net, build_digits_net, build_two_layer_net
from fedtrain.runs.experiment import Experiment


def work(toy, method, **changes):
    config = Config(method=METHODS[method](), model=ModelSettings("two-layer", width=16), **changes)
    return Experiment(config, Federation(tuple(toy.build_clients()), ("x", "y", "z"), "Toy", True, Preprocessing()))


def on_paper(toy, method, epochs=1):
    return count_flops(METHODS[method](), toy.build_net, (toy.dim,), len(toy.names), epochs)


def test_flops_of_a_linear_network_counted_by_hand(toy):
    forward = 2 * (6 * 12 + 12 * 8 + 8 * 3)
    backward = 2 * forward - 2 * 6 * 12  # the first layer passes nothing on to its input
    assert on_paper(toy, "fedavg") == (forward + backward, forward, 0)
    assert on_paper(toy, "fedavg", epochs=3) == (3 * (forward + backward), forward, 0)
    assert on_paper(toy, "finetune") == (forward + backward, forward, forward + backward)
    assert on_paper(toy, "knnper") == (forward + backward, forward, 2 * 6 * 12)


def test_fed_co2_costs_more_than_fedbn_and_predicts_with_two(toy):
    (train, forward, _), (train2, forward2, _) = on_paper(toy, "fedbn"), on_paper(toy, "fedco2")
    assert forward2 == 2 * forward
    assert train2 > 4 * train  # two networks, two passes, and the peers' heads


NETWORKS = {
    "digits": (build_digits_net, (3, 28, 28)),
    "cifar": (build_cifar_net, (3, 32, 32)),
    "alexnet": (build_alexnet, (3, 96, 96)),
    "two-layer": (partial(build_two_layer_net, 3 * 4 * 4, width=16), (3, 4, 4)),
}


def by_torch(method, make, inputs, clients, epochs):
    """The other road: every operation of a real round on the meta device, counted by torch.

    What a method does once when it has trained is not counted.
    """
    names, size = [f"client{i}" for i in range(clients)], 4
    with torch.device("meta"):
        how = LocalSettings(batch_size=size, epochs=epochs)
        trainer = ClientTrainer(method, make, 10, local=how, device="meta", fast_path=False)
        samples = Samples(torch.zeros(size, *inputs), torch.zeros(size, dtype=torch.int64))
        data, second = ClientData(names[0], samples, samples), replace(trainer.initial_broadcast(names), round=1)
        with FlopCounterMode(display=False) as training:
            trainer.train_locally(data, trainer.initial_client_state(names[0]), second)
        with FlopCounterMode(display=False) as forward:
            trainer.predict(data, trainer.initial_client_state(names[0]), second, samples.inputs)
    return training.get_total_flops() / size, forward.get_total_flops() / size


def in_outline(*request):
    """Where as many samples are predicted as there are to prepare with."""
    flops = count_flops(*request)
    return flops.training, flops.prediction + flops.preparation


def test_flops_in_outline_are_those_that_torch_counts(method, monkeypatch):
    monkeypatch.setattr(type(method), "finish", lambda *about: None)
    request = method, *NETWORKS["cifar"], 3, 1
    assert in_outline(*request) == by_torch(*request)


@pytest.mark.parametrize("network", NETWORKS)
def test_flops_in_outline_are_those_that_torch_counts_on_every_network(network):
    request = FedCO2(), *NETWORKS[network], 4, 1
    assert in_outline(*request) == by_torch(*request)


@pytest.mark.parametrize("method", METHODS)
def test_seconds_are_foretold_for_every_method_and_nothing_is_touched(method, toy, monkeypatch):
    monkeypatch.setattr(cost, "measure_matmul_rate", lambda device: 1e9)
    before = torch.get_rng_state()
    experiment = work(toy, method)
    training, evaluation = estimate_round_seconds(experiment)
    train, forward, prepare = count_flops(
        experiment.config.method, experiment.get_model_builder(), (toy.dim,), 3, experiment.config.local.epochs
    )
    assert training == pytest.approx(train * sum(toy.sizes) / (cost.EFFICIENCY * 1e9))
    assert evaluation == pytest.approx((forward * 3 * 30 + prepare * sum(toy.sizes)) / (cost.EFFICIENCY * 1e9))
    assert torch.equal(torch.get_rng_state(), before)


def test_few_clients_in_a_round_cost_less_and_are_evaluated_like_all(toy, monkeypatch):
    monkeypatch.setattr(cost, "measure_matmul_rate", lambda device: 1e9)
    full, few = (
        estimate_round_seconds(work(toy, "fedavg", server=ServerSettings(participation=share))) for share in (1.0, 0.34)
    )
    assert few[0] == pytest.approx(full[0] / 3)
    assert few[1] == full[1]


def test_a_faster_machine_takes_less_time(toy, monkeypatch):
    found = []
    for rate in (1e9, 2e9):
        monkeypatch.setattr(cost, "measure_matmul_rate", lambda device, rate=rate: rate)
        found.append(estimate_round_seconds(work(toy, "fedco2", machine=MachineSettings(device="cpu"))))
    assert found[1] == pytest.approx((found[0][0] / 2, found[0][1] / 2))


def test_this_machine_multiplies():
    assert 1e7 < measure_matmul_rate(torch.device("cpu")) < 1e15


def test_a_large_batch_is_no_obstacle(toy, monkeypatch):
    monkeypatch.setattr(cost, "measure_matmul_rate", lambda device: 1e9)
    experiment = work(toy, "fedbn", local=LocalSettings(batch_size=10_000))
    assert estimate_round_seconds(experiment)[0] > 0
    assert (
        estimate_round_seconds(replace(experiment, config=replace(experiment.config, local=LocalSettings(epochs=2))))[0]
        > 0
    )


def test_an_engine_adds_its_own_seconds_to_what_is_foretold():
    engine = cost.EngineCost(first_round=10.0, each_round=2.0, each_byte=0.5)
    assert engine.estimate_seconds(3, 4) == 10 + 3 * (2 + 2)
    assert cost.NO_ENGINE_COST.estimate_seconds(10**6, 1e12) == 0
