"""Flower's two halves of fedco2 with meters in them; loaded in every process of Flower's by its name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from distributed_cost_lib.event_log import EnoughRounds, build_round_logger, install_meters, log_event
from fedtrain.flower import client_app as honest
from fedtrain.flower.client_session import ClientSession
from fedtrain.flower.server_app import run_server
from fedtrain.flower.server_plan import ServerPlan, parse_plan

install_meters()


def run_metered_server(grid: Grid, plan: ServerPlan) -> None:
    """Rounds until there were enough."""
    rounds = plan.config.server.rounds - 1
    with suppress(EnoughRounds):
        run_server(grid, plan, [build_round_logger(rounds)])
    log_event("over", time.perf_counter())


def main(grid: Grid, context: Context) -> None:
    """The server of a deployment."""
    run_metered_server(grid, parse_plan(context.run_config)[0])


def describe_client(message: Message, context: Context) -> Message:
    """As it is; a function of this module, so that whoever is sent it loads the meters."""
    return honest.describe_client(message, context)


def run_client_round(message: Message, context: Context) -> Message:
    """As it is, but for what it takes to have data and network at hand."""
    return honest.run_client_round(message, context)


def find_metered_session(context: Context, note: Mapping[str, Any], here: Any = honest.find_session) -> ClientSession:
    """Opened for the first message of a run, or for each one if every message has a process of its own."""
    begun = time.perf_counter()
    site: ClientSession = here(context, note)
    if "round" in note:
        log_event("site", begun, client=site.name, round=note["round"] + 1)
    return site


honest.find_session = find_metered_session
server_app = ServerApp()
server_app.main()(main)
client_app = ClientApp()
client_app.query()(describe_client)
client_app.train()(run_client_round)
