"""``deployment.json``: what was started in a folder, and how to find it again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedtrain.files import replace_atomically
from fedtrain.flower.processes import Process
from fedtrain.tables import format_error
from theory.errors import InputError

NAME = "deployment.json"
FORMAT = "fedco2 deployment 1"


@dataclass
class Part:
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
class Deployed:
    """All that it takes to look at a deployment, to end it, and to start a part of it again."""

    flower: str
    tls: bool
    threads: int
    data_dir: str | None
    superlink: Part
    nodes: list[Part] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Complete or absent."""
        with replace_atomically(folder / NAME) as part:
            part.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")


def read(folder: Path) -> Deployed:
    """What was written last."""
    path = folder / NAME
    try:
        table = dict(json.loads(path.read_text(encoding="utf-8")))
        if (found := table.pop("format", None)) != FORMAT:
            raise ValueError(f"its format is {found!r}, not {FORMAT!r}")
        return Deployed(**table | {"superlink": _part(table["superlink"]), "nodes": list(map(_part, table["nodes"]))})
    except FileNotFoundError:
        raise InputError(f"{folder}: no deployment is here; start one with fedco2 flower up --dir {folder}") from None
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: damaged ({format_error(error)}); delete it, then fedco2 flower down --dir {folder}"
        ) from None


def _part(table: dict[str, Any]) -> Part:
    process = table["process"]
    return Part(**table | {"process": process and Process(int(process["pid"]), int(process["started"]))})
