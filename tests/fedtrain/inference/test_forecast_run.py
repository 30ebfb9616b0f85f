"""Forecasts with the networks of runs: what methods share, and what batch norm has seen."""

from __future__ import annotations

import pytest
import torch

from fedtrain import InputError
from fedtrain.config.presets import resolve_preset
from fedtrain.data.build import build_federation
from fedtrain.inference.kernel_study import KernelStudyOptions, draw_samples
from fedtrain.inference.network_forecast import NamedSharing, compute_kernels, forecast_run, measure_statistics
from fedtrain.runs.experiment import Experiment


def build_config(method, **settings):
    given = {
        "data": {"source": "standin", "percent": 0.02}, "model": {"name": "two-layer", "width": 8},
        "machine": {"device": "cpu", "fast_path": False}, "method": {"name": method, **settings},
    }  # fmt: skip
    return resolve_preset("digits", given)


@pytest.fixture(scope="module")
def data():
    return build_federation(build_config("fedbn").data)


def rename(config, *patterns):
    return type(config)(**{**vars(config), "method": NamedSharing(patterns)})


def test_methods_are_what_they_share(data):
    usual = build_config("fedavg")
    found = forecast_run(
        {
            "SingleSet": build_config("singleset"), "FedAvg": usual, "FedPer": build_config("fedper"),
            "all": rename(usual, "*"), "features": rename(usual, "features.*"), "FedProx": build_config("fedprox"),
        },
        data, samples=8,
    )  # fmt: skip
    assert torch.equal(found.scores["FedAvg"], found.scores["all"])
    assert torch.equal(found.scores["FedAvg"], found.scores["FedProx"])
    assert torch.equal(found.scores["FedPer"], found.scores["features"])
    assert not torch.equal(found.scores["FedAvg"], found.scores["SingleSet"])


@pytest.mark.parametrize("method", ["fedco2", "fedrod", "copa"])
def test_methods_of_several_models_have_a_forecast(data, method):
    found = forecast_run({"it": build_config(method)}, data, samples=4)
    assert len(found.scores["it"]) == 4 * len(data.clients)


def test_fedco2_without_cooperation_is_both_of_its_models(data):
    """Its forecast lies between theirs on every sample on which they agree."""
    found = forecast_run({name: build_config(name) for name in ("singleset", "fedbn", "fedco2")}, data, samples=8)
    one, other, both = (found.scores[name] for name in ("singleset", "fedbn", "fedco2"))
    right = (one == 1) & (other == 1)
    assert right.any()
    assert both[right].all()


@pytest.mark.parametrize("online", ["fedper", "fedbn"])
def test_a_cooperation_has_the_kernels_of_its_parts(data, online):
    """Each branch that of the method alone, in what couples clients and in what does not."""
    both = build_config("cooperate", online=online)
    samples = draw_samples(data, both, KernelStudyOptions(4, "float32"), torch.device("cpu"))
    found = compute_kernels(both, data, samples)
    for kernel, name in zip(found, (online, "singleset"), strict=True):
        (alone,) = compute_kernels(build_config(name), data, samples)
        assert torch.equal(kernel.shared, alone.shared)
        assert torch.equal(kernel.personal, alone.personal)


@pytest.mark.parametrize("fusion", ["weighted", "probabilities"])
def test_another_fusion_has_the_kernel_of_its_prediction(data, fusion):
    config = build_config("fedco2", fusion=fusion)
    samples = draw_samples(data, config, KernelStudyOptions(2, "float32"), torch.device("cpu"))
    (kernel,) = compute_kernels(config, data, samples)
    assert kernel.whole.isfinite().all()


@pytest.mark.parametrize(("method", "personal"), [("fedbn", True), ("fedavg", False)])
def test_batch_norm_has_seen_the_samples_and_nothing_has_moved(data, method, personal):
    config = build_config(method)
    trainer = Experiment(config, data).build_client_trainer()
    samples = draw_samples(data, config, KernelStudyOptions(6, "float32"), trainer.device)
    start = trainer.initial_broadcast([client.name for client in data.clients])
    state = measure_statistics(trainer, data, samples, config)
    means = []
    for x in samples.inputs:
        trainer.module.load_state_dict({**start.shared, **trainer.initial_client_state("mnist")})
        layers = [one for one in trainer.module.modules() if isinstance(one, torch.nn.BatchNorm1d)]
        seen = []
        handle = layers[0].register_forward_hook(lambda layer, given, out, seen=seen: seen.append(given[0]))
        with torch.no_grad():
            trainer.module.eval()(x)
        handle.remove()
        means.append(seen[0].mean(0))
    name = next(name for name in trainer.module.state_dict() if name.endswith("running_mean"))
    if personal:
        for client, mean in zip(data.clients, means, strict=True):
            assert torch.allclose(state.client_states[client.name][name], mean, atol=1e-5)
    else:
        assert torch.allclose(state.message.shared[name], torch.stack(means).mean(0), atol=1e-5)
    moved = [key for key, value in start.shared.items() if not torch.allclose(value, state.message.shared[key])]
    assert all("running" in key or "tracked" in key for key in moved)


def test_a_pattern_that_matches_nothing_is_refused(data):
    with pytest.raises(InputError, match=r"no entry of the network matches 'haed\.\*'; there are .*head\."):
        forecast_run({"it": rename(build_config("fedavg"), "haed.*")}, data, samples=4)
