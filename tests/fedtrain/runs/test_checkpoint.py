"""Checkpoints: the same bits back, complete or absent, and nothing else taken for one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from fedtrain.federated.communication import CommunicationCost, PayloadBytes
from fedtrain.federated.messages import Broadcast
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.runs.checkpoint import CHECKPOINT_FORMAT, RunState, load_checkpoint, read_round, save_checkpoint
from fedtrain.serialization import checked_file
from fedtrain.serialization.checked_file import compute_checksum
from theory.errors import InputError

COST = CommunicationCost(PayloadBytes(1, 2, 3), PayloadBytes(4, 5, 6))


def tiny(round=3):
    weight = torch.tensor([[1.5, -0.0], [float("nan"), 1e-45]])
    return RunState(Broadcast(round, {"w": weight}, {}), {"ä b": {"n": torch.tensor(7)}}, COST, 2.5, 99)


def bits(states):
    """Every tensor by its place, as bytes with shape and type."""
    found = {}
    for kind, entries in states.items():
        for name, value in entries.items():
            found[kind, name] = (value.dtype, value.shape, value.contiguous().reshape(-1).view(torch.uint8).tolist())
    return found


def all_of(state):
    groups = {"shared": state.message.shared}
    groups |= {f"personal {name}": entries for name, entries in state.client_states.items()}
    return groups | {f"peers {name}": entries for name, entries in state.message.peers.items()}


def test_every_method_comes_back_bit_by_bit_after_a_round(method, toy, tmp_path):
    run = toy.train(method, 1, participation=0.7)
    state = RunState(run.message, run.backend.client_states, COST, 1.25, 17)
    save_checkpoint(state, tmp_path / "c.safetensors")
    back = load_checkpoint(tmp_path / "c.safetensors")
    assert bits(all_of(back)) == bits(all_of(state))
    assert list(back.message.peers) == list(state.message.peers)  # peers judge in this order
    assert list(back.client_states) == list(state.client_states)
    assert (back.message.round, back.communication, back.seconds, back.rows_end) == (1, COST, 1.25, 17)
    assert [path.name for path in tmp_path.iterdir()] == ["c.safetensors"]


def test_the_start_where_all_clients_hold_the_same_tensors(method, toy, tmp_path):
    backend = toy.train(method, 0).backend
    one = next(iter(backend.client_states.values()))
    state = RunState(backend.initial_broadcast(), dict.fromkeys(backend.client_states, one))
    save_checkpoint(state, tmp_path / "c.safetensors")
    assert bits(all_of(load_checkpoint(tmp_path / "c.safetensors"))) == bits(all_of(state))


def test_odd_numbers_types_shapes_and_memory_formats(tmp_path):
    images = torch.arange(48.0).reshape(2, 2, 3, 4).to(memory_format=torch.channels_last)
    shared = {"images": images, "turned": torch.arange(6).reshape(2, 3).T, "flag": torch.tensor(True)}
    shared |= {"double": torch.tensor([torch.pi], dtype=torch.float64), "none": torch.empty(0, 3)}
    state = RunState(Broadcast(3, shared, {}), tiny().client_states)
    save_checkpoint(state, tmp_path / "c")
    assert bits(all_of(load_checkpoint(tmp_path / "c"))) == bits(all_of(state))
    save_checkpoint(tiny(), tmp_path / "c")
    assert bits(all_of(load_checkpoint(tmp_path / "c"))) == bits(
        all_of(tiny())
    )  # minus zero, NaN, denormals; a counter


def test_the_round_is_known_without_the_tensors(tmp_path):
    save_checkpoint(tiny(41), tmp_path / "c")
    assert read_round(tmp_path / "c") == 41


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_others_may_do_with_it_what_the_user_lets_them(tmp_path, monkeypatch, mask, mode):
    tmp_path.chmod(0o777)
    monkeypatch.setattr("fedtrain.utils.atomic_files.UMASK", mask)
    save_checkpoint(tiny(), tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == mode


def test_the_users_mask_is_known_and_left_alone():
    code = "import os; os.umask(0o027); from fedtrain.utils import atomic_files; print(atomic_files.UMASK, os.umask(0))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "23 23\n"


@pytest.mark.parametrize("where", ["save_file", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stop"])
def test_a_crash_leaves_the_old_one_and_no_stray_file(where, error, tmp_path, monkeypatch):
    path = tmp_path / "c"
    save_checkpoint(tiny(1), path)

    def crash(*args, **kwargs):
        raise error

    monkeypatch.setattr(checked_file if where == "save_file" else os, where, crash)
    with pytest.raises(type(error)):
        save_checkpoint(tiny(2), path)
    monkeypatch.undo()
    assert read_round(path) == 1
    assert bits(all_of(load_checkpoint(path))) == bits(all_of(tiny(1)))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_disk_that_takes_nothing_is_a_clear_error(tmp_path):
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match=r"c: cannot be written \(.*No such file"):
        save_checkpoint(tiny(), tmp_path / "c")


@pytest.mark.parametrize("place", ["about", "sha256", "w", "last byte"])
def test_one_wrong_bit_is_noticed(place, tmp_path):
    path = tmp_path / "c"
    save_checkpoint(tiny(), path)
    whole = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(whole[:8], "little")  # of the tensors
    places = {"about": whole.index(b"rows_end") + 13, "sha256": whole.index(b"sha256") + 20, "w": start + 5}
    whole[places.get(place, len(whole) - 1)] ^= 1
    path.write_bytes(whole)
    with pytest.raises(InputError, match=r"c: not a checkpoint of fedco2, or damaged .*; start the run anew"):
        load_checkpoint(path)


def test_any_bit_of_the_tensors_and_of_what_is_said_of_them(tmp_path):
    path = tmp_path / "c"
    save_checkpoint(tiny(), path)
    whole, said = path.read_bytes(), path.read_bytes().index(b"{")
    for at in range(said, len(whole)):
        spoilt = bytearray(whole)
        spoilt[at] ^= 1
        path.write_bytes(spoilt)
        try:
            back = load_checkpoint(path)
        except InputError:
            continue
        assert bits(all_of(back)) == bits(all_of(tiny())), at  # a blank more or less between the words
        assert (back.message.round, back.communication, back.rows_end) == (3, COST, 99)


def test_the_way_out_of_a_damaged_one_is_a_kept_one_but_not_itself(tmp_path):
    last = tmp_path / "last.safetensors"
    for round in (4, 6):
        save_checkpoint(tiny(round), last)
        os.link(last, tmp_path / f"round-00000{round}.safetensors")
    with last.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x55")
    with pytest.raises(InputError, match=r"rename round-000004\.safetensors to last\.safetensors to go on from there"):
        load_checkpoint(last)
    os.replace(tmp_path / "round-000004.safetensors", last)
    assert load_checkpoint(last).message.round == 4


def test_who_was_left_out_comes_back(tmp_path):
    skipped = ({"round": 2, "client": "ä b", "reason": "client ä b, round 2: the loss is nan"},)
    save_checkpoint(replace(tiny(), skipped=skipped), tmp_path / "c")
    assert load_checkpoint(tmp_path / "c").skipped == skipped


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_cut_off_file_is_refused(share, tmp_path):
    save_checkpoint(tiny(), tmp_path / "c")
    whole = (tmp_path / "c").read_bytes()
    (tmp_path / "c").write_bytes(whole[: int(share * len(whole))])
    for reader in (load_checkpoint, read_round):
        with pytest.raises(InputError, match=r"c: not a checkpoint of fedco2, or damaged"):
            reader(tmp_path / "c")


@pytest.mark.parametrize("content", [b"hello, I am a text file", b"\x80\x04K\x01.", b"\xff" * 64, bytes(64)])
def test_a_foreign_file_is_refused(content, tmp_path):
    (tmp_path / "c").write_bytes(content)
    for reader in (load_checkpoint, read_round):
        with pytest.raises(InputError, match="not a checkpoint"):
            reader(tmp_path / "c")


GOOD = {
    "format": CHECKPOINT_FORMAT,
    "round": 3,
    "clients": ["a"],
    "publishing": [],
    "ledger": {"up": {}, "down": {}},
    "seconds": 0.0,
    "rows_end": 0,
    "skipped": [],
}


@pytest.mark.parametrize(
    "about",
    [
        None,
        "not JSON",
        "[]",
        "null",
        "[" * 100_000,
        *[json.dumps({key: value for key, value in GOOD.items() if key != gone}) for gone in GOOD],
        json.dumps({**GOOD, "publishing": ["b"]}),
        json.dumps({**GOOD, "ledger": []}),
        json.dumps({**GOOD, "ledger": {"up": {"sideways": 1}, "down": {}}}),
        json.dumps({**GOOD, "clients": 3}),
    ],
    ids=lambda about: str(about)[:40],
)
def test_safetensors_of_somebody_else_are_refused(about, tmp_path):
    tensors = {"x": torch.zeros(2)}
    told = None if about is None else {"about": about, "sha256": compute_checksum(tensors, about)}
    save_file(tensors, tmp_path / "c", told)
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "c")


def test_safetensors_with_all_that_is_said_of_a_checkpoint_are_one(tmp_path):
    """So that those above are refused for what they lack, not for their checksum."""
    tensors, about = {"x": torch.zeros(2)}, json.dumps(GOOD)
    save_file(tensors, tmp_path / "c", {"about": about, "sha256": compute_checksum(tensors, about)})
    assert load_checkpoint(tmp_path / "c").message.round == 3


def test_another_version_is_named(tmp_path):
    about = json.dumps({**GOOD, "format": "fedco2 checkpoint 99"})
    save_file({"x": torch.zeros(2)}, tmp_path / "c", {"about": about})
    with pytest.raises(InputError, match=r"made by another version \('fedco2 checkpoint 99'\)"):
        load_checkpoint(tmp_path / "c")


def test_to_a_device_and_nothing_else_changes(toy):
    run = toy.train(FedCO2(), 1)
    state = RunState(run.message, run.backend.client_states, COST, 1.25, 17)
    moved = state.to(torch.device("cpu"))
    assert bits(all_of(moved)) == bits(all_of(state))
    assert (moved.communication, moved.seconds, moved.rows_end) == (COST, 1.25, 17)
    assert {t.device.type for group in all_of(state.to(torch.device("meta"))).values() for t in group.values()} == {
        "meta"
    }
