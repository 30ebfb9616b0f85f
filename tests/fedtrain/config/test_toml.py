"""Tables to dataclasses and back: every key known, every type right, later tables stronger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtrain.config.toml import (
    coerce_value,
    merge_tables,
    parse_override,
    parse_section,
    serialize_section,
)
from theory.errors import InputError

KEYS = st.sampled_from("abc")
TABLES = st.dictionaries(KEYS, st.dictionaries(KEYS, st.integers()))


@dataclass(frozen=True)
class Sample:
    size: int = 1
    share: float = 0.5
    on: bool = False
    name: str = "x"
    side: Literal["left", "right"] = "left"
    limit: int | None = None


def test_what_is_written_is_read_again():
    for sample in (Sample(), Sample(2, 1.0, True, "y", "right", 7)):
        assert parse_section(Sample, serialize_section(sample), "s") == sample
    assert serialize_section(Sample())["limit"] == "none"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"sise": 1}, ("unknown key 'sise' in [s]", "did you mean 'size'?")),
        ({"zzzz": 1}, ("there are size, share, on, name, side, limit",)),
        ({"size": 1.5}, ("s.size is 1.5", "a whole number")),
        ({"size": True}, ("s.size is True", "a whole number")),
        ({"size": "3"}, ("s.size is '3'",)),
        ({"size": None}, ("s.size is None",)),
        ({"size": "none"}, ("s.size is 'none'",)),
        ({"share": "much"}, ("s.share is 'much'", "a finite number")),
        ({"share": False}, ("s.share is False", "a finite number")),
        ({"share": float("nan")}, ("s.share is nan", "a finite number")),
        ({"share": float("inf")}, ("s.share is inf", "a finite number")),
        ({"on": 1}, ("s.on is 1", "true or false")),
        ({"on": "true"}, ("s.on is 'true'", "true or false")),
        ({"name": 3}, ("s.name is 3", "text")),
        ({"name": ["a"]}, ("s.name is ['a']", "text")),
        ({"side": "rigth"}, ("s.side is 'rigth'", "did you mean 'right'?")),
        ({"side": ["left"]}, ("s.side is ['left']",)),
        ({"limit": "7"}, ("s.limit is '7'", "a whole number")),
    ],
    ids=str,
)
def test_a_wrong_key_or_value_is_refused(table, words):
    with pytest.raises(InputError) as error:
        parse_section(Sample, table, "s")
    assert all(word in str(error.value) for word in words), error.value


def test_the_owner_of_a_key_is_named():
    with pytest.raises(InputError, match=r"unknown key 'mu' in \[method\] of FedAvg"):
        parse_section(Sample, {"mu": 1}, "method", "FedAvg")


def test_whole_numbers_serve_as_floats_and_none_as_nothing():
    sample = parse_section(Sample, {"share": 1, "limit": "none"}, "s")
    assert isinstance(sample.share, float)
    assert sample.limit is None
    assert coerce_value(None, int | None, "x") is None


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("local.lr=0.1", ("local", "lr", 0.1)),
        ("local.epochs=3", ("local", "epochs", 3)),
        ("data.augment=true", ("data", "augment", True)),
        ("method.intra=none", ("method", "intra", "none")),
        ('method.name="fedbn"', ("method", "name", "fedbn")),
        ("model.name=two-layer", ("model", "name", "two-layer")),
        (" method.mu = 1e-3 ", ("method", "mu", 1e-3)),
        ("data.skew=label+feature", ("data", "skew", "label+feature")),
        ("seed=3", ("seed", "", 3)),
        ("method.name=a=b", ("method", "name", "a=b")),
    ],
)
def test_set_is_read_as_toml_would_or_as_text(text, result):
    assert parse_override(text) == result


@pytest.mark.parametrize("text", ["local.lr", "lr=0.1", "=3", ""])
def test_a_set_without_section_or_value_is_refused(text):
    with pytest.raises(InputError, match=r"write section\.key=value"):
        parse_override(text)


@given(TABLES, TABLES)
def test_later_tables_win_key_by_key(first, second):
    merged = merge_tables(first, second)
    for section in first.keys() | second.keys():
        assert merged[section] == {**first.get(section, {}), **second.get(section, {})}


@given(TABLES, TABLES, TABLES)
def test_merging_does_not_depend_on_brackets_and_changes_nothing(a, b, c):
    before = repr((a, b, c))
    assert merge_tables(merge_tables(a, b), c) == merge_tables(a, merge_tables(b, c)) == merge_tables(a, b, c)
    assert repr((a, b, c)) == before


def test_a_value_takes_the_place_of_a_section():
    assert merge_tables({"data": {"a": 1}}, {"data": 3}) == {"data": 3}
