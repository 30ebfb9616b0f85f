"""``fedco2 methods`` as a user meets it."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import pytest
import torch

from cli.main import main
from fedtrain.analysis.method_options import get_option_value, list_method_options
from fedtrain.analysis.method_summary import PRESET_FOR_MODEL, summarise_method
from fedtrain.backends.serial import SerialBackend
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.data.datasets import DATASETS
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.communication import measure_exchange
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS
from fedtrain.registry import DATASET_NAMES, METHOD_CLASSES, MODEL_NAMES
from fedtrain.runs.experiment import get_model_builder


@pytest.fixture
def ask(capsys):
    def run(*arguments):
        assert main(["methods", *arguments]) == 0
        return capsys.readouterr().out

    return run


def test_the_choices_are_those_of_the_library():
    assert list(METHODS) == list(METHOD_CLASSES)
    assert tuple(DATASETS) == DATASET_NAMES
    assert tuple(PRESET_FOR_MODEL) == MODEL_NAMES


@pytest.mark.parametrize(("model", "side", "names"), [("two-layer", 28, ["fedbn", "fedco2"]), ("cifar", 32, METHODS)])
def test_the_bytes_are_those_of_a_real_round(ask, model, side, names):
    told = {one["name"]: one for one in json.loads(ask("--model", model, "--clients", "3", "--json"))["methods"]}
    chance = torch.Generator().manual_seed(0)
    some = Samples(torch.randint(256, (6, 3, side, side), generator=chance).to(torch.uint8), torch.arange(6))
    for name in names:
        config = summarise_method(name, model).config
        make = get_model_builder(config.model, config.method, 10, (3, side, side))
        trainer = ClientTrainer(config.method, make, 10, local=config.local)
        backend = SerialBackend(trainer, [ClientData(client, some, some) for client in "abc"])
        first = backend.initial_broadcast()
        (made,) = federate(backend, first, 1)
        for update in made.updates:
            exchange = measure_exchange(first, update, trainer.batch_norm_names)
            assert told[name]["bytes"] == {
                way: {**asdict(traffic), "total": traffic.total}
                for way, traffic in (("up", exchange.up), ("down", exchange.down))
            }
        assert told[name]["shared"]["numbers"] == sum(value.numel() for value in first.shared.values())
        assert [entry for names in told[name]["names"].values() for entry in names] == list(first.shared)


def test_what_is_shared_in_words(ask):
    words = {
        one["name"]: [one[part]["what"] for part in ("shared", "personal", "published")]
        for one in json.loads(ask("--json"))["methods"]
    }
    assert words == {
        "singleset": ["", "everything", ""],
        "fedavg": ["everything", "", ""],
        "fedprox": ["everything", "", ""],
        "fedper": ["features", "head", ""],
        "moon": ["model", "previous", ""],
        "fedrod": ["generic", "personal", ""],
        "copa": ["features", "head", "head"],
        "finetune": ["everything", "", ""],
        "scaffold": ["model, server_variate", "client_variate", ""],
        "fedrep": ["features", "head", ""],
        "lgfedavg": ["head", "features", ""],
        **{name: ["generic", "personal", ""] for name in ("ditto", "pfedme", "apfl", "fml")},
        "knnper": ["everything", "", ""],
        "fedproto": ["class_shares, feature_sums", "model", ""],
        "fedbn": ["everything without batch norm", "batch norm", ""],
        "cooperate": ["online without batch norm", "offline, batch norm of online", ""],
        "fedco2": ["online without batch norm", "offline, batch norm of online", "offline.head"],
    }
    label_skew = {one["name"]: one for one in json.loads(ask("--model", "cifar", "--json"))["methods"]}
    assert label_skew["fedbn"]["personal"]["what"] == "weight and bias of batch norm"
    assert label_skew["fedco2"]["published"]["what"] == ""


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("model", MODEL_NAMES)
def test_the_table_fits_and_nothing_is_cut(ask, columns, model, terminal):
    terminal(columns)
    text = ask("--model", model)
    lines = text.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in text
    assert "\x1b" not in text
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in METHODS] == list(METHODS)


def test_the_number_of_clients_matters_to_heads_only(ask):
    few, many = (
        {one["name"]: one["bytes"] for one in json.loads(ask("--clients", n, "--json"))["methods"]} for n in ("2", "9")
    )
    for name in METHODS:
        assert few[name]["up"] == many[name]["up"]
        assert many[name]["down"]["head"] == 8 * few[name]["down"]["head"]
        assert many[name]["down"]["shared"] == few[name]["down"]["shared"]


@pytest.mark.parametrize("name", METHODS)
def test_one_method_with_every_option(ask, name):
    text = ask(name)
    for field in fields(METHODS[name]):
        assert f"  {field.name} = {str(get_option_value(field.default)).lower()}" in text
    assert ("no options" in text) == (not fields(METHODS[name]))
    assert "bytes" in text


def test_options_have_choices_and_meanings(ask):
    found = {option.name: option for option in list_method_options(METHODS["fedco2"])}
    assert found["intra"].choices == ("none", "online", "offline", "both")
    assert found["mu"].meaning == "Weight of L_gen, the loss under the peers' heads."
    assert found["mu"].choices == ()
    text = ask("fedco2", "--model", "cifar")
    assert "intra = both (here none)   of none, online, offline, both" in text
    assert "online.features" in text


def test_bad_wishes_are_refused(capsys):
    assert main(["methods", "fedbm"]) == 2
    assert main(["methods", "--clients", "0"]) == 2
    assert main(["methods", "--model", "vgg"]) == 2
    capsys.readouterr()
