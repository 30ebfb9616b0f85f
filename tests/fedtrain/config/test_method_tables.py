"""Methods made of methods, as configurations have them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from fedtrain.config.method_tables import fill_default_options, flatten_parts, parse_method, serialize_method
from fedtrain.config.options import nest_options
from fedtrain.config.presets import resolve_preset
from fedtrain.config.references import load_references
from fedtrain.config.schema import format_config, parse_config
from fedtrain.methods import METHODS
from fedtrain.methods.cooperate import Cooperate
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedper import FedPer
from fedtrain.methods.fedprox import FedProx
from fedtrain.methods.fedrep import FedRep
from fedtrain.methods.fedrod import FedRoD
from fedtrain.methods.singleset import SingleSet
from theory.errors import InputError

THREE = Cooperate(online=FedRep(head_epochs=2), offline=Cooperate(online=FedProx(mu=0.5), fusion="probabilities"))


@pytest.mark.parametrize("method", [THREE, Cooperate(), FedCO2(), FedCO2(online=FedPer(), offline=FedAvg())])
def test_a_method_goes_into_a_configuration_and_comes_back(method):
    assert parse_method(type(method), serialize_method(method)) == method
    name = next(name for name, kind in METHODS.items() if kind is type(method))
    config = parse_config({"method": {"name": name, **serialize_method(method)}})
    assert parse_config(tomllib.loads(format_config(config))) == config


def test_options_of_parts_are_dotted_keys_or_tables():
    given = nest_options({"method": "cooperate"}, ["method.online=fedrep", "method.online.head_epochs=2"])
    assert parse_config(given).method == Cooperate(online=FedRep(head_epochs=2))
    nested = tomllib.loads('[method]\nname = "cooperate"\n[method.online]\nname = "fedrep"\nhead_epochs = 2\n')
    assert parse_config(nested).method == Cooperate(online=FedRep(head_epochs=2))
    assert flatten_parts(nested["method"]) == given["method"]
    assert parse_method(Cooperate, {"online.bn_stats": "shared"}) == Cooperate(online=FedBN(bn_stats="shared"))
    assert parse_method(FedCO2, {"online": "none"}) == FedCO2()


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("cooperate", {"online": "fedpr"}, r"method.online: unknown method 'fedpr'; did you mean"),
        (
            "cooperate",
            {"online": "fedrep", "online.head_epoch": 2},
            r"'head_epoch' in \[method.online\] of FedRep; did",
        ),
        ("cooperate", {"onlin": "fedper"}, r"unknown key 'onlin' in \[method\] of Cooperation; did you mean 'online'"),
        ("cooperate", {"online": "fedprox", "online.mu": -1}, r"^method.online.mu is -1"),
        ("cooperate", {"online": 3}, r"method.online: unknown method 3"),
        ("fedco2", {"online.mu": 1}, r"method.online.mu is an option of a method, .* set method.online"),
        ("cooperate", {"online": "lg:LG"}, r"method.online: method lg:LG is code outside fedco2"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(name, given, message):
    with pytest.raises(InputError, match=message):
        parse_config({"method": {"name": name, **given}})


def test_cooperations_do_not_lie_in_each_other_for_ever():
    table: dict[str, Any] = {"online": "fedavg"}
    for _ in range(20):
        table = {"name": "cooperate", "offline": table}
    with pytest.raises(InputError, match="deep in each other; take fewer"):
        parse_config({"method": table})


def test_a_method_of_the_users_own_may_be_a_part(tmp_path):
    file = tmp_path / "own_part.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\nimport fedtrain\n"
        "@dataclass(frozen=True)\nclass Own(fedtrain.FedPer):\n    title: ClassVar[str] = 'Own'\n"
    )
    given = load_references({"method": {"name": "cooperate", "online": f"{file}:Own"}})
    assert given["method"]["online"] == "own_part:Own"
    assert parse_config(given).method.online.title == "Own"


def test_presets_give_each_part_its_options_and_the_online_one_its_network():
    def resolve(**method):
        return resolve_preset("cifar10", {"method": method})

    fedper = resolve(name="cooperate", online="fedper")
    assert fedper.method == Cooperate(online=FedPer(), offline=SingleSet(start="own"))
    assert not fedper.model.norm
    assert fedper.server.participation == 0.05  # SingleSet's own would be 1
    fedbn = resolve(name="cooperate")
    assert fedbn.method == Cooperate(online=FedBN(bn_stats="shared"), offline=SingleSet(start="own"))
    assert fedbn.model.norm
    within = resolve(name="fedco2", online="fedrod")
    assert within.method.online == FedRoD(balanced=True, personal_sgd="plain")
    assert (within.method.intra, within.model.norm) == ("none", False)
    assert resolve(name="fedco2", online="fedrod", **{"online.balanced": False}).method.online.balanced is False


def test_defaults_of_another_part_are_not_filled_in():
    found = fill_default_options(Cooperate, {"name": "cooperate", "online": "fedper"})
    assert not any(key.startswith("online.") for key in found)
    assert found["offline.start"] == "common"
    assert fill_default_options(None, {"name": "lg:LG", "mu": 1}) == {"name": "lg:LG", "mu": 1}
