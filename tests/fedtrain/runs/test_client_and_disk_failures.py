"""Clients that cannot train, disks that are full: the run stops with a clear word or goes on, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import torch

from fedtrain.backends.serial import SerialBackend
from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import CheckpointSettings, Config, EvaluationSettings, ServerSettings
from fedtrain.data.client_data import Samples
from fedtrain.errors import TrainingError
from fedtrain.federated import server
from fedtrain.federated.client import ClientTrainer
from fedtrain.methods import METHODS
from fedtrain.runs.callbacks import OnRoundEnd
from fedtrain.runs.folder import LAST_CHECKPOINT, METRICS_FILE, SUMMARY_FILE, RunFolder
from fedtrain.runs.loop import run_rounds
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")

STOP = Config(
    local=LocalSettings(lr=0.05, batch_size=8), server=ServerSettings(rounds=3), evaluation=EvaluationSettings(every=1)
)
SKIP = replace(STOP, server=ServerSettings(rounds=3, on_client_failure="skip"))


def broken(patch, fault, clients="a", rounds=(2,)):
    """Let these clients fail in these rounds, counted from 1, after they have trained: the trainer is in disorder."""
    adapt = ClientTrainer.train_locally

    def spoilt(trainer, data, personal, message):
        loss = adapt(trainer, data, personal, message)
        if data.name not in clients or message.round + 1 not in rounds:
            return loss
        if fault == "NaN":
            return loss * float("nan")
        if fault == "weights":
            next(trainer.module.parameters()).data[0] = float("inf")
            return loss
        raise fault

    patch.setattr("fedtrain.federated.client.ClientTrainer.train_locally", spoilt)


PLACE = r"\S*test_client_and_disk_failures\.py:\d+"  # the fault stands for one in code that is not ours
FAULTS = {
    "NaN": ("NaN", "client a, round 2: the loss is nan"),
    "weights": ("weights", "client a, round 2: its weights are not finite"),
    "raises": (RuntimeError("mat1 and mat2"), f"client a, round 2: {PLACE}: RuntimeError: mat1 and mat2"),
    "key": (KeyError("x"), f"client a, round 2: {PLACE}: KeyError: 'x'"),
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_stop_names_client_and_round_and_keeps_what_was_complete(fault, words, begin, monkeypatch, same):
    whole, other = begin(STOP)
    run_rounds(whole, other)
    work, folder = begin(STOP)
    with monkeypatch.context() as patch:
        broken(patch, fault)
        with pytest.raises(TrainingError, match=words) as error:
            run_rounds(work, folder)
    assert error.value.exit_code == 1
    assert "\n" not in str(error.value)
    assert (folder.read_last_saved_round(), folder.is_finished) == (1, False)
    assert {row["round"] for row in folder.load_rows()} == {1}
    run_rounds(work, folder)
    assert (folder.path / METRICS_FILE).read_bytes() == (other.path / METRICS_FILE).read_bytes()
    assert same(folder.load_checkpoint().client_states, other.load_checkpoint().client_states)


@pytest.mark.parametrize("name", METHODS)
def test_skip_is_a_round_without_that_client(name, begin, monkeypatch, same):
    """Against a run whose cohort of the second round lacks the client."""
    config = replace(SKIP, method=METHODS[name]())
    work, folder = begin(config)
    with monkeypatch.context() as patch:
        broken(patch, "weights")
        run_rounds(work, folder)
    chosen = server.sample_cohort

    def without(names, participation, seed, round):
        return [name for name in chosen(names, participation, seed, round) if (name, round) != ("a", 1)]

    peer, other = begin(config)
    with monkeypatch.context() as patch:
        patch.setattr("fedtrain.federated.server.sample_cohort", without)
        run_rounds(peer, other)
    one, two = folder.load_checkpoint(), other.load_checkpoint()
    assert same(one.message.shared, two.message.shared)
    assert same(one.message.peers, two.message.peers)
    assert same(one.client_states, two.client_states)
    assert (folder.path / METRICS_FILE).read_bytes() == (other.path / METRICS_FILE).read_bytes()
    assert one.communication.up == two.communication.up
    assert one.communication.down.total - two.communication.down.total >= (
        0 if name == "singleset" else 1
    )  # it was sent the model


@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_who_is_skipped_is_said_everywhere_and_keeps_its_own(fault, words, begin, monkeypatch, same):
    work, folder = begin(SKIP)
    seen, kept = [], [work.build_backend().client_states]
    train = SerialBackend.train

    def noted(backend, message, cohort):
        answers = train(backend, message, cohort)
        kept.append(dict(backend.client_states))
        return answers

    with monkeypatch.context() as patch:
        broken(patch, fault)
        patch.setattr(SerialBackend, "train", noted)
        summary = run_rounds(work, folder, [OnRoundEnd(seen.append)])
    assert [[failure.client for failure in progress.failures] for progress in seen] == [[], ["a"], []]
    assert set(seen[1].losses) == {"b", "c"}
    assert re.search(words, seen[1].failures[0].reason)
    (told,) = summary["skipped"]
    assert (told["round"], told["client"]) == (2, "a")
    assert re.search(words, told["reason"])
    assert json.loads((folder.path / SUMMARY_FILE).read_text())["skipped"] == [told]
    start, first, second, third = kept
    assert same(first["a"], second["a"])
    assert not same(first["b"], second["b"])
    assert not same(start["a"], first["a"])
    assert not same(second["a"], third["a"])


def test_who_was_skipped_is_still_known_after_a_resume(begin, monkeypatch):
    whole, other = begin(SKIP)
    work, folder = begin(SKIP)

    def stop(progress):
        if progress.round == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        broken(patch, "NaN", clients="ac", rounds=(2, 3))
        with pytest.raises(KeyboardInterrupt):
            run_rounds(work, folder, [OnRoundEnd(stop)])
        assert [(one["round"], one["client"]) for one in folder.load_checkpoint().skipped] == [(2, "a"), (2, "c")]
        summary = run_rounds(work, folder)
        assert [(one["round"], one["client"]) for one in summary["skipped"]] == [(2, "a"), (2, "c"), (3, "a"), (3, "c")]
        assert run_rounds(whole, other)["skipped"] == summary["skipped"]
    assert (folder.path / METRICS_FILE).read_bytes() == (other.path / METRICS_FILE).read_bytes()


def test_without_anybody_there_is_no_round(begin, monkeypatch):
    work, folder = begin(SKIP)
    with monkeypatch.context() as patch:
        broken(patch, "NaN", clients="abc", rounds=(3,))
        with pytest.raises(TrainingError, match="round 3: no client could train; client b, round 3: the loss is nan"):
            run_rounds(work, folder)
    assert folder.read_last_saved_round() == 2
    assert run_rounds(work, folder)["finished"]


def test_a_client_short_of_memory_is_named_when_skipped(begin, monkeypatch):
    work, folder = begin(SKIP)
    broken(monkeypatch, MemoryError())
    assert run_rounds(work, folder)["skipped"] == [{"round": 2, "client": "a", "reason": "client a: out of memory"}]


@pytest.mark.parametrize("name", METHODS)
def test_a_client_without_data(name, begin, toy):
    first, second, third = toy.build_clients()
    clients = [first, replace(second, train=Samples(second.train.inputs[:0], second.train.labels[:0])), third]
    config = replace(SKIP, method=METHODS[name]())
    work, folder = begin(config, clients)
    with pytest.raises(InputError, match="client a: it has no training samples"):
        replace(work, config=replace(config, server=STOP.server)).validate()
    work.validate()
    summary = run_rounds(work, folder)
    assert [one["round"] for one in summary["skipped"]] == [1, 2, 3]
    assert {(one["client"], one["reason"].partition(";")[0]) for one in summary["skipped"]} == {
        ("a", "client a: it has no training samples")
    }
    start = work.build_backend().client_states["a"]
    assert all(torch.equal(value, start[key]) for key, value in folder.load_checkpoint().client_states["a"].items())
    assert {row["client"] for row in folder.load_rows()} == set("abc")  # it is evaluated all the same


KEEPING = replace(STOP, checkpoints=CheckpointSettings(every=1, keep=2))


def kept(folder):
    return sorted(path.name for path in (folder.path / LAST_CHECKPOINT).parent.iterdir())


def test_only_the_latest_of_every_k_th_checkpoint_are_kept(begin):
    config = replace(STOP, server=ServerSettings(rounds=9), checkpoints=CheckpointSettings(every=2, keep=3))
    work, folder = begin(config)
    sizes = []
    run_rounds(work, folder, [OnRoundEnd(lambda progress: sizes.append(len(kept(folder))))])
    assert kept(folder) == ["last.safetensors", *(f"round-00000{k}.safetensors" for k in (4, 6, 8))]
    assert max(sizes) == 4
    assert [folder.load_checkpoint().message.round, folder.read_last_saved_round()] == [9, 9]


def test_a_kept_checkpoint_is_the_run_at_that_round(begin, same):
    whole, other = begin(STOP)
    run_rounds(whole, other)
    work, folder = begin(KEEPING)
    run_rounds(work, folder)
    (folder.path / SUMMARY_FILE).unlink()
    last = folder.path / LAST_CHECKPOINT
    os.replace(last.with_name("round-000002.safetensors"), last)
    assert folder.read_last_saved_round() == 2
    run_rounds(work, folder)
    assert (folder.path / METRICS_FILE).read_bytes() == (other.path / METRICS_FILE).read_bytes()
    assert same(folder.load_checkpoint().client_states, other.load_checkpoint().client_states)
    assert kept(folder) == ["last.safetensors", "round-000002.safetensors", "round-000003.safetensors"]


def test_killed_between_a_checkpoint_and_its_second_name(begin, monkeypatch):
    work, folder = begin(KEEPING)
    link = os.link

    def killed(source, target):
        if target.name == "round-000002.safetensors":
            raise KeyboardInterrupt
        link(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            run_rounds(work, folder)
    assert folder.read_last_saved_round() == 2
    run_rounds(work, folder)
    assert kept(folder) == ["last.safetensors", "round-000002.safetensors", "round-000003.safetensors"]


@contextmanager
def mounted(place, size):
    """A small disk, where that is allowed."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], capture_output=True)
    if made.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "disk", "512k"):
        yield tmp_path / "disk"


def test_a_full_disk_leaves_the_old_checkpoint_to_go_on_from(small_disk, begin, same):
    whole, other = begin(STOP)
    run_rounds(whole, other)
    work, folder = begin(KEEPING, place=small_disk / "run")
    filler = small_disk / "filler"

    def fill(progress):
        if progress.round == 2:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1024))

    with pytest.raises(InputError, match=r"last\.safetensors: cannot be written .*make room or get leave, and resume"):
        run_rounds(work, folder, [OnRoundEnd(fill)])
    assert folder.read_last_saved_round() == 1
    assert kept(folder) == ["last.safetensors", "round-000001.safetensors"]
    with pytest.raises((InputError, OSError)):  # still full
        run_rounds(work, folder)
    assert folder.read_last_saved_round() == 1
    filler.unlink()
    run_rounds(work, folder)
    assert (folder.path / METRICS_FILE).read_bytes() == (other.path / METRICS_FILE).read_bytes()
    assert same(folder.load_checkpoint().client_states, other.load_checkpoint().client_states)


def test_a_disk_that_becomes_read_only(small_disk, begin):
    work, folder = begin(KEEPING, place=small_disk / "run")

    def close(progress):
        if progress.round == 2:
            subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    with pytest.raises(InputError, match=r"last\.safetensors: cannot be written \(.*Read-only file system"):
        run_rounds(work, folder, [OnRoundEnd(close)])
    assert folder.read_last_saved_round() == 1
    with pytest.raises(InputError, match=r"cannot write to .*Read-only file system"), folder.exclusive_lock():
        pass
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert run_rounds(work, folder)["finished"]


def test_a_disk_full_of_rows_says_so_and_goes_on(begin, monkeypatch):
    work, folder = begin(STOP)
    append = RunFolder.append_rows

    def full(place, rows):
        if rows[0]["round"] == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(place, rows)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_rows", full)
        with pytest.raises(OSError, match="No space left"):
            run_rounds(work, folder)
    assert folder.read_last_saved_round() == 2
    assert run_rounds(work, folder)["finished"]
