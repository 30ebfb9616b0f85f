"""The folder of a run: whole files, whole lines, and nothing of anybody's overwritten."""

from __future__ import annotations

import json
import lzma
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedtrain.config.schema import Config
from fedtrain.data.client_data import Federation, Preprocessing
from fedtrain.runs import folder as folder_module
from fedtrain.runs.folder import (
    CONFIG_FILE,
    LAST_CHECKPOINT,
    LOCK_FILE,
    MANIFEST_FILE,
    METRICS_FILE,
    PACKED_METRICS_FILE,
    SUMMARY_FILE,
    UNFINISHED_START_FILE,
    RunFolder,
)
from fedtrain.runs.manifest import build_manifest, count_classes, describe_data, get_git_commit
from theory.errors import InputError

ROWS = [
    {"round": round, "client": "ä b", "split": "test", "branch": "fused", "accuracy": 0.5, "loss": 1.25, "n": 4}
    for round in (1, 2)
]
BEGUN = sorted(["checkpoints", "figures", CONFIG_FILE, MANIFEST_FILE, METRICS_FILE])


@pytest.fixture
def begun(tmp_path):
    folder = RunFolder(tmp_path / "my rün")
    folder.begin(Config(), {"a": 1})
    return folder


def names(folder):
    return sorted(path.name for path in folder.path.iterdir())


def test_a_run_begins(begun):
    assert names(begun) == BEGUN
    assert begun.load_config() == Config()
    assert begun.read_json(MANIFEST_FILE) == {"a": 1}
    assert (begun.load_rows(), begun.has_run, begun.is_finished, begun.read_last_saved_round()) == ([], True, False, 0)
    assert begun.load_checkpoint() is None


@pytest.mark.parametrize("name", [CONFIG_FILE, MANIFEST_FILE, METRICS_FILE, SUMMARY_FILE, "checkpoints", "figures"])
def test_what_is_there_is_not_overwritten(name, tmp_path):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"holds {name} already.*choose another folder"):
        RunFolder(tmp_path).begin(Config(), {})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


def test_other_files_are_let_be(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path).begin(Config(), {})
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("place", ["a file", "a file/below", "/proc/fedco2"])
def test_where_nothing_can_be_written_there_is_one_line(place, tmp_path):
    (tmp_path / "a file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot write to .*choose another folder"):
        RunFolder(tmp_path / place).begin(Config(), {})
    assert (tmp_path / "a file").read_text() == "mine"


@pytest.mark.parametrize("kind", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stop"])
@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_run_that_could_not_begin_leaves_nothing(kind, fails_at, tmp_path, monkeypatch):
    calls = iter(range(1, 9))
    fsync = os.fsync

    def full(number):
        if next(calls) == fails_at:
            raise kind
        fsync(number)

    monkeypatch.setattr(os, "fsync", full)
    folder = RunFolder(tmp_path / "out")
    with pytest.raises((InputError, KeyboardInterrupt)) as error:
        folder.begin(Config(), {})
    if isinstance(error.value, InputError):
        assert "No space left on device" in str(error.value)
    assert names(folder) == []
    folder.begin(Config(), {})
    assert names(folder) == BEGUN


def test_one_process_at_a_time(begun):
    """The other is a real process, which then dies without a word."""
    code = "import sys, time; from pathlib import Path; from fedtrain.runs.folder import RunFolder\n"
    code += "with RunFolder(Path(sys.argv[1])).exclusive_lock(): print('in', flush=True); time.sleep(99)"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(begun.path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    with other.stdout:
        assert other.stdout.readline() == "in\n"
        with (
            pytest.raises(InputError, match="another process is at work here; wait for it or stop it"),
            begun.exclusive_lock(),
        ):
            pytest.fail("two at a time")
        assert (begun.path / LOCK_FILE).exists()  # it is the other's
        other.send_signal(signal.SIGKILL)
        other.wait()
    with begun.exclusive_lock():
        assert (begun.path / LOCK_FILE).exists()
    assert names(begun) == BEGUN


def test_a_lock_that_was_taken_away_is_none(begun, monkeypatch):
    """Opened before the process that held it removed it, locked afterwards, when a third one has made its own."""
    import fcntl

    flock = fcntl.flock

    def late(file, how):
        (begun.path / LOCK_FILE).unlink()
        (begun.path / LOCK_FILE).touch()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(InputError, match="another process is at work"), begun.exclusive_lock():
        pytest.fail("two at a time")


def test_what_a_killed_process_left_half_written_is_cleared_away(begun):
    halves = (
        ".summary.json.part",
        "checkpoints/.last.safetensors.part",
        "checkpoints/.tmpAb3xYz",
        UNFINISHED_START_FILE,
    )
    for name in (*halves, "figures/.accuracy-x1.part", "figures/mine.part", "notes.part"):
        (begun.path / name).write_text("half")
    with begun.exclusive_lock():
        assert names(begun) == sorted([*BEGUN, LOCK_FILE, "notes.part"])
        assert list((begun.path / "checkpoints").iterdir()) == []
        assert [path.name for path in (begun.path / "figures").iterdir()] == ["mine.part"]
    assert begun.has_run


def test_in_a_folder_without_a_run_nothing_is_cleared_away(tmp_path):
    (tmp_path / ".film.part").write_text("mine")
    folder = RunFolder(tmp_path)
    with folder.exclusive_lock():
        folder.begin(Config(), {})
    assert (tmp_path / ".film.part").read_text() == "mine"


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()], ids=["fine", "stop"])
def test_a_folder_that_nothing_came_of_is_taken_away(error, tmp_path):
    def work():
        with RunFolder(tmp_path / "out").exclusive_lock():
            if error:
                raise error

    if error:
        with pytest.raises(KeyboardInterrupt):
            work()
    else:
        work()
    assert list(tmp_path.iterdir()) == []


BEGIN = """
import os, signal, sys
from pathlib import Path
from fedtrain.config.schema import Config
from fedtrain.runs.folder import RunFolder

def begin(place, left):
    def count(event, arguments):
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and place in str(arguments[0]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    folder = RunFolder(Path(place))
    with folder.exclusive_lock():
        folder.begin(Config(), {"a": 1})

for step in range(1, 40):
    child = os.fork()
    if not child:
        begin(f"{sys.argv[1]}/run {step}", step)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""
"""Begin a run and die at the n-th touch of the disk, for every n."""


def test_killed_at_any_step_of_its_beginning_the_same_command_begins_it(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, "-c", BEGIN, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    ends = [int(line) for line in done.stdout.split()]
    steps = ends.index(0)  # from there on it came to its end
    assert ends == [signal.SIGKILL] * steps + [0] * (39 - steps)
    assert steps > 10
    for step in range(1, steps + 1):
        folder = RunFolder(tmp_path / f"run {step}")
        with folder.exclusive_lock():
            if not folder.has_run:
                folder.begin(Config(), {"a": 1})
        assert names(folder) == BEGUN, step
        assert folder.load_config() == Config()
        assert folder.read_json(MANIFEST_FILE) == {"a": 1}


def test_rows_are_appended_in_whole_lines(begun):
    end = begun.append_rows(ROWS)
    assert end == (begun.path / METRICS_FILE).stat().st_size
    assert begun.append_rows([]) == end
    begun.append_rows(ROWS[:1])
    assert begun.load_rows() == [*ROWS, ROWS[0]]
    text = (begun.path / METRICS_FILE).read_bytes()
    assert text.endswith(b"}\n")
    assert "ä b" in text.decode()  # readable, not escaped


def test_a_full_disk_leaves_no_half_row(begun, monkeypatch):
    end = begun.append_rows(ROWS)
    real = Path.open

    def half(path, *args, **kwargs):
        file = real(path, *args, **kwargs)
        write = file.write

        class Half:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def write(self, content):
                write(content[: len(content) // 2])
                raise OSError(28, "No space left on device")

        return Half()

    monkeypatch.setattr(Path, "open", half)
    with pytest.raises(OSError, match="No space left"):
        begun.append_rows(ROWS)
    monkeypatch.undo()
    assert (begun.path / METRICS_FILE).stat().st_size == end
    assert begun.load_rows() == ROWS


def test_rows_of_an_unfinished_round_are_cut_off(begun):
    end = begun.append_rows(ROWS)
    begun.append_rows(ROWS)
    begun.truncate_rows(end)
    assert begun.load_rows() == ROWS
    begun.truncate_rows(end)
    assert begun.load_rows() == ROWS
    with pytest.raises(InputError, match=r"metrics\.jsonl: shorter than"):
        begun.truncate_rows(end + 1)


@pytest.mark.parametrize("line", [b'{"round": 1, "cli', b"\xff\xfe\n", b"[" * 100_000], ids=range(3))
def test_rows_that_are_no_json_are_damaged(line, begun):
    begun.append_rows(ROWS)
    with (begun.path / METRICS_FILE).open("ab") as file:
        file.write(line)
    with pytest.raises(InputError, match=r"metrics\.jsonl: damaged"):
        begun.load_rows()


def test_packed_metrics_of_a_record_are_read(begun):
    """Where the plain ones are there they count, for a run goes on with them."""
    begun.append_rows(ROWS)
    plain = begun.path / METRICS_FILE
    (begun.path / PACKED_METRICS_FILE).write_bytes(lzma.compress(plain.read_bytes().splitlines()[0]))
    assert begun.load_rows() == ROWS
    plain.unlink()
    assert begun.load_rows() == ROWS[:1]


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"not packed", "Input format not supported"),
        (lzma.compress(b"{}\n" * 9)[:-8], "ended before"),
        (lzma.compress(b'{"round": 1}'), "a row is not"),
        (lzma.compress(bytes(2000)), "unpacks to more than"),
    ],
    ids=["no xz", "cut", "no row", "bomb"],
)
def test_packed_metrics_that_cannot_be_read_are_refused(packed, why, begun, monkeypatch):
    monkeypatch.setattr(folder_module, "MAX_UNPACKED_METRICS", 1000)
    (begun.path / METRICS_FILE).unlink()
    (begun.path / PACKED_METRICS_FILE).write_bytes(packed)
    with pytest.raises(InputError, match=rf"metrics\.jsonl\.xz: damaged .*{why}.*; copy the record anew"):
        begun.load_rows()


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_file_is_complete_or_absent(where, begun, monkeypatch):
    begun.write_text(SUMMARY_FILE, "old\n")

    def crash(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, where, crash)
    for name in (SUMMARY_FILE, "new.json"):
        with pytest.raises(KeyboardInterrupt):
            begun.write_text(name, "new\n")
    assert (begun.path / SUMMARY_FILE).read_text() == "old\n"
    assert names(begun) == sorted([*BEGUN, SUMMARY_FILE])


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "\x00", "[" * 100_000], ids=range(6))
def test_a_summary_that_is_no_summary(text, begun):
    (begun.path / SUMMARY_FILE).write_text(text)
    with pytest.raises(InputError, match=r"summary\.json: cannot be read"):
        _ = begun.is_finished


def test_finished_is_what_the_summary_says(begun):
    for value in (False, True):
        begun.write_json(SUMMARY_FILE, {"finished": value})
        assert begun.is_finished is value


def test_no_run_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no run is here \(no config\.toml\)"):
        RunFolder(tmp_path).load_config()
    assert not RunFolder(tmp_path / "nowhere").has_run


def test_a_damaged_checkpoint_is_named(begun):
    (begun.path / LAST_CHECKPOINT).write_bytes(b"x")
    for reader in (begun.load_checkpoint, begun.read_last_saved_round):
        with pytest.raises(InputError, match=r"last\.safetensors: not a checkpoint"):
            reader()


def test_the_manifest_says_what_was_used(toy):
    data = Federation(tuple(toy.build_clients()), ("x", "y", "z"), "Toy (stand-in)", True, Preprocessing(), ("drawn",))
    about = json.loads(json.dumps(build_manifest(Config(), describe_data(data), "fedco2 train")))
    assert set(about) == {"command", "started", "versions", "git", "machine", "data"}
    assert set(about["versions"]) == {"fedco2", "python", "torch"}
    assert about["machine"]["threads"] == torch.get_num_threads()
    assert (about["data"]["title"], about["data"]["standin"]) == ("Toy (stand-in)", True)
    assert (about["data"]["sha256"], about["data"]["notes"]) == (data.fingerprint, ["drawn"])
    client = about["data"]["clients"][1]
    assert (client["name"], sum(client["train"]), client["val"], sum(client["test"])) == ("a", 11, [0, 0, 0], 30)
    assert count_classes(None, 2) == [0, 0]


def test_the_commit_is_none_outside_a_source_tree(monkeypatch, tmp_path):
    monkeypatch.setattr("fedtrain.runs.manifest.__file__", str(tmp_path / "manifest.py"))
    assert get_git_commit() is None

    def absent(*args, **kwargs):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", absent)
    assert get_git_commit() is None
