"""A SuperLink and one SuperNode for each client on this machine: started, looked at, mended and ended."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedtrain.errors import TrainingError
from fedtrain.flower.deployment.commands import CA_FILE
from fedtrain.flower.deployment.ports import find_free_ports
from fedtrain.flower.deployment.processes import terminate
from fedtrain.flower.deployment.state_file import (
    STATE_FILE,
    ComponentState,
    DeploymentState,
    load_deployment_state,
)
from fedtrain.flower.deployment.status import DeploymentStatus, NodeStatus
from fedtrain.flower.deployment.superlink_control import (
    SuperLinkControl,
    SuperLinkRun,
    write_connection,
)
from fedtrain.flower.deployment.supervisor import (
    CERTIFICATES_DIR,
    DATABASE_FILE,
    FLOWER_HOME_DIR,
    LOGS_DIR,
    SUPERLINK,
    Supervisor,
    find_deployment_processes,
    format_node_name,
)
from fedtrain.flower.environment import require_flower
from fedtrain.utils.locks import exclusive_lock
from fedtrain.utils.signals import defer_interrupts
from theory.errors import InputError

REJOIN_TIMEOUT, RETRY_INTERVAL = 90.0, 3.0
"""Seconds in which a SuperLink has learnt that a killed node is gone (60) and lets it in again; between attempts."""


class Deployment:
    """What runs in a folder. ``logs/`` and ``nodes/``, the clients' own, stay when it ends; all else goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    @property
    def is_up(self) -> bool:
        """Whether one was started here and not yet ended."""
        return (self.folder / STATE_FILE).exists()

    @property
    def num_clients(self) -> int:
        """How many nodes it has."""
        return len(load_deployment_state(self.folder).nodes)

    @property
    def control(self) -> SuperLinkControl:
        """Its SuperLink, to be asked and told."""
        return SuperLinkControl(self._load_supervisor().build_component_environment("control"))

    def up(
        self,
        clients: int,
        *,
        data_dir: Path | None = None,
        sites: Sequence[Path] = (),
        tls: bool = False,
        threads: int = 1,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Start all; when this returns every node is online, and when it fails nothing is left behind.

        ``sites`` are the data of each node, if each has its own.
        """
        version = require_flower()
        if data_dir is not None and not data_dir.is_dir():
            raise InputError(f"{data_dir}: no such folder; name that of all data", options=("data_dir",))
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(self.folder):
            self._check_folder_unused()
            first, *others = map(ComponentState, find_free_ports(1 + clients))
            data = None if data_dir is None else str(data_dir.resolve())
            deployed = DeploymentState(version, tls, threads, data, first, others, [str(site) for site in sites])
            deployed.write(self.folder)  # from here on there is something to end
            try:
                self._start_all(Supervisor(self.folder, deployed), tell)
            except BaseException:
                with defer_interrupts():  # a second Ctrl-C does not save what the first one ends
                    self._stop_all()
                raise

    def down(self) -> int:
        """End all and clear away what only served it; how many processes there were. Done twice it is done once."""
        with exclusive_lock(self.folder):
            return self._stop_all()

    def status(self) -> DeploymentStatus:
        """Look at all of it."""
        parts = self._load_supervisor()
        first, nodes = parts.state.superlink, parts.state.nodes
        heard: dict[str, str] = {}
        runs: list[SuperLinkRun] = []
        try:
            if first.alive:
                heard, runs = self.control.list_nodes(), self.control.list_runs()
        except TrainingError:
            if first.alive:  # else it ended while it was asked
                raise
        seen = [
            NodeStatus(client, node.pid, node.alive, node.node_id, heard.get(node.node_id or "") == "online")
            for client, node in enumerate(nodes)
        ]
        return DeploymentStatus(parts.address, parts.state.tls, first.pid, first.alive, seen, runs)

    def restart_node(self, client: int, patience: float = REJOIN_TIMEOUT) -> None:
        """End a client's node if it runs, and start it again; return once it is online.

        A node with a key that was killed is let in again once the SuperLink has missed it, so it is tried for a while.
        """
        with exclusive_lock(self.folder):
            parts, until = self._load_supervisor(), time.monotonic() + patience
            while True:
                terminate(parts.find_processes(format_node_name(client)))
                parts.start_node(client)
                try:
                    return parts.wait_for_node(client)
                except TrainingError:
                    if not parts.state.tls or time.monotonic() + RETRY_INTERVAL > until:
                        raise
                time.sleep(RETRY_INTERVAL)

    def restart_superlink(self) -> None:
        """End the SuperLink if it runs, and start it again; nodes come back by themselves, runs do not."""
        with exclusive_lock(self.folder):
            parts = self._load_supervisor()
            terminate(parts.find_processes(SUPERLINK))
            parts.start_superlink()

    def _load_supervisor(self) -> Supervisor:
        return Supervisor(self.folder, load_deployment_state(self.folder))

    def _check_folder_unused(self) -> None:
        if self.is_up:
            way_out = f"end it with fedco2 flower down --dir {self.folder}"
            raise InputError(f"{self.folder}: a deployment is here already; {way_out}")
        for name in (DATABASE_FILE, CERTIFICATES_DIR, FLOWER_HOME_DIR):
            if (self.folder / name).exists():
                raise InputError(
                    f"{self.folder / name} is there already and is not overwritten; choose another folder",
                    options=("dir",),
                )

    def _start_all(self, parts: Supervisor, tell: Callable[[str], None]) -> None:
        (self.folder / LOGS_DIR).mkdir(exist_ok=True)
        clients = range(len(parts.state.nodes))
        secrets = parts.certificates
        if secrets is not None:
            from fedtrain.flower.deployment.tls_certificates import create_credentials

            create_credentials(secrets, map(format_node_name, clients))
        write_connection(self.folder / FLOWER_HOME_DIR, parts.address, secrets and secrets / CA_FILE)
        parts.start_superlink()
        tell(f"SuperLink on {parts.address}")
        for client in clients:
            if secrets is not None:
                self.control.register_node(secrets / f"{format_node_name(client)}.pub")
            parts.start_node(client)
        for client in clients:
            parts.wait_for_node(client)
            tell(f"{format_node_name(client)} is online")
        online = self.control.list_nodes()
        for client in clients:
            if online.get(parts.state.nodes[client].node_id or "") != "online":
                raise TrainingError(
                    f"{format_node_name(client)} went offline; see {parts.get_log_path(format_node_name(client))}"
                )

    def _stop_all(self) -> int:
        deployed = load_deployment_state(self.folder) if self.is_up else None
        ended = 0
        if deployed is not None:
            parts = Supervisor(self.folder, deployed)
            names = map(format_node_name, range(len(deployed.nodes)))
            ended += terminate(
                set().union(*map(parts.find_processes, names))
            )  # first, for they say goodbye to the SuperLink
            ended += terminate(parts.find_processes(SUPERLINK))
        ended += terminate(find_deployment_processes(self.folder))
        if deployed is not None:
            for path in self.folder.glob(f"{DATABASE_FILE}*"):
                path.unlink()
            for name in (CERTIFICATES_DIR, FLOWER_HOME_DIR):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / STATE_FILE).unlink()
        return ended
