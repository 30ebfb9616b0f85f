"""Real processes that run cases of `small` as ranks, one case after the other, each in a group of its own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import small_experiments
import torch

from fedtrain.backends.distributed.process_group import STORE_VARIABLE, Rank, exit_process
from fedtrain.backends.distributed.tensor_channel import TensorChannel
from fedtrain.errors import TrainingError
from fedtrain.federated.client import ClientTrainer
from fedtrain.runs.distributed import open_distributed_backend, serve_rank
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds
from fedtrain.serialization.message_codec import encode_broadcast, flatten_groups

LIMIT = 240
"""Seconds; nothing here takes a tenth of it on a quiet machine."""


def run_on_ranks(world: int, root: Path, jobs: list[dict]) -> list[int]:
    """Run jobs ``{"case", "folder"?, "stop"?, "die"?}`` on so many processes; their exit codes."""
    (root / "groups").mkdir(parents=True, exist_ok=True)
    number = len(list((root / "groups").iterdir()))
    group = root / "groups" / str(number)
    group.mkdir()
    (group / "jobs.json").write_text(json.dumps(jobs))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(world)}
    command = [sys.executable, "-X", "faulthandler", "-W", "error", __file__, str(root), str(group)]
    processes = [
        subprocess.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(world)
    ]
    end = time.monotonic() + LIMIT
    try:
        return [process.wait(max(0.1, end - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def read_detection_seconds(root: Path) -> float:
    """Seconds from the death of a rank to the error of rank 0."""
    return float((root / "told").read_text()) - float((root / "died").read_text())


def read_sent_tensors(root: Path, folder: str) -> list[tuple[str, str]]:
    """Name and digest of every tensor that any rank sent in the runs of this folder."""
    files = root.glob(f"groups/*/sent ? {folder}.json")
    return [tuple(one) for file in files for one in json.loads(file.read_text())]


def build_call(message, note: dict) -> tuple[dict, dict]:
    """A call as rank 0 makes it."""
    about, groups = encode_broadcast(message)
    return {**note, **about}, flatten_groups(groups)


def compute_digest(value: torch.Tensor) -> str:
    return hashlib.blake2b(value.contiguous().cpu().numpy().tobytes(), digest_size=16).hexdigest()


def main(root: Path, group: Path) -> None:
    """One rank."""
    torch.set_num_threads(1)
    place = Rank.from_environment()
    for number, job in enumerate(json.loads((group / "jobs.json").read_text())):
        os.environ[STORE_VARIABLE] = str(group / f"store {number}")
        log: list[tuple[str, str]] = []
        record_sent_tensors(log)
        name = job.get("folder", job["case"])
        work = small_experiments.experiment(job["case"], learning=True, **job.get("changes", {}))
        if place.rank:
            kill_in_round(job.get("die"), root)
            serve_rank(work, place)
        else:
            run_leader(work, place, RunFolder(root / name), job, root)
        (group / f"sent {place.rank} {name}.json").write_text(json.dumps(log))


def run_leader(work, place: Rank, folder: RunFolder, job: dict, root: Path) -> None:
    if not folder.has_run:
        folder.begin(work.config, {})
    try:
        with suppress(KeyboardInterrupt), open_distributed_backend(work, place, folder) as backend:
            run_rounds(work, folder, small_experiments.stop_after(job.get("stop")), backend)
    except TrainingError as error:
        if not job.get("die") or "another rank is gone" not in str(error):
            raise
        (root / "told").write_text(repr(time.time()))


def record_sent_tensors(log: list[tuple[str, str]], honest=TensorChannel._send_with) -> None:
    """Write down what this rank sends."""

    def give(channel, move, note, entries):
        log.extend((name, compute_digest(value)) for name, value in entries.items())
        honest(channel, move, note, entries)

    TensorChannel._send_with = give


def kill_in_round(round: int | None, root: Path) -> None:
    """Be killed at the end of a turn in this round, counted from 1."""

    def train(trainer, data, personal, message, *, honest=ClientTrainer.train):
        answer = honest(trainer, data, personal, message)
        if message.round + 1 == round:
            (root / "died").write_text(repr(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    ClientTrainer.train = train


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    exit_process(0)
