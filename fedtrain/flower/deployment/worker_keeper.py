"""A node's thread that keeps one worker and gives it turn after turn, in place of Flower's SuperExec.

That is a process which asks its node for tasks and starts a process for each. The thread is in the node itself: it
gives a turn on as soon as its request is there, ends the worker when another app is wanted or nothing has come for a
while, and reports a turn whose worker died at once.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from logging import ERROR
from threading import Thread

from flwr.common.constant import Status, SubStatus
from flwr.proto.task_pb2 import Task
from flwr.supercore import log
from flwr.supercore.constant import TaskType

from fedtrain.flower.deployment.patient_state import PatientNodeState
from fedtrain.flower.deployment.warm_worker import DONE, TAKEN, Turn

WORKER_MODULE = "fedtrain.flower.deployment.warm_worker"
TAKE_LIMIT = 100.0
"""Seconds in which a worker has started and taken its turn; a node waits a little longer for it."""
FINISH_LIMIT = 10.0
"""Seconds that a worker has to finish a turn whose reply the node has sent already."""
IDLE_LIMIT = 600.0
"""Seconds after which a worker that has nothing to do is ended, for the memory that it holds."""
LOOK_INTERVAL = 0.05
"""Seconds between two looks for a turn."""


class Worker:
    """A process that takes turns, as the one who starts it sees it."""

    def __init__(self, app_hash: str) -> None:
        self.app_hash = app_hash
        self.task_id: int | None = None
        """What it is at."""
        self.last_used = time.monotonic()
        self.channel, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", WORKER_MODULE, str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def take(self, turn: Turn, task_id: int) -> bool:
        """Give it a turn; whether it has begun with it."""
        try:
            self.channel.sendall(turn.encode().encode())
        except OSError:
            return False
        if self._hear(TAKE_LIMIT) != TAKEN:
            return False
        self.task_id = task_id
        return True

    def is_at_work(self, patience: float = 0.0) -> bool:
        """Whether it has not finished its turn, after so many seconds."""
        if self.task_id is not None and self._hear(patience) == DONE:
            self.task_id, self.last_used = None, time.monotonic()
        return self.task_id is not None

    def has_ended(self) -> bool:
        """Whether there is no such process any more."""
        return self.process.poll() is not None

    def end(self) -> None:
        """At once: what it has written down is whole, and it holds nothing else."""
        self.process.kill()
        self.process.wait()
        self.channel.close()

    def _hear(self, patience: float) -> bytes | None:
        """Its next word, if one comes in time; an empty one if none will ever come."""
        try:
            ready, _, _ = select.select([self.channel], [], [], patience)
            return self.channel.recv(1) if ready else None
        except ConnectionError:
            return b""


class WorkerKeeper:
    """Gives the turns of a node to its worker; Flower's agents, models and connectors have no place here."""

    def __init__(self, state: PatientNodeState, address: str, root_certificates: str | None) -> None:
        self.state, self.address, self.root_certificates = state, address, root_certificates
        self.worker: Worker | None = None

    def start(self) -> None:
        """From now on, for as long as the node lives."""
        Thread(target=self._run, daemon=True, name="worker-keeper").start()

    def look(self) -> None:
        """Look after the worker, and for turns."""
        self._look_after_worker()
        for task in self.state.get_tasks(statuses=[Status.PENDING], order_by="pending_at", ascending=True):
            if task.type == TaskType.CLIENT_APP and self.state.has_request(task.task_id):
                token = self.state.claim_task(task.task_id)
                if token is not None:
                    self._give(task, token)

    def end_worker(self) -> None:
        """If there is one."""
        if self.worker is not None:
            self.worker.end()
            self.worker = None

    def _give(self, task: Task, token: str) -> None:
        """Give a turn to the worker of its app, or to a new one if that is not there or not well."""
        turn = Turn(self.address, token, self.root_certificates)
        if self.worker is not None and (self.worker.is_at_work(FINISH_LIMIT) or self.worker.app_hash != task.fab_hash):
            self.end_worker()
        for _ in range(2):
            self.worker = self.worker or Worker(task.fab_hash)
            if self.worker.take(turn, task.task_id):
                return
            self.end_worker()
        self.state.finish_task(task.task_id, SubStatus.FAILED, "no worker has taken the turn")

    def _look_after_worker(self) -> None:
        worker = self.worker
        if worker is None:
            return
        if not worker.is_at_work() and time.monotonic() - worker.last_used > IDLE_LIMIT:
            self.end_worker()
        elif worker.has_ended():
            self.end_worker()
            if worker.task_id is not None:
                self.state.finish_task(worker.task_id, SubStatus.FAILED, "the worker died in its turn")

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except Exception as error:  # whatever it is, the node must not be left without this thread
                log(ERROR, "the worker cannot be looked after", exc_info=error)
                time.sleep(1.0)
            time.sleep(LOOK_INTERVAL)
