"""The Flower app of a run: a folder that names our two halves and says what the server is to do."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedtrain.config.schema import format_config, parse_config
from fedtrain.flower.server_app import ServerPlan
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.manifest import get_version

CLIENT_APP = "fedtrain.flower.client_app:app"
APP_VERSION = "0.0.0"
"""The version of an app that is installed nowhere; Flower wants one."""


def write_app(folder: Path, plan: ServerPlan, log_path: Path, *, server_app: str, client_app: str = CLIENT_APP) -> None:
    """Write the folder that Flower sends to the server and the nodes; the code is the package installed there.

    Both apps are named as ``module:attribute``. The server's is the caller's, for it shows how the run goes.
    """
    told = {
        "out": str(plan.folder.path.absolute()),
        "config": format_config(plan.config),
        "clients": plan.num_clients,
        "least": plan.min_clients,
        "patience": float(plan.round_timeout),
        "command": plan.command,
        "log": str(log_path.absolute()),
    }
    app = {"publisher": "fedco2", "components": {"serverapp": server_app, "clientapp": client_app}, "config": told}
    about = {"name": "fedco2-run", "version": APP_VERSION, "description": f"a run of fedco2 {get_version()}"}
    text = tomli_w.dumps({"project": about, "tool": {"flwr": {"app": app}}})
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def parse_plan(run_config: Mapping[str, Any]) -> tuple[ServerPlan, Path]:
    """What the server is to do, and where it tells how it goes."""
    config = parse_config(tomllib.loads(str(run_config["config"])))
    plan = ServerPlan(
        config,
        RunFolder(Path(str(run_config["out"]))),
        int(run_config["clients"]),
        int(run_config["least"]),
        float(run_config["patience"]),
        str(run_config["command"]),
    )
    return plan, Path(str(run_config["log"]))
