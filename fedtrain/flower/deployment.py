"""A SuperLink and one SuperNode for each client on this machine: started, looked at, mended and ended."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fedtrain.errors import TrainingError
from fedtrain.flower.alone import alone
from fedtrain.flower.commands import CA
from fedtrain.flower.control import Control, Run, write_connection
from fedtrain.flower.deployed import NAME, Deployed, Part, read
from fedtrain.flower.environment import require_flower
from fedtrain.flower.parts import DATABASE, HOME, LOGS, SECURITY, SUPERLINK, Parts, everything, node_name
from fedtrain.flower.ports import free_ports
from fedtrain.flower.processes import end
from fedtrain.flower.status import NodeStatus, Status
from fedtrain.interrupts import defer_interrupts
from theory.errors import InputError

LATE, PAUSE = 90.0, 3.0
"""Seconds in which a SuperLink has learnt that a killed node is gone (60) and lets it in again; between attempts."""


class Deployment:
    """What runs in a folder. ``logs/`` and ``nodes/``, the clients' own, stay when it ends; all else goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    @property
    def is_up(self) -> bool:
        """Whether one was started here and not yet ended."""
        return (self.folder / NAME).exists()

    @property
    def clients(self) -> int:
        """How many nodes it has."""
        return len(read(self.folder).nodes)

    @property
    def control(self) -> Control:
        """Its SuperLink, to be asked and told."""
        return Control(self._parts().environment("control"))

    def up(
        self,
        clients: int,
        *,
        data_dir: Path | None = None,
        tls: bool = False,
        threads: int = 1,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Start all; when this returns every node is online, and when it fails nothing is left behind."""
        version = require_flower()
        if data_dir is not None and not data_dir.is_dir():
            raise InputError(f"{data_dir}: no such folder; give --data-dir that of all data")
        self.folder.mkdir(parents=True, exist_ok=True)
        with alone(self.folder):
            self._check_new()
            first, *others = map(Part, free_ports(1 + clients))
            data = None if data_dir is None else str(data_dir.resolve())
            deployed = Deployed(version, tls, threads, data, first, others)
            deployed.write(self.folder)  # from here on there is something to end
            try:
                self._begin(Parts(self.folder, deployed), tell)
            except BaseException:
                with defer_interrupts():  # a second Ctrl-C does not save what the first one ends
                    self._down()
                raise

    def down(self) -> int:
        """End all and clear away what only served it; how many processes there were. Done twice it is done once."""
        with alone(self.folder):
            return self._down()

    def status(self) -> Status:
        """Look at all of it."""
        parts = self._parts()
        first, nodes = parts.deployed.superlink, parts.deployed.nodes
        heard: dict[str, str] = {}
        runs: list[Run] = []
        try:
            if first.alive:
                heard, runs = self.control.nodes(), self.control.runs()
        except TrainingError:
            if first.alive:  # else it ended while it was asked
                raise
        seen = [
            NodeStatus(client, node.pid, node.alive, node.node_id, heard.get(node.node_id or "") == "online")
            for client, node in enumerate(nodes)
        ]
        return Status(parts.address, parts.deployed.tls, first.pid, first.alive, seen, runs)

    def restart_node(self, client: int, patience: float = LATE) -> None:
        """End a client's node if it runs, and start it again; return once it is online.

        A node with a key that was killed is let in again once the SuperLink has missed it, so it is tried for a while.
        """
        with alone(self.folder):
            parts, until = self._parts(), time.monotonic() + patience
            while True:
                end(parts.processes(node_name(client)))
                parts.start_node(client)
                try:
                    return parts.wait_for_node(client)
                except TrainingError:
                    if not parts.deployed.tls or time.monotonic() + PAUSE > until:
                        raise
                time.sleep(PAUSE)

    def restart_superlink(self) -> None:
        """End the SuperLink if it runs, and start it again; nodes come back by themselves, runs do not."""
        with alone(self.folder):
            parts = self._parts()
            end(parts.processes(SUPERLINK))
            parts.start_superlink()

    def _parts(self) -> Parts:
        return Parts(self.folder, read(self.folder))

    def _check_new(self) -> None:
        if self.is_up:
            way_out = f"end it with fedco2 flower down --dir {self.folder}"
            raise InputError(f"{self.folder}: a deployment is here already; {way_out}")
        for name in (DATABASE, SECURITY, HOME):
            if (self.folder / name).exists():
                raise InputError(f"{self.folder / name} is there already and is not overwritten; choose another --dir")

    def _begin(self, parts: Parts, tell: Callable[[str], None]) -> None:
        (self.folder / LOGS).mkdir(exist_ok=True)
        clients = range(len(parts.deployed.nodes))
        secrets = parts.certificates
        if secrets is not None:
            from fedtrain.flower.security import make_secrets

            make_secrets(secrets, map(node_name, clients))
        write_connection(self.folder / HOME, parts.address, secrets and secrets / CA)
        parts.start_superlink()
        tell(f"SuperLink on {parts.address}")
        for client in clients:
            if secrets is not None:
                self.control.register(secrets / f"{node_name(client)}.pub")
            parts.start_node(client)
        for client in clients:
            parts.wait_for_node(client)
            tell(f"{node_name(client)} is online")
        online = self.control.nodes()
        for client in clients:
            if online.get(parts.deployed.nodes[client].node_id or "") != "online":
                raise TrainingError(f"{node_name(client)} did not stay online; see {parts.log(node_name(client))}")

    def _down(self) -> int:
        deployed = read(self.folder) if self.is_up else None
        ended = 0
        if deployed is not None:
            parts = Parts(self.folder, deployed)
            names = map(node_name, range(len(deployed.nodes)))
            ended += end(set().union(*map(parts.processes, names)))  # first, for they say goodbye to the SuperLink
            ended += end(parts.processes(SUPERLINK))
        ended += end(everything(self.folder))
        if deployed is not None:
            for path in self.folder.glob(f"{DATABASE}*"):
                path.unlink()
            for name in (SECURITY, HOME):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / NAME).unlink()
        return ended
