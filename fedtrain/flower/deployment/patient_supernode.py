"""``python -m fedtrain.flower.deployment.patient_supernode``: Flower's SuperNode, quicker and harder to stop.

Four things are other than Flower's: what it knows of its requests (``patient_state``), that it keeps a worker instead
of starting a process for every message (``worker_keeper``), how often it looks for work, and that it outlives a
SuperLink that is overloaded, restarted, or cut off in the midst of a word.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from logging import WARNING
from types import SimpleNamespace

import httpx
from flwr.supercore import log
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.object_store import ObjectStore
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode
from flwr.supernode.nodestate import nodestate_factory

from fedtrain.flower.deployment.patient_state import PatientNodeState
from fedtrain.flower.deployment.worker_keeper import WorkerKeeper

REPLY_INTERVAL = 0.1
"""Seconds between two looks for the reply of an app, which cost nothing."""
LEAST_PULL_INTERVAL, PULL_BACKOFF = 0.5, 0.25
"""Seconds between two looks for a request just after the last one, and how they grow with the time since then."""


class AttentiveClock:
    """Sleeps in a node's place: it looks for a request more often as long as it may soon get one.

    Flower's nodes look every three seconds, which each costs the SuperLink a request to its database, and twice a
    second for the reply of their own app. Where rounds are short that is most of a round.
    """

    def __init__(self) -> None:
        self.last_busy = float("-inf")

    def sleep(self, seconds: float) -> None:
        """As long as Flower has it, or shorter."""
        now = time.monotonic()
        if seconds < 1:
            self.last_busy = now
            time.sleep(min(seconds, REPLY_INTERVAL))
        else:
            time.sleep(min(seconds, max(LEAST_PULL_INTERVAL, PULL_BACKOFF * (now - self.last_busy))))


class WarmNode:
    """Starts a keeper where Flower starts a process, and for that holds on to the state of its node."""

    def build_state(self, object_store: ObjectStore) -> PatientNodeState:
        """The state of this process's one node."""
        self.state = PatientNodeState(object_store)
        return self.state

    def start_keeper(self, command: Sequence[str]) -> None:
        """With what is said to Flower's SuperExec of where the node is."""
        words = dict(pairwise(command))
        WorkerKeeper(self.state, words["--runtime-api-address"], words.get("--root-certificates")).start()


def is_passing(error: httpx.HTTPError) -> bool:
    """Whether the SuperLink may answer the next time: it did not refuse, it could not."""
    return not isinstance(error, httpx.HTTPStatusError) or error.response.is_server_error


def pull_patiently(pull: Callable[..., int | None]) -> Callable[..., int | None]:
    """Look for a request, and if that fails in passing, say so and have found none.

    Flower tries some failures again and ends the node at others: at status 500, and if a connection breaks while it
    is encrypted anew.
    """

    def try_to_pull(**how: object) -> int | None:
        try:
            return pull(**how)
        except httpx.HTTPError as error:
            if not is_passing(error):
                raise
            log(WARNING, "the SuperLink could not be asked for work (%s); it will be asked again", error)
            return None

    return try_to_pull


def send_heartbeats_patiently(send: Callable[[], bool]) -> HeartbeatSender:
    """Say that the node is there; where Flower stops for ever at status 500, say it again soon."""

    def try_to_send() -> bool:
        try:
            return send()
        except httpx.HTTPStatusError as error:
            if not is_passing(error):
                raise
            return False

    return HeartbeatSender(try_to_send)


def outlive_failures() -> None:
    """The node of this process ends when it is told to, or refused."""
    node, connection = vars(start_client_internal), vars(fleet_http_connection)
    node["_pull_and_store_message"] = pull_patiently(node["_pull_and_store_message"])
    connection["HeartbeatSender"] = send_heartbeats_patiently


def install_node_state() -> None:
    """Every node of this process from now on."""
    vars(nodestate_factory)["InMemoryNodeState"] = PatientNodeState


def install_warm_worker() -> None:
    """The node of this process has a worker that stays, and looks for work as often as it may come."""
    node = WarmNode()
    vars(nodestate_factory)["InMemoryNodeState"] = node.build_state
    vars(start_client_internal)["subprocess"] = SimpleNamespace(Popen=node.start_keeper)
    vars(start_client_internal)["time"] = AttentiveClock()


if __name__ == "__main__":
    install_warm_worker()
    outlive_failures()
    flower_supernode()
