"""Text that messages share."""

from __future__ import annotations

from theory.text import find_nearest_name, suggest_name


def test_the_nearest_name_is_found_whatever_its_case():
    assert find_nearest_name("Office", ["digits", "office"]) == "office"
    assert find_nearest_name("fedc", ["fedbn", "FedCO2"]) == "FedCO2"
    assert find_nearest_name("xyzzy", ["fedbn", "fedco2"]) is None
    assert find_nearest_name("", ["fedbn"]) is None
    assert find_nearest_name("nu", ["mu", "squared"]) == "mu"
    assert find_nearest_name("resnet18", ["digits", "alexnet"]) is None


def test_all_names_are_listed_if_they_are_few_or_none_is_near():
    assert suggest_name("fedbm", ["fedavg", "fedbn"]) == "did you mean 'fedbn'? there are fedavg, fedbn"
    assert suggest_name("n1", [f"n{k}" for k in range(99)]) == "did you mean 'n1'?"
    assert suggest_name("best", ["last", "best-by-validation"]).startswith("did you mean 'best-by-validation'? ")
    assert suggest_name("", ["a", "b"]) == suggest_name("qqq", ["a", "b"]) == "there are a, b"
    assert suggest_name("qqq", []) == "there are none"
