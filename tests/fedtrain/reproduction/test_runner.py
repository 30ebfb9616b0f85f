"""Cells as processes: some at a time, one that fails leaves the others alone, nobody stays behind."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedtrain.reproduction import runner
from fedtrain.reproduction.runner import is_locked, read_last_log_line, read_rounds_done, run_jobs, stop_processes

COMMAND = [sys.executable, "-c"]


@dataclass(eq=False)
class Script:
    """Stands for a job: a folder, a log, and a program."""

    folder: Path
    program: str

    @property
    def log(self):
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def finished(self):
        return (self.folder / "done").exists()


def build_command(script):
    return [*COMMAND, script.program, "an argument"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(runner, "PAUSE", 0.02)


def look_away(running, done, waiting):
    """Nobody watches."""


def test_all_run_some_at_a_time_and_one_that_fails_leaves_the_others_alone(tmp_path):
    most = []
    programs = ["import sys; print('round 3/9'); print(sys.argv[1:])"] * 3 + ["import sys; sys.exit('no luck')"]
    todo = [Script(tmp_path / f"cell{k}", program) for k, program in enumerate(programs)]
    done = run_jobs(todo, build_command, 2, lambda running, *_: most.append(len(running)))
    assert {outcome.job: outcome.code for outcome in done} == dict(zip(todo, (0, 0, 0, 1), strict=True))
    assert max(most) == 2
    assert read_last_log_line(todo[0]) == "['an argument']"
    assert read_last_log_line(todo[3]) == "no luck"
    assert read_rounds_done(todo[0]) == 3


def test_an_interrupt_ends_every_process_and_lets_it_save(tmp_path):
    save = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved')))\n"
    todo = [Script(tmp_path / f"cell{k}", save + "print('ready', flush=True); time.sleep(60)") for k in range(2)]
    seen = []

    def interrupt(running, done, waiting):
        seen[:] = [one.process for one in running]
        if all(job.log.exists() and "ready" in job.log.read_text() for job in todo):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(todo, build_command, 2, interrupt)
    assert [process.returncode for process in seen] == [0, 0]
    assert [read_last_log_line(job) for job in todo] == ["saved", "saved"]


def test_who_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(60)"
    process = subprocess.Popen([*COMMAND, deaf], stdout=subprocess.PIPE)
    process.stdout.readline()
    stop_processes([process])
    process.stdout.close()
    assert process.returncode == -9


HOLD = """
import sys, time
from pathlib import Path
from fedtrain.runs.folder import RunFolder
folder = Path(sys.argv[1])
with RunFolder(folder).exclusive_lock():
    print("held", flush=True)
    sys.stdin.readline()
    (folder / "done").touch()
"""


def test_a_cell_that_another_program_works_on_is_waited_for(tmp_path):
    job = Script(tmp_path / "cell", "raise SystemExit('never started')")
    other = subprocess.Popen([*COMMAND, HOLD, str(job.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held\n"
    looks = []

    def look(running, done, waiting):
        looks.append([one.process for one in running])
        if len(looks) == 3:
            other.stdin.write(b"\n")
            other.stdin.flush()

    (outcome,) = run_jobs([job], build_command, 1, look)
    other.communicate()
    assert (outcome.job, outcome.code) == (job, 0)
    assert looks[0] == [None]
    assert not job.log.exists()


def test_the_lock_of_a_dead_process_is_free(tmp_path):
    folder = tmp_path / "cell"
    other = subprocess.Popen([*COMMAND, HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held\n"
    assert is_locked(folder)
    other.kill()
    other.communicate()
    assert (folder / ".lock").exists()
    assert not is_locked(folder)


def test_nothing_is_busy_where_nothing_is(tmp_path):
    assert not is_locked(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_run_without_a_log(tmp_path):
    job = Script(tmp_path / "cell", "")
    assert (read_rounds_done(job), read_last_log_line(job)) == (0, "it printed nothing")


TIED = """
import os, signal, sys, time
import fedtrain.reproduction.child_process as tied
from threading import Thread
tied.PAUSE = 0.05
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("saved", flush=True)))
Thread(target=tied.stop_when_parent_exits, args=(int(sys.argv[1]),), daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys, time
log = open(sys.argv[2], "wb")
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], stdout=log, start_new_session=True)
time.sleep(60)
"""


def test_a_run_saves_and_ends_when_its_parent_is_killed(tmp_path):
    log = tmp_path / "log"
    parent = subprocess.Popen([*COMMAND, PARENT, TIED, str(log)])
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    parent.kill()
    parent.wait()
    wait_for(lambda: log.read_text().endswith("saved\n"))


def wait_for(what, seconds=30):
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.05)
