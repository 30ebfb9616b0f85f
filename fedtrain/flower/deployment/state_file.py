"""``deployment.json``: what was started in a folder, and how to find it again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedtrain.config.toml import format_error
from fedtrain.flower.deployment.processes import Process
from fedtrain.utils.atomic_files import replace_atomically
from theory.errors import InputError

STATE_FILE = "deployment.json"
FORMAT = "fedco2 deployment 1"


@dataclass
class ComponentState:
    """A SuperLink or a SuperNode: its port, its process, where in its log that begins, and the node's name."""

    port: int
    process: Process | None = None
    log_from: int = 0
    node_id: str | None = None

    @property
    def pid(self) -> int | None:
        """Its process, or the last one that it had."""
        return None if self.process is None else self.process.pid

    @property
    def alive(self) -> bool:
        """Whether that runs."""
        return self.process is not None and self.process.alive


@dataclass
class DeploymentState:
    """All that it takes to look at a deployment, to end it, and to start a part of it again."""

    flower: str
    tls: bool
    threads: int
    data_dir: str | None
    superlink: ComponentState
    nodes: list[ComponentState] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    """What each node has for data, if each has its own."""

    def write(self, folder: Path) -> None:
        """Complete or absent."""
        with replace_atomically(folder / STATE_FILE) as part:
            part.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")


def load_deployment_state(folder: Path) -> DeploymentState:
    """What was written last."""
    path = folder / STATE_FILE
    try:
        table = dict(json.loads(path.read_text(encoding="utf-8")))
        if (found := table.pop("format", None)) != FORMAT:
            raise ValueError(f"its format is {found!r}, not {FORMAT!r}")
        return DeploymentState(
            **table
            | {"superlink": _parse_component(table["superlink"]), "nodes": list(map(_parse_component, table["nodes"]))}
        )
    except FileNotFoundError:
        raise InputError(f"{folder}: no deployment is here; start one with fedco2 flower up --dir {folder}") from None
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: damaged ({format_error(error)}); delete it, then fedco2 flower down --dir {folder}"
        ) from None


def _parse_component(table: dict[str, Any]) -> ComponentState:
    process = table["process"]
    return ComponentState(**table | {"process": process and Process(int(process["pid"]), int(process["started"]))})
