"""The parts of a deployment, one at a time: started with what it takes, waited for, ended with all that is theirs."""

from __future__ import annotations

import time
from pathlib import Path

from fedtrain.errors import TrainingError
from fedtrain.flower.deployment import commands
from fedtrain.flower.deployment.logs import LISTENING_MESSAGE, find_exit_reason, find_node_id, read_log
from fedtrain.flower.deployment.ports import LOOPBACK
from fedtrain.flower.deployment.processes import Process, find_by_environment, find_descendants, spawn
from fedtrain.flower.deployment.state_file import ComponentState, DeploymentState
from fedtrain.flower.environment import build_environment
from fedtrain.flower.site_keys import get_site_name

DEPLOYMENT_VARIABLE, COMPONENT_VARIABLE = "FEDCO2_DEPLOYMENT", "FEDCO2_PART"
SUPERLINK = "superlink"
DATABASE_FILE, CERTIFICATES_DIR, FLOWER_HOME_DIR, LOGS_DIR, NODES_DIR = (
    "superlink.db",
    "security",
    "flower",
    "logs",
    "nodes",
)
START_TIMEOUT = 120.0
"""Seconds in which a part has started on the slowest of machines."""


def format_node_name(client: int) -> str:
    """As its log and its key are called."""
    return f"node-{client}"


def find_deployment_processes(folder: Path) -> set[Process]:
    """Every process that was started for a folder, even if its part is not known any more."""
    return find_by_environment({DEPLOYMENT_VARIABLE: str(folder)})


class Supervisor:
    """SuperLink and SuperNodes of one folder. Every process of theirs has marks in its environment to be found by."""

    def __init__(self, folder: Path, deployed: DeploymentState) -> None:
        self.folder = folder
        self.state = deployed

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{LOOPBACK}:{self.state.superlink.port}"

    @property
    def certificates(self) -> Path | None:
        """The folder of certificates and keys, if there are any."""
        return self.folder / CERTIFICATES_DIR if self.state.tls else None

    def get_log_path(self, name: str) -> Path:
        """What a part says."""
        return self.folder / LOGS_DIR / f"{name}.log"

    def build_component_environment(self, role: str) -> dict[str, str]:
        """What a process of this deployment is told."""
        marks = {DEPLOYMENT_VARIABLE: str(self.folder), COMPONENT_VARIABLE: role}
        return build_environment(self.folder / FLOWER_HOME_DIR) | {"OMP_NUM_THREADS": str(self.state.threads)} | marks

    def start_superlink(self) -> None:
        """Return once it listens."""
        part = self.state.superlink
        self._start_component(
            part, SUPERLINK, commands.build_superlink_command(part.port, self.folder / DATABASE_FILE, self.certificates)
        )
        until = time.monotonic() + START_TIMEOUT
        while part.alive and time.monotonic() < until:
            # its own word counts: on its port somebody else may answer
            if LISTENING_MESSAGE in read_log(self.get_log_path(SUPERLINK), part.log_from):
                return
            time.sleep(0.1)
        raise self._build_start_error(part, SUPERLINK, "did not start")

    def start_node(self, client: int) -> None:
        """Return at once."""
        part, name = self.state.nodes[client], format_node_name(client)
        data = None if self.state.data_dir is None else Path(self.state.data_dir)
        state = self.folder / NODES_DIR / str(client)
        if self.state.sites:
            site = Path(self.state.sites[client])
            config = commands.build_site_config(get_site_name(site), site, state)
        else:
            config = commands.build_node_config(client, len(self.state.nodes), state, data, named_files=True)
        key = self.certificates and self.certificates / name
        ca = self.certificates and self.certificates / commands.CA_FILE
        self._start_component(part, name, commands.build_supernode_command(self.address, part.port, config, ca, key))

    def wait_for_node(self, client: int) -> None:
        """Return once the SuperLink has let it in."""
        part, name = self.state.nodes[client], format_node_name(client)
        until = time.monotonic() + START_TIMEOUT
        while time.monotonic() < until:
            alive = part.alive  # asked first: what it said before its end is read then
            part.node_id = find_node_id(read_log(self.get_log_path(name), part.log_from))
            if not alive:
                break
            if part.node_id is not None:
                self.state.write(self.folder)
                return
            time.sleep(0.1)
        raise self._build_start_error(part, name, "did not come online")

    def find_processes(self, name: str) -> set[Process]:
        """A SuperLink or SuperNode, all that it started, and what one that was killed left behind."""
        parts = {SUPERLINK: self.state.superlink}
        parts |= {format_node_name(client): node for client, node in enumerate(self.state.nodes)}
        process = parts[name].process
        own = set() if process is None else {process}
        return (
            own
            | find_descendants(own)
            | find_by_environment({DEPLOYMENT_VARIABLE: str(self.folder), COMPONENT_VARIABLE: name})
        )

    def _start_component(self, part: ComponentState, name: str, command: list[str]) -> None:
        log = self.get_log_path(name)
        part.log_from, part.node_id = log.stat().st_size if log.exists() else 0, None
        part.process = spawn(command, self.build_component_environment(name), log)
        self.state.write(self.folder)

    def _build_start_error(self, part: ComponentState, name: str, what: str) -> TrainingError:
        log = self.get_log_path(name)
        return TrainingError(f"{name} {what}: {find_exit_reason(read_log(log, part.log_from))}; see {log}")
