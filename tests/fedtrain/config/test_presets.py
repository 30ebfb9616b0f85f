"""The presets against the protocol of the paper, written out by hand."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from fedtrain.config.presets import (
    BASE_PRESETS,
    get_preset_title,
    list_presets,
    load_preset_chain,
    resolve_preset,
)
from fedtrain.config.schema import format_config, parse_config
from fedtrain.data.partition.assign import validate_data_settings
from fedtrain.methods import METHODS
from theory.errors import InputError

DOMAINS = ("digits", "office", "domainnet")
SKEWS = {
    **dict.fromkeys(DOMAINS, ("domain", "label+feature")),
    "cifar10": ("iid", "pathological", "dirichlet"),
    "cifar100": ("iid", "pathological", "dirichlet", "pachinko"),
}
CASES = [(preset, skew) for preset in list_presets() for skew in SKEWS[preset.split("-")[0]]]
ONLINE_FEDBN = {"fedbn", "fedco2", "cooperate"}
"""FedBN, and the methods whose online part it is."""
WITHOUT_DENSE_NORM = {"fedper", "fedrod", "moon", "copa"}


def of(preset, method="fedavg", skew=None, standin=False, **sections):
    tables = {"method": {"name": method}, **sections}
    if skew:
        tables["data"] = {**tables.get("data", {}), "skew": skew}
    return resolve_preset(preset, tables, standin=standin)


def test_these_can_be_chosen():
    assert list_presets() == sorted(
        [*DOMAINS, "cifar10", "cifar100", "cifar10-noise", "cifar10-noise-published"]
        + [f"{name}-published" for name in (*DOMAINS, "cifar10", "cifar100")]
        + [f"{name}-lean" for name in ("digits", "office", "cifar10")]
    )
    assert all(get_preset_title(name) for name in list_presets())


@pytest.mark.parametrize("standin", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("preset", "skew"), CASES)
def test_every_combination_is_a_configuration_that_toml_can_hold(preset, skew, method, standin):
    config = of(preset, method, skew, standin)
    assert (config.method_name, config.data.skew) == (method, skew)
    assert parse_config(tomllib.loads(format_config(config))) == config
    validate_data_settings(config.data)  # the data set agrees


@pytest.mark.parametrize("preset", DOMAINS)
@pytest.mark.parametrize("method", METHODS)
def test_the_common_setting_of_feature_skew(preset, method):
    config = of(preset, method)
    local, server = config.local, config.server
    assert (local.lr, local.momentum, local.weight_decay, local.epochs, local.batch_size) == (0.01, 0, 0, 1, 32)
    assert (server.rounds, server.participation, server.weights) == (300, 1.0, "uniform")
    assert (local.last_batch, config.data.skew, config.seed, config.data.seed) == ("keep", "domain", 1, 1)
    dense_norm = method not in WITHOUT_DENSE_NORM or (method == "copa" and preset != "digits")
    assert config.model.norm == dense_norm
    assert config.model.name == ("digits" if preset == "digits" else "alexnet")
    wanted = config.method.split_at if config.model.split_at == "auto" else config.model.split_at
    assert wanted == ("last" if method in ("moon", "copa", "knnper", "fedproto") else "conv")


@pytest.mark.parametrize("preset", ["cifar10", "cifar100"])
@pytest.mark.parametrize("method", METHODS)
def test_the_common_setting_of_label_skew(preset, method):
    config = of(preset, method)
    local, server = config.local, config.server
    assert (local.lr, local.momentum, local.weight_decay, local.epochs, local.batch_size) == (0.01, 0.9, 1e-5, 5, 64)
    assert (server.rounds, server.weights, config.data.clients) == (1500, "size", 100)
    assert server.participation == (1.0 if method == "singleset" else 0.05)
    assert (config.seed, config.data.seed) == (0, 0)
    assert (config.model.name, config.model.split_at) == ("cifar", "last")
    assert config.model.norm == (method in ONLINE_FEDBN)
    evaluated = [r for r in range(1, 1501) if config.evaluation.is_in_window(r, 1500)]
    assert evaluated == list(range(1300, 1501, 5))
    assert config.evaluation.report == "window"


@pytest.mark.parametrize("preset", ["digits", "office", "cifar10"])
@pytest.mark.parametrize("method", METHODS)
def test_a_lean_preset_differs_in_what_travels_alone(preset, method):
    plain, lean = of(preset, method), of(f"{preset}-lean", method)
    assert (plain.server.codec, plain.server.broadcast_codec) == ("none", "none")
    assert "none" not in (lean.server.codec, lean.server.broadcast_codec)
    cut = method == "fedco2" and preset != "cifar10"  # whose networks are cut before the last layer anyway
    assert lean.model.split_at == ("last" if cut else plain.model.split_at)
    assert replace(lean, server=plain.server, model=plain.model) == plain
    assert plain.server == replace(lean.server, codec="none", broadcast_codec="none")


def test_how_much_of_each_data_set_is_used():
    digits, office, domainnet = (of(name) for name in DOMAINS)
    assert (digits.data.percent, digits.data.train_size, digits.data.val_size) == (0.1, None, 0)
    assert (office.data.train_size, office.data.val_size, office.data.percent) == (62, 50, None)
    assert (domainnet.data.train_size, domainnet.data.val_size, domainnet.data.percent) == (105, 105, None)
    assert [config.data.augment for config in (digits, office, domainnet)] == [False, True, True]
    assert not any(config.data.augment_val for config in (digits, office, domainnet))
    reported = [config.evaluation.report for config in (digits, office, domainnet)]
    assert reported == ["last", "best-by-validation", "best-by-validation"]
    assert office.evaluation.every == domainnet.evaluation.every == 1  # the best round is one of all


@pytest.mark.parametrize(("preset", "alpha", "divide"), [("digits", 0.3, 3), ("office", 1.0, 2), ("domainnet", 2.0, 5)])
def test_label_and_feature_skew(preset, alpha, divide):
    config = of(preset, skew="label+feature")
    assert (config.data.alpha, config.data.divide, config.data.least_per_class) == (alpha, divide, 2)
    assert (config.data.val_size, config.data.percent, config.data.train_size) == (0, None, None)
    assert config.evaluation.report == "last"
    assert (config.data.labels, config.data.thin_test) == ("aligned", "all")


def test_label_skews_of_cifar():
    ten, hundred = of("cifar10").data, of("cifar100").data
    assert (ten.skew, ten.alpha, ten.classes_per_client, ten.least) == ("dirichlet", 0.3, 2, 10)
    assert (hundred.skew, hundred.alpha, hundred.beta, hundred.classes_per_client) == ("pachinko", 0.3, 10.0, 10)


def test_noise():
    config = of("cifar10-noise")
    assert (config.data.skew, config.data.clients, config.data.noise) == ("iid", 10, 20.0)
    assert (config.server.participation, config.server.rounds, config.local.epochs) == (0.5, 500, 1)
    assert config.data.noise_unit == "pixel"
    assert of("cifar10-noise-published").data == replace(config.data, noise_unit="normalised")


def test_parameters_of_methods():
    assert (of("digits", "fedprox").method.mu, of("digits", "fedprox").method.squared) == (1e-2, True)
    assert (of("cifar10", "fedprox").method.mu, of("cifar10", "fedprox").method.squared) == (1.0, True)
    for preset in ("digits", "cifar10"):
        moon = of(preset, "moon").method
        assert (moon.mu, moon.tau, moon.previous) == (1.0, 0.5, "last")
    assert not of("office", "fedrod").method.balanced
    assert of("cifar100", "fedrod").method.balanced
    assert of("cifar10", "fedrod").method.personal_sgd == "plain"
    assert of("domainnet", "fedbn").method.bn_stats == "local"
    assert of("cifar10", "fedbn").method.bn_stats == "shared"
    assert of("digits", "singleset").method.start == "common"
    assert of("cifar10", "singleset").method.start == "own"


def test_the_two_algorithms_of_fed_co2():
    one, two = of("office", "fedco2").method, of("cifar10", "fedco2").method
    assert (one.intra, one.inter, one.mu, one.gen, one.personal) == ("both", "both", 1.0, "sum", "bn")
    assert (one.bn_stats, one.fusion, one.start) == ("local", "logits", "common")
    assert (two.intra, two.inter, two.personal, two.bn_stats, two.start) == ("none", "none", "bn", "shared", "own")


def test_quirks_of_the_published_code_are_in_the_published_presets_only():
    for name in DOMAINS:
        prox = of(f"{name}-published", "fedprox").method
        assert (prox.mu, prox.squared) == (1e-3, False)
        assert of(f"{name}-published").data.thin_test == "published"
        mixed = of(f"{name}-published", skew="label+feature").data.labels
        assert mixed == ("aligned" if name == "digits" else "misaligned")
        assert of(f"{name}-published").data.augment_val == (name != "digits")
    for name in ("cifar10", "cifar100"):
        assert of(f"{name}-published", "moon").method.previous == "initial"
        assert not of(f"{name}-published", "fedrod").method.balanced
        for method in METHODS:
            dropped = method in ONLINE_FEDBN
            assert of(f"{name}-published", method).local.last_batch == ("drop" if dropped else "keep")
            assert of(name, method).local.last_batch == "keep"


def test_a_stand_in_is_trained_for_fewer_rounds():
    assert {name: of(name, standin=True).server.rounds for name in (*DOMAINS, "cifar10")} == {
        "digits": 20,
        "office": 30,
        "domainnet": 30,
        "cifar10": 60,
    }
    assert of("office", standin=True, server={"rounds": 7}).server.rounds == 7


def test_the_user_wins_over_every_condition():
    config = of(
        "cifar10", "fedbn", "pathological", local={"lr": 0.5}, model={"norm": True}, data={"clients": 7}, seed=9
    )
    assert (config.local.lr, config.data.clients, config.seed, config.local.momentum) == (0.5, 7, 9, 0.9)
    assert resolve_preset("cifar10", {"method": {"name": "fedbn", "bn_stats": "local"}}).method.bn_stats == "local"
    assert of("digits", "fedper", model={"norm": True}).model.norm


@pytest.mark.parametrize(
    ("name", "near"), [("digit", "'digits'"), ("cifar10-noisy", "'cifar10-noise'"), ("x", "there")]
)
def test_an_unknown_preset(name, near):
    with pytest.raises(InputError, match=f"unknown preset '{name}'.*{near}"):
        resolve_preset(name, {})


@pytest.mark.parametrize("name", sorted(BASE_PRESETS))
def test_a_base_is_no_protocol(name):
    with pytest.raises(InputError, match="unknown preset"):
        load_preset_chain(name)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": 3}, "data is 3"),
        ({"method": {"name": ["fedbn"]}}, "unknown method"),
        ({"data": {"skew": ["iid"]}}, r"data\.skew is \['iid'\]"),
        ({"data": {"skew": "diriclet"}}, "did you mean 'dirichlet'"),
        ({"when": {}}, "unknown section 'when'"),
        ({"title": "mine"}, "unknown section 'title'"),
    ],
    ids=str,
)
def test_what_a_user_writes_is_checked_before_it_is_used(given, words):
    with pytest.raises(InputError, match=words):
        resolve_preset("digits", given)


def test_a_number_of_samples_takes_the_place_of_the_presets_share():
    """And the other way round; who gives both is asked to choose."""
    assert resolve_preset("digits", {"data": {"train_size": 50}}).data.percent is None
    assert resolve_preset("office", {"data": {"percent": 0.2}}).data.train_size is None
    assert resolve_preset("digits", {}).data.percent == 0.1
    assert resolve_preset("digits", {"data": {"train_size": "none"}}).data.percent == 0.1
    both = resolve_preset("digits", {"data": {"train_size": 50, "percent": 0.2}}).data
    assert (both.train_size, both.percent) == (50, 0.2)


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [("fedprox", "mu", -1.0), ("moon", "mu", -0.5), ("moon", "tau", 0.0), ("fedco2", "mu", -1.0)],
)
def test_a_parameter_out_of_range_is_refused(method, option, value):
    with pytest.raises(InputError, match=rf"^method\.{option} is {value}; it must be"):
        resolve_preset("digits", {"method": {"name": method, option: value}})
