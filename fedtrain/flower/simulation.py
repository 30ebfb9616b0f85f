"""All nodes on this machine, without a SuperLink: Flower's simulation, which shares them out over Ray's workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

from fedtrain.flower.client_session import SIMULATION_VARIABLE
from fedtrain.flower.environment import build_environment
from fedtrain.utils.signals import handle_signals


def simulate(nodes: int, workers: int, server_main: Callable[[Any], Any], halt: Event) -> Any:
    """What ``conduct`` makes of the grid."""
    with TemporaryDirectory(prefix="fedco2-") as home:
        os.environ.update(build_environment(Path(home)))  # before Ray and Flower are loaded, and for their processes
        os.environ[SIMULATION_VARIABLE] = "1"
        from flwr.app import Context
        from flwr.serverapp import Grid, ServerApp
        from flwr.simulation import run_simulation

        from fedtrain.flower.client_app import app as node

        logging.getLogger("flwr").setLevel(logging.CRITICAL)  # what goes wrong comes back as an exception
        results: list[Any] = []
        failures: list[BaseException] = []
        server = ServerApp()

        def main(grid: Grid, context: Context) -> None:
            try:
                results.append(server_main(grid))
            except BaseException as error:  # Flower would not pass on all kinds
                failures.append(error)

        server.main()(main)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
        with set_on_interrupt(halt):
            run_simulation(
                server,
                node,
                nodes,
                backend_config={"init_args": {"num_cpus": workers, **quiet}, "client_resources": resources},
            )
        for failure in failures:
            raise failure
        return results[0]


@contextmanager
def set_on_interrupt(halt: Event) -> Iterator[None]:
    """Ctrl-C is for who waits for the clients: that is another thread, and Flower waits for it."""

    with handle_signals(lambda number, frame: halt.set()):
        yield
