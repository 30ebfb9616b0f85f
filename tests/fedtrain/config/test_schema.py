"""A configuration: what it refuses, how it is written down, and when it evaluates."""

from __future__ import annotations

import dataclasses
import tomllib

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from fedtrain.config.schema import (
    Config,
    EvaluationSettings,
    MachineSettings,
    ModelSettings,
    ServerSettings,
    format_config,
    load_toml,
    parse_config,
    serialize_config,
)
from fedtrain.methods import METHODS
from theory.errors import InputError

SMALL = st.integers(1, 60)
SCHEDULES = st.builds(EvaluationSettings, every=SMALL, window=st.integers(0, 80), window_every=SMALL)


@pytest.mark.parametrize("name", METHODS)
def test_it_goes_through_toml_unchanged(name):
    config = parse_config({"seed": 7, "method": {"name": name}, "data": {"clients": 4}, "machine": {"threads": 2}})
    assert parse_config(tomllib.loads(format_config(config))) == config
    assert config.method_name == name


def test_toml_holds_every_field():
    tables = serialize_config(Config())
    for section, table in tables.items():
        if section != "seed":
            held = {field.name for field in dataclasses.fields(getattr(Config(), section))}
            assert set(table) - {"name"} == held - {"name"}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"dta": {}}, ("unknown section 'dta'", "did you mean 'data'?")),
        ({"data": 3}, ("data is 3", "[data]")),
        ({"method": "fedbn"}, ("method is 'fedbn'", "[method]")),
        ({"method": {"name": "fedbm"}}, ("unknown method 'fedbm'", "did you mean 'fedbn'?")),
        ({"method": {"name": ["fedbn"]}}, ("unknown method ['fedbn']",)),
        ({"method": {"name": "fedavg", "mu": 1.0}}, ("unknown key 'mu'", "of FedAvg")),
        ({"method": {"name": "fedprox", "nu": 1.0}}, ("of FedProx", "did you mean 'mu'?")),
        ({"local": {"lrr": 1.0}}, ("unknown key 'lrr' in [local]", "did you mean 'lr'?")),
        ({"model": {"name": "alexnt"}}, ("unknown model 'alexnt'", "did you mean 'alexnet'?")),
        ({"evaluation": {"report": "best"}}, ("evaluation.report is 'best'", "did you mean 'best-by-validation'?")),
        ({"seed": -1}, ("seed is -1",)),
        ({"seed": True}, ("seed is True",)),
        ({"seed": "one"}, ("seed is 'one'",)),
        ({"local": {"lr": 0}}, ("local.lr is 0",)),
        ({"local": {"lr": float("nan")}}, ("local.lr is nan",)),
        ({"local": {"momentum": 1.0}}, ("local.momentum is 1.0",)),
        ({"local": {"epochs": 0}}, ("local.epochs is 0",)),
        ({"local": {"batch_size": 0}}, ("local.batch_size is 0",)),
        ({"model": {"width": 0}}, ("model.width is 0",)),
        ({"machine": {"threads": 0}}, ("machine.threads is 0",)),
        ({"machine": {"device": "gpu"}}, ("'gpu'", "auto, cpu or cuda")),
        ({"machine": {"device": "meta"}}, ("'meta'", "auto, cpu or cuda")),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_with_the_way_out(tables, words):
    with pytest.raises(InputError) as error:
        parse_config(tables)
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "bad", [{"rounds": 0}, {"participation": 0.0}, {"participation": 1.1}, {"participation": float("nan")}]
)
def test_rounds_and_shares_that_cannot_be(bad):
    with pytest.raises(InputError, match=rf"server\.{next(iter(bad))}"):
        ServerSettings(**bad)


@pytest.mark.parametrize("bad", [{"every": 0}, {"window_every": 0}, {"window": -1}, {"report": "window"}])
def test_evaluations_that_cannot_be(bad):
    with pytest.raises(InputError, match=r"evaluation\."):
        EvaluationSettings(**bad)


def test_a_file_that_is_no_toml(tmp_path):
    for content in (b"seed = ", b"\xff\xfe"):
        (tmp_path / "my run.toml").write_bytes(content)
        with pytest.raises(InputError, match=r"my run\.toml: not a TOML file"):
            load_toml(tmp_path / "my run.toml")


def test_auto_is_a_device_that_is_there():
    assert MachineSettings().resolve_device().type in ("cpu", "cuda")
    assert MachineSettings(device="cpu").resolve_device().type == "cpu"
    assert ModelSettings(width=1).width == 1


@pytest.mark.parametrize(
    ("there", "device", "words"),
    [(0, "cuda", "sees no CUDA; use cpu"), (2, "cuda:2", "the last one here is cuda:1")],
)
def test_a_device_of_another_machine_is_read_but_not_used(there, device, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    machine = MachineSettings(device=device)
    with pytest.raises(InputError, match=words):
        machine.resolve_device()


def test_a_gpu_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(MachineSettings(device=name).resolve_device()) for name in ("auto", "cuda", "cuda:1")] == [
        "cuda",
        "cuda",
        "cuda:1",
    ]


def test_forty_one_evaluations_make_the_window_of_label_skew():
    schedule = EvaluationSettings(every=50, window=200, window_every=5, report="window")
    inside = [r for r in range(1, 1501) if schedule.is_due(r, 1500) and schedule.is_in_window(r, 1500)]
    assert inside == list(range(1300, 1501, 5))
    assert len(inside) == 41


@pytest.mark.parametrize("every", [1, 7, 50, 1500])
def test_curves_do_not_change_what_the_window_is(every):
    schedule = EvaluationSettings(every=every, window=200, window_every=5)
    assert [r for r in range(1, 1501) if schedule.is_in_window(r, 1500)] == list(range(1300, 1501, 5))


@given(SCHEDULES, st.integers(1, 200))
def test_the_last_round_and_the_whole_window_are_evaluated(schedule, rounds):
    assert schedule.is_due(rounds, rounds)
    assert all(schedule.is_due(r, rounds) for r in range(1, rounds + 1) if schedule.is_in_window(r, rounds))
    assert schedule.is_in_window(rounds, rounds) == (schedule.window > 0)


@given(SCHEDULES, st.integers(1, 200), st.data())
def test_a_round_is_due_for_a_reason(schedule, rounds, data):
    round = data.draw(st.integers(1, rounds))
    assume(round != rounds)
    late = schedule.window > 0 and round >= rounds - schedule.window
    assert schedule.is_due(round, rounds) == (
        round % schedule.every == 0 or (late and round % schedule.window_every == 0)
    )


@given(SMALL, st.integers(1, 200))
def test_without_a_window_evaluations_are_so_many_rounds_apart(every, rounds):
    due = [r for r in range(1, rounds + 1) if EvaluationSettings(every=every).is_due(r, rounds)]
    assert due == sorted({*range(every, rounds + 1, every), rounds})
