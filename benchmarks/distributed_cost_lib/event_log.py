"""What happens in a run, whichever process it happens in: lines of JSON in one file, on one clock."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedtrain.backends.distributed.tensor_channel import TensorChannel
from fedtrain.data.client_data import ClientData
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.parameters import StateDict
from fedtrain.runs.callbacks import Callback, OnRoundEnd, RoundProgress

LOG_VARIABLE = "FEDCO2_METERS"
"""Environment: the file."""
Event = dict[str, Any]


class EnoughRounds(Exception):  # noqa: N818 - nothing went wrong
    """All rounds that are looked at were made."""


def log_event(what: str, begun: float, **more: object) -> None:
    """Write down what took from then till now; in one piece, for others write too."""
    now = time.perf_counter()  # the machine's own: the same in all processes
    line = json.dumps({"what": what, "pid": os.getpid(), "seconds": now - begun, "at": now, **more}) + "\n"
    handle = os.open(os.environ[LOG_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read_events(path: Path) -> list[Event]:
    """All so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def install_meters() -> None:
    """Have this process write down how long its clients train, and the bytes it gives to other ranks."""
    train, give = ClientTrainer.train, TensorChannel._send_with

    def timed(
        trainer: ClientTrainer, data: ClientData, personal: StateDict, message: Broadcast
    ) -> tuple[Update, StateDict]:
        begun = time.perf_counter()
        importlib.import_module("torch._dynamo")  # the first optimiser of a process does it: the process's price
        log_event("load", begun, round=message.round + 1)
        begun = time.perf_counter()
        done = train(trainer, data, personal, message)
        log_event("train", begun, client=data.name, round=message.round + 1)
        return done

    def counted(
        channel: TensorChannel, move: Callable[[Tensor], object], note: Mapping[str, Any], entries: StateDict
    ) -> None:
        begun, given = time.perf_counter(), 0

        def count_and_move(piece: Tensor) -> object:
            nonlocal given
            given += piece.nbytes
            return move(piece)

        give(channel, count_and_move, note, entries)
        log_event("give", begun, bytes=given, rank=int(os.environ["RANK"]))

    ClientTrainer.train, TensorChannel._send_with = timed, counted  # type: ignore[method-assign,assignment]


def build_round_logger(rounds: int) -> Callback:
    """Write down each round, and end the run after so many."""

    def watch(progress: RoundProgress) -> None:
        up, down = progress.communication.up.total, progress.communication.down.total
        begun = time.perf_counter() - progress.seconds
        log_event("round", begun, round=progress.round, up=up, down=down, clients=len(progress.losses))
        if progress.round >= rounds:
            raise EnoughRounds

    return OnRoundEnd(watch)
