"""A run opened again: every client's own model, and a model for a client that was never seen."""

from __future__ import annotations

import json
import shutil
from functools import cache

import pytest
import torch

from fedtrain.config.schema import parse_config
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from fedtrain.data.datasets import get_dataset_info
from fedtrain.inference.evaluate import evaluate_clients
from fedtrain.inference.trained_run import load_trained_run
from fedtrain.inference.unseen_client import MAX_IMAGES, build_unseen_client
from fedtrain.methods import METHODS
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import MANIFEST_FILE, RunFolder
from fedtrain.runs.loop import run_rounds as run_rounds
from fedtrain.runs.manifest import build_manifest, describe_data
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")

CIFAR = get_dataset_info("cifar10")
NAMES = ("b", "a", "c")


def images(n, shift, seed):
    chance = torch.Generator().manual_seed(seed)
    noisy = torch.randn(n, 3, 32, 32, generator=chance) * 40 + 100 + 20 * shift
    return noisy.clamp(0, 255).to(torch.uint8)


def clients(noise=0.0):
    def samples(n, k, seed):
        return Samples(images(n, k, seed), torch.arange(n) % 10)

    return tuple(
        ClientData(name, samples(8, k, k), samples(30, k, 10 + k), noise=k * noise) for k, name in enumerate(NAMES)
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train in a moment: a small network with batch norm in every layer, three clients, double precision."""

    @cache
    def train(method, noise=0.0, unit="pixel", **options):
        config = parse_config(
            {
                "data": {"dataset": "cifar10", "skew": "iid", "clients": 3, "noise": noise, "noise_unit": unit},
                "model": {"name": "cifar", "split_at": "last"},
                "method": {"name": method, **options},
                "local": {"lr": 0.05, "batch_size": 4},
                "server": {"rounds": 1},
                "machine": {"dtype": "float64", "device": "cpu", "threads": 1},
            }
        )
        how = Preprocessing(CIFAR.mean, CIFAR.std, noise_unit=unit)
        data = Federation(clients(noise), CIFAR.classes, "A toy", False, how)
        folder = RunFolder(tmp_path_factory.mktemp(method) / "run")
        folder.begin(config, build_manifest(config, describe_data(data), "fedco2 train"))
        run_rounds(Experiment(config, data), folder)
        return folder.path, data

    return train


@pytest.fixture(scope="module", params=METHODS)
def each(request, trained):
    return trained(request.param)


def test_scores_are_those_of_the_last_round_bit_by_bit(each):
    path, data = each
    run = load_trained_run(path)
    rows = run.folder.load_rows()
    assert evaluate_clients(run, data, "test") == rows
    assert evaluate_clients(run, data, "test", "a") == [row for row in rows if row["client"] == "a"]


def test_without_data_a_client_predicts_as_it_did(each):
    path, data = each
    run = load_trained_run(path)
    assert run.image_size == (32, 32)
    if run.config.method.needs_training_data:
        with pytest.raises(InputError, match=r"looks at a client's training samples .* client b are not here"):
            run.compute_logits("b", data.clients[0].test.inputs)
        with pytest.raises(InputError, match="no model for a client that was never seen"):
            build_unseen_client(run, data.clients[0].test.inputs)
        return
    accuracies = {
        (client.name, branch): (logits.argmax(-1) == client.test.labels).double().mean().item()
        for client in data.clients
        for branch, logits in run.compute_logits(client.name, client.test.inputs).items()
    }
    told = {(row["client"], row["branch"]): row["accuracy"] for row in run.folder.load_rows()}
    assert accuracies == pytest.approx(told, abs=1e-12)


@pytest.mark.parametrize("unit", ["pixel", "normalised"])
def test_no_noise_is_added_to_images_but_evaluation_has_it(trained, unit):
    path, data = trained("fedavg", noise=30.0, unit=unit)
    run = load_trained_run(path)
    assert run.federation.preprocessing == data.preprocessing
    assert [client.noise for client in run.federation.clients] == [0, 30, 60]
    shown = data.clients[0].test.inputs
    assert torch.equal(run.compute_logits("b", shown)["fused"], run.compute_logits("c", shown)["fused"])
    assert evaluate_clients(run, data, "test") == run.folder.load_rows()


def by_hand(net, known, x):
    """Layer by layer: the known clients' mean weight and bias, statistics of x; (statistics by name, logits)."""
    found = {}
    shift, scale = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (CIFAR.mean, CIFAR.std))
    x = (x.double() / 255 - shift) / scale
    for path, layer in [(f"{part}.{name}", layer) for part in ("features", "head") for name, layer in net[part]]:
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            rows = x.transpose(0, 1).flatten(1)
            average = rows.sum(1) / rows.shape[1]
            variance = ((rows - average[:, None]) ** 2).sum(1) / (rows.shape[1] - 1)
            found |= {f"{path}.running_mean": average, f"{path}.running_var": variance}
            weight, bias = (sum(own[f"{path}.{kind}"] for own in known) / len(known) for kind in ("weight", "bias"))
            found |= {f"{path}.weight": weight, f"{path}.bias": bias}
            shape = (-1, *[1] * (x.ndim - 2))
            x = (x - average.reshape(shape)) / (variance + layer.eps).sqrt().reshape(shape)
            x = x * weight.reshape(shape) + bias.reshape(shape)
        else:
            x = layer(x)
    return found, x


@pytest.mark.parametrize(("method", "prefix", "branch"), [("fedbn", "", "fused"), ("fedco2", "online.", "online")])
def test_a_newcomers_batch_norm_is_computed_by_hand(trained, method, prefix, branch):
    path, _ = trained(method)
    run, shown = load_trained_run(path), images(20, 4, 99)
    new = build_unseen_client(run, shown)
    assert (new.branch, new.has_estimated_statistics) == (branch, True)
    logits = run.compute_logits_with(new.data, new.personal, shown)[branch]
    module = run.trainer.module.get_submodule(prefix.rstrip("."))
    net = {part: list(module.get_submodule(part).named_children()) for part in ("features", "head")}
    known = [
        {name.removeprefix(prefix): value for name, value in own.items()} for own in run.state.client_states.values()
    ]
    with torch.no_grad():
        found, expected = by_hand(net, known, shown)
    assert len(found) == 4 * 4
    for name, value in found.items():
        torch.testing.assert_close(new.personal[prefix + name], value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-10)
    assert run.trainer.module.training is False
    again = run.compute_logits("a", shown)  # the known clients' models are as they were
    anew = load_trained_run(path).compute_logits("a", shown)
    assert all(torch.equal(value, anew[name]) for name, value in again.items())


def test_a_newcomer_of_fed_co2_does_not_look_at_offline_models(trained):
    path, _ = trained("fedco2")
    run, shown = load_trained_run(path), images(20, 4, 99)
    new = build_unseen_client(run, shown)
    other = {name: value + 1 if name.startswith("offline.") else value for name, value in new.personal.items()}
    one, two = (run.compute_logits_with(new.data, entries, shown) for entries in (new.personal, other))
    assert torch.equal(one["online"], two["online"])
    assert not torch.equal(one["fused"], two["fused"])


@pytest.mark.parametrize(
    ("method", "theirs"),
    [
        *((method, "fused") for method in ("fedavg", "fedprox", "moon", "scaffold")),
        *((method, "generic") for method in ("fedrod", "ditto")),
    ],
)
def test_what_is_shared_is_taken_as_it_is(trained, method, theirs):
    path, _ = trained(method)
    run, shown = load_trained_run(path), images(1, 4, 99)
    new = build_unseen_client(run, shown)
    assert not new.has_estimated_statistics
    logits = run.compute_logits_with(new.data, new.personal, shown)[new.branch]
    assert torch.equal(logits, run.compute_logits("a", shown)[theirs])


def test_published_heads_vote_for_a_newcomer(trained):
    path, _ = trained("copa")
    run, shown = load_trained_run(path), images(5, 4, 99)
    new = build_unseen_client(run, shown)
    assert new.branch == "peers"
    logits = run.compute_logits_with(new.data, new.personal, shown)[new.branch]
    mean = torch.stack([run.compute_logits(name, shown)["own"] for name in NAMES]).mean(0)
    torch.testing.assert_close(logits, mean, rtol=1e-12, atol=1e-12)


def test_shared_statistics_stay_and_personal_weights_are_averaged(trained):
    path, _ = trained("fedbn", bn_stats="shared")
    run, shown = load_trained_run(path), images(1, 4, 99)
    new = build_unseen_client(run, shown)
    assert not new.has_estimated_statistics
    assert not any("running" in name for name in new.personal)
    for name, value in new.personal.items():
        expected = sum(own[name] for own in run.state.client_states.values()) / 3
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(
    ("method", "options", "what"),
    [
        ("singleset", {}, "everything"),
        ("fedper", {}, "head"),
        ("fedco2", {"personal": "head"}, "online.head"),
        ("fedco2", {"personal": "bn+head"}, "online.head"),
    ],
)
def test_without_a_shared_classifier_a_newcomer_is_refused(trained, method, options, what):
    path, _ = trained(method, **options)
    with pytest.raises(InputError, match=f"no model for a client that was never seen: {what}.*never shared"):
        build_unseen_client(load_trained_run(path), images(20, 4, 99))


def test_statistics_need_two_images_and_take_an_even_choice_of_many(trained):
    path, _ = trained("fedbn")
    run = load_trained_run(path)
    with pytest.raises(InputError, match="at least 2"):
        build_unseen_client(run, images(1, 0, 0))
    many = images(2 * MAX_IMAGES - 1, 0, 0)
    one, two = build_unseen_client(run, many).personal, build_unseen_client(run, many[::2]).personal
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_what_is_damaged_is_refused(trained, tmp_path):
    with pytest.raises(InputError, match="no run is here"):
        load_trained_run(tmp_path)
    path = shutil.copytree(trained("fedbn")[0], tmp_path / "run")
    with pytest.raises(InputError, match="no client 'aa' was trained; did you mean 'a'"):
        load_trained_run(path).get_client("aa")
    config = (path / "config.toml").read_text()
    (path / "config.toml").write_text(config.replace('split_at = "last"', 'split_at = "conv"'))
    with pytest.raises(InputError, match="does not fit the network of client b"):
        load_trained_run(path)
    (path / "config.toml").write_text(config.replace('device = "cpu"', 'device = "meta"'))
    with pytest.raises(InputError, match="not supported"):
        load_trained_run(path)
    assert load_trained_run(path, "cpu").trainer.device == torch.device("cpu")
    told = json.loads((path / MANIFEST_FILE).read_text())
    del told["data"]["classes"]
    (path / MANIFEST_FILE).write_text(json.dumps(told))
    with pytest.raises(InputError, match="not what fedco2 writes"):
        load_trained_run(path, "cpu")
    (path / "checkpoints" / "last.safetensors").unlink()
    with pytest.raises(InputError, match="without its weights"):
        load_trained_run(path, "cpu")
    (path / "summary.json").unlink()
    with pytest.raises(InputError, match="no checkpoint is here yet"):
        load_trained_run(path, "cpu")
