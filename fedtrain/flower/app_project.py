"""The Flower app of a run: a folder that names our two halves and says what the server is to do."""

from __future__ import annotations

from pathlib import Path

import tomli_w

from fedtrain.config.schema import format_config
from fedtrain.flower.environment import OWN_CLIENT_APP
from fedtrain.flower.server_plan import ServerPlan
from fedtrain.runs.manifest import get_version

SERVER_APP = "fedtrain.flower.server_app:app"
APP_VERSION = "0.0.0"
"""The version of an app that is installed nowhere; Flower wants one."""


def write_app(
    folder: Path, plan: ServerPlan, log_path: Path, *, server_app: str = SERVER_APP, client_app: str = OWN_CLIENT_APP
) -> None:
    """Write the folder that Flower sends to the server and the nodes; the code is the package installed there.

    Both apps are named as ``module:attribute``.
    """
    config = {
        "out": str(plan.folder.path.absolute()),
        "config": format_config(plan.config),
        "clients": plan.num_clients,
        "least": plan.min_clients,
        "patience": float(plan.round_timeout),
        "command": plan.command,
        "log": str(log_path.absolute()),
    }
    app = {
        "publisher": "fedco2",
        "components": {"serverapp": server_app, "clientapp": client_app},
        "config": config,
    }
    about = {"name": "fedco2-run", "version": APP_VERSION, "description": f"a run of fedco2 {get_version()}"}
    text = tomli_w.dumps({"project": about, "tool": {"flwr": {"app": app}}})
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
