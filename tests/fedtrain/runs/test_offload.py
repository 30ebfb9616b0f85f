"""What clients keep on disk: the same bits, in files without a name, and nothing of it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.threads import ThreadsBackend
from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import Config, EvaluationSettings, MachineSettings, ServerSettings
from fedtrain.federated.client import ClientTrainer
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.runs.callbacks import OnRoundEnd
from fedtrain.runs.folder import METRICS_FILE
from fedtrain.runs.loop import run_rounds
from fedtrain.runs.offload import offload
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")

METHODS = {
    "fedbn": FedBN(),
    "fedco2": FedCO2(),
    "fedco2-own": FedCO2(intra="none", inter="none", bn_stats="shared", start="own"),
    "fedavg": FedAvg(),  # keeps nothing
}
SIX_ROUNDS = Config(
    local=LocalSettings(lr=0.05, batch_size=8),
    server=ServerSettings(rounds=6, participation=0.7),
    evaluation=EvaluationSettings(every=2),
)
ON_DISK = MachineSettings(client_state="disk")
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8]


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    chance = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    value = torch.randint(-9, 9, shape, generator=chance).to(draw(st.sampled_from(TYPES)))
    return value.permute(draw(st.permutations(range(value.ndim))))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(), tensors(), max_size=6))
def test_what_is_shelved_is_the_same(entries):
    back = offload(entries)
    assert list(back) == list(entries)
    for name, value in entries.items():
        assert torch.equal(back[name], value)
        assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape)
        assert back[name].is_contiguous()
        assert not value.numel() or back[name].data_ptr() % 64 == 0


def test_odd_numbers_come_back_bit_by_bit():
    odd = torch.tensor([-0.0, float("nan"), float("inf"), 1e-45])
    assert offload({"w": odd})["w"].view(torch.int32).tolist() == odd.view(torch.int32).tolist()


def test_it_has_no_name_and_no_open_file_and_goes_when_nobody_holds_it(tmp_path):
    def mapped():
        return Path("/proc/self/maps").read_text().count(str(tmp_path)) if Path("/proc/self/maps").exists() else 0

    opened = len(os.listdir("/dev/fd"))
    kept = [offload({"w": torch.full((1000,), float(i)), "n": torch.tensor(i)}, tmp_path) for i in range(40)]
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/dev/fd")) == opened  # hundreds of clients would be too many
    assert mapped() == (40 if sys.platform == "linux" else 0)
    assert [int(one["w"].mean()) for one in kept] == [int(one["n"]) for one in kept] == list(range(40))
    del kept
    assert mapped() == 0


MANY = """
import resource, torch
from fedtrain.runs.offload import offload
one = torch.ones(2**20)
offload({"w": one})  # all that is needed once
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used * 1024 + 64 * 2**20,) * 2)
kept = [offload({"w": one.fill_(float(i))}) for i in range(64)]
print(sum(entries["w"].mean().item() for entries in kept))
kept = [one.clone() for i in range(64)]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count other memory")
def test_more_is_kept_than_there_is_memory_for():
    """256 MiB where 64 may be had; what is mapped from a file is not of one's own."""
    found = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=False)
    assert found.stdout == f"{float(sum(range(64)))}\n"
    assert "can't allocate memory" in found.stderr


def test_a_disk_that_takes_nothing_is_a_clear_error(tmp_path):
    with pytest.raises(InputError, match=r"gone: what clients keep cannot be written there \(.*No such file.*memory"):
        offload({"w": torch.ones(3)}, tmp_path / "gone")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("unable to mmap 12 bytes")])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(error, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise error

    monkeypatch.setattr(torch, "from_file", full)
    with pytest.raises(InputError, match=r"(No space left|unable to mmap).*make room"):
        offload({"w": torch.ones(3)}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def outcome(folder):
    """Metrics as bytes, all tensors, and what lies in the folder."""
    state = folder.load_checkpoint()
    files = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*"))
    return (
        (folder.path / METRICS_FILE).read_bytes(),
        state.client_states,
        state.message.shared,
        state.message.peers,
        files,
    )


def agree(same, one, other):
    (*_, files), (*_, others) = one, other
    return one[0] == other[0] and files == others and all(same(a, b) for a, b in zip(one[1:4], other[1:4], strict=True))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_the_same_bits_as_from_memory_stopped_and_resumed_or_not(method, begin, same, monkeypatch):
    work, folder = begin(SIX_ROUNDS, method=method)
    run_rounds(work, folder)
    disk, other = begin(SIX_ROUNDS, method=method, machine=ON_DISK)
    run_rounds(disk, other, [OnRoundEnd(lambda progress: names_of(other) == [] or pytest.fail("a file has a name"))])
    assert agree(same, outcome(other), outcome(folder))

    again, third = begin(SIX_ROUNDS, method=method, machine=ON_DISK)
    with monkeypatch.context() as patch:
        patch.setattr("fedtrain.federated.client.ClientTrainer.train", stopping_after(5))
        with pytest.raises(KeyboardInterrupt):
            run_rounds(again, third)
    assert 0 < third.read_last_saved_round() < 6
    run_rounds(again, third)
    assert agree(same, outcome(third), outcome(folder))


def names_of(folder):
    return [path.name for path in folder.path.iterdir() if path.name.endswith(".part")]


def stopping_after(count):
    """Ctrl-C in the middle of a round, when a client of it has trained and is on disk already."""
    trained = []

    def train(trainer, data, personal, message, *, real=ClientTrainer.train):
        trained.append(data.name)
        if len(trained) > count:
            raise KeyboardInterrupt
        return real(trainer, data, personal, message)

    return train


@pytest.mark.parametrize("at_once", [False, True], ids=["serial", "threads"])
def test_an_abandoned_round_changes_nothing_and_older_entries_stay(at_once, toy, same, tmp_path, monkeypatch):
    trainers = [toy.build_client_trainer(FedCO2()), toy.build_client_trainer(FedCO2())]
    how = {"keep": lambda entries: offload(entries, tmp_path)}
    backend = (
        ThreadsBackend(trainers, toy.build_clients(), **how)
        if at_once
        else SerialBackend(trainers[0], toy.build_clients(), **how)
    )
    first = dict(backend.client_states)
    copies = {name: {key: value.clone() for key, value in own.items()} for name, own in first.items()}
    message = backend.initial_broadcast()
    with monkeypatch.context() as patch:
        patch.setattr("fedtrain.federated.client.ClientTrainer.train", stopping_after(2))
        with pytest.raises(KeyboardInterrupt):
            backend.train(message, backend.client_names)
    assert all(backend.client_states[name] is first[name] for name in toy.names)
    backend.train(message, ["a"])
    assert not same(backend.client_states["a"], copies["a"])
    assert same(first, copies)  # a state that was noted before the round can still be saved


def test_a_round_is_given_up_when_the_disk_is_full_even_if_failures_are_skipped(begin, same, monkeypatch):
    config = replace(SIX_ROUNDS, server=replace(SIX_ROUNDS.server, on_client_failure="skip"))
    work, folder = begin(config, method=FedCO2(), machine=ON_DISK)
    written = []

    def full(entries, folder, *, real=offload):
        written.append(entries)
        if len(written) == 8:
            raise InputError(f"{folder}: cannot be written")
        return real(entries, folder)

    with monkeypatch.context() as patch:
        patch.setattr("fedtrain.runs.experiment.offload", full)
        with pytest.raises(InputError, match="cannot be written"):
            run_rounds(work, folder)
    assert folder.read_last_saved_round() >= 2
    run_rounds(work, folder)
    whole, other = begin(config, method=FedCO2())
    run_rounds(whole, other)
    assert agree(same, outcome(folder), outcome(other))


def test_what_a_process_killed_in_the_act_leaves_is_cleared_away(begin, tmp_path, monkeypatch):
    _, folder = begin(SIX_ROUNDS)
    names = []

    def stop(name, **how):
        names.append(name)
        os.link(name, tmp_path / "as it was")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "from_file", stop)
    with pytest.raises(KeyboardInterrupt):
        offload({"w": torch.ones(9)}, folder.path)
    assert names_of(folder) == []
    os.rename(tmp_path / "as it was", names[0])  # nobody tidies up after SIGKILL
    assert len(names_of(folder)) == 1
    with folder.exclusive_lock():
        assert names_of(folder) == []


def test_clients_that_begin_alike_share_one_file(toy):
    calls = []

    def keep(entries):
        calls.append(entries)
        return offload(entries)

    assert same_tensors(SerialBackend(toy.build_client_trainer(FedBN()), toy.build_clients(), keep=keep).client_states)
    assert len(calls) == 1


def same_tensors(personal):
    """One address for each of the two weights of the toy's batch norm."""
    return len({value.data_ptr() for own in personal.values() for key, value in own.items() if "weight" in key}) == 2
