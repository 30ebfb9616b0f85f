"""The two backends of Flower's: simulated nodes, and a real SuperLink with real SuperNodes on 127.0.0.1."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event as Flag

from distributed_cost_lib.cases import Case
from distributed_cost_lib.event_log import LOG_VARIABLE, read_events
from distributed_cost_lib.proxy import Proxy, open_proxy
from fedtrain.flower.deployment.superlink_control import SuperLinkControl
from fedtrain.flower.environment import CLIENT_APP_VARIABLE, build_environment
from fedtrain.runs.folder import RunFolder
from fedtrain.utils.signals import defer_interrupts

ROUND_TIMEOUT, STATUS_INTERVAL = 600.0, 30.0
"""Seconds of a round; between two looks whether a run that says nothing has failed."""
TRAFFIC_FILE = "traffic.json"
METERED_CLIENT_APP = "distributed_cost_lib.metered_apps:client_app"


def run_simulation(case: Case, folder: Path) -> None:
    """A worker for each core."""
    os.environ.update(build_environment(folder / "flower"))  # before anything of Flower's is loaded
    from distributed_cost_lib import metered_apps
    from fedtrain.flower import client_app
    from fedtrain.flower.server_plan import ServerPlan
    from fedtrain.flower.simulation import simulate

    client_app.app = metered_apps.client_app
    plan = ServerPlan(
        case.config_and_source[0],
        RunFolder(folder / "run"),
        case.num_clients,
        case.num_clients,
        ROUND_TIMEOUT,
        "benchmark",
    )
    simulate(case.num_clients, os.cpu_count() or 1, lambda grid: metered_apps.run_metered_server(grid, plan), Flag())


def run_cold_deployment(case: Case, folder: Path) -> None:
    """The same with nodes that start a process for every message."""
    from fedtrain.flower.deployment import commands

    commands.SUPERNODE_MODULE = "distributed_cost_lib.cold_supernode"
    run_deployment(case, folder)


def run_deployment(case: Case, folder: Path) -> None:
    """A node for each client; what the first one sends and receives is counted on its way."""
    from fedtrain.flower.app_project import write_app
    from fedtrain.flower.deployment.local_deployment import Deployment
    from fedtrain.flower.server_plan import ServerPlan

    os.environ[CLIENT_APP_VARIABLE] = METERED_CLIENT_APP
    plan = ServerPlan(
        case.config_and_source[0],
        RunFolder(folder / "run"),
        case.num_clients,
        case.num_clients,
        ROUND_TIMEOUT,
        "benchmark",
    )
    (folder / "app").mkdir()
    write_app(
        folder / "app",
        plan,
        folder / "log",
        server_app="distributed_cost_lib.metered_apps:server_app",
        client_app=METERED_CLIENT_APP,
    )
    deployment = Deployment(folder / "deployment")
    with proxy_first_node() as proxies:
        deployment.up(case.num_clients)
        try:
            run_id = deployment.control.submit(folder / "app")
            marks = wait_for_run(deployment.control, run_id)
            seen = deployment.control.get_run(run_id)
            totals = {"inbound": seen.inbound_bytes, "outbound": seen.outbound_bytes}
            ways = {"up": proxies[0].up.count_between(marks), "down": proxies[0].down.count_between(marks)}
            (folder / TRAFFIC_FILE).write_text(json.dumps({**totals, **ways}), encoding="utf-8")
        finally:
            with defer_interrupts():
                deployment.down()


def wait_for_run(control: SuperLinkControl, run_id: str) -> list[float]:
    """Wait for the end of a run; when its rounds ended."""
    looked = time.monotonic()
    while not (happened := read_events(Path(os.environ[LOG_VARIABLE]))) or happened[-1]["what"] != "over":
        time.sleep(0.5)
        if time.monotonic() - looked > STATUS_INTERVAL:
            state, looked = control.get_run(run_id), time.monotonic()
            if state.is_finished and not state.is_completed:
                raise SystemExit(f"the run did not end well: {state.details}")
    return [event["at"] for event in happened if event["what"] == "round"]


@contextmanager
def proxy_first_node() -> Iterator[list[Proxy]]:
    """Within, the node that is started first is given the address of a proxy for that of the SuperLink."""
    from fedtrain.flower.deployment import commands

    honest = commands.build_supernode_command
    proxies: list[Proxy] = []
    with ExitStack() as open_ones:

        def supernode(
            address: str, port: int, config: str, ca: Path | None, key: Path | None, python: str = sys.executable
        ) -> list[str]:
            if not proxies:
                proxies.append(open_ones.enter_context(open_proxy(int(address.rpartition(":")[2]))))
                address = proxies[0].address
            return honest(address, port, config, ca, key, python)

        commands.build_supernode_command = supernode
        try:
            yield proxies
        finally:
            commands.build_supernode_command = honest
