"""What one asks of a SuperLink, through the command ``flwr``: its nodes and runs, and to take on or stop one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedtrain.errors import TrainingError
from fedtrain.utils.atomic_files import replace_atomically
from theory.errors import InputError

CONNECTION_NAME = "fedco2"
ANSWER_TIMEOUT = 120.0
"""Seconds for an answer, which takes one or two on a quiet machine."""


@dataclass(frozen=True)
class SuperLinkRun:
    """A run as the SuperLink sees it; bytes are those between it and the nodes, in and out."""

    id: str
    status: str
    details: str
    inbound_bytes: int
    outbound_bytes: int

    @property
    def is_finished(self) -> bool:
        """Whether it came to an end, good or bad."""
        return self.status.startswith("finished")

    @property
    def is_completed(self) -> bool:
        """Whether that end was good."""
        return self.status == "finished:completed"


def write_connection(home: Path, address: str, certificate: Path | None) -> None:
    """Let ``flwr`` with this FLWR_HOME know where the SuperLink is."""
    how = {"insecure": True} if certificate is None else {"root-certificates": str(certificate)}
    table = {"superlink": {"default": CONNECTION_NAME, CONNECTION_NAME: {"address": address, **how}}}
    home.mkdir(parents=True, exist_ok=True)
    with replace_atomically(home / "config.toml") as part:
        part.write_text(tomli_w.dumps(table), encoding="utf-8")


class SuperLinkControl:
    """The SuperLink of the connection in this environment's FLWR_HOME."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def list_nodes(self) -> dict[str, str]:
        """Node id -> "online", "offline", "registered" or "unregistered"."""
        return {str(node["node-id"]): str(node["status"]) for node in self._call_flwr("supernode", "list")["nodes"]}

    def register_node(self, public_key: Path) -> str:
        """Let in the node with this key; its id."""
        return str(self._call_flwr("supernode", "register", str(public_key))["node-id"])

    def submit(self, app: Path) -> str:
        """Start a run of the app in this folder; its id. It goes on by itself."""
        if not (app / "pyproject.toml").is_file():
            raise InputError(f"{app}: no Flower app is here (no pyproject.toml); name the folder of one")
        return str(self._call_flwr("run", str(app.resolve()))["run-id"])

    def list_runs(self) -> list[SuperLinkRun]:
        """All runs that the SuperLink knows of."""
        return [_parse_run(row) for row in self._call_flwr("ls")["runs"]]

    def get_run(self, run_id: str) -> SuperLinkRun:
        """One of them."""
        return _parse_run(self._call_flwr("ls", options=("--run-id", run_id))["runs"][0])

    def stop_run(self, run_id: str) -> None:
        """End a run; what its clients do at the moment they do to its end."""
        self._call_flwr("stop", run_id)

    def _call_flwr(self, *words: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
        """The answer of ``flwr``, whose exit code says nothing: it is 0 for what was refused."""
        asked = " ".join(["flwr", *words[:2]])
        command = ["flwr", *words, CONNECTION_NAME, *options, "--format", "json"]
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ANSWER_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            raise TrainingError(f"{asked}: no answer within {ANSWER_TIMEOUT:.0f} s; see fedco2 flower status") from None
        try:
            answer = dict(json.loads(done.stdout))
        except (TypeError, ValueError):
            lines = (done.stderr or done.stdout).split("\n")
            last = next((line.strip(" │╰─╯") for line in reversed(lines) if line.strip(" │╰─╯")), "no answer")
            raise TrainingError(f"{asked}: {last}; see fedco2 flower status") from None
        if not answer.get("success"):
            why = " ".join(str(answer.get("error-message", "refused")).split())
            raise TrainingError(f"{asked}: {why}")
        return answer


def _parse_run(row: dict[str, Any]) -> SuperLinkRun:
    traffic = row["network-traffic"]
    words = [str(row[name] or "") for name in ("run-id", "status", "status-details")]
    return SuperLinkRun(words[0], words[1], words[2], int(traffic["inbound-bytes"]), int(traffic["outbound-bytes"]))
