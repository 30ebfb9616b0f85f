"""A run that was submitted to a real deployment, and what must agree in it with a run in one process."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
import small_experiments

from fedtrain.errors import TrainingError
from fedtrain.flower.app_project import write_app
from fedtrain.flower.server_plan import ServerPlan
from fedtrain.runs.client_state import ClientStateStore, make_folder_name
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds

LIMIT = 400.0
"""Seconds that a round, or what is waited for else, may take on a busy machine."""


class SubmittedRun:
    """``clientapp``: the source of another app for the nodes than ours."""

    def __init__(self, deployment, work, folder, app, *, least=None, patience=LIMIT, clientapp=None):
        self.deployment, self.work, self.folder, self.app = deployment, work, folder, app
        clients = len(work.federation.clients)
        app.mkdir(parents=True)
        plan = ServerPlan(work.config, folder, clients, least or clients, patience, "test")
        apps = {}
        if clientapp is not None:
            (app / "theirs.py").write_text(clientapp)
            apps["client_app"] = "theirs:app"
        write_app(app, plan, self.log_of(app), **apps)
        self.id = deployment.control.submit(app)

    def log_of(self, app):
        return self.deployment.folder / "logs" / f"{app.name}.log"

    def until(self, condition):
        """Wait for something to happen."""
        end = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > end:
                self.stop()
                raise AssertionError("it did not happen in time")
            time.sleep(0.2)

    def over(self):
        """Wait for the end, and for Flower to say so, as long as round follows round."""
        rounds, end = self.count_rounds(), time.monotonic() + LIMIT
        while not (state := self.deployment.control.get_run(self.id)).is_finished:
            if self.count_rounds() > rounds:
                rounds, end = self.count_rounds(), time.monotonic() + LIMIT
            if time.monotonic() > end:
                self.stop()
                raise AssertionError(f"it is not over in time: {state}")
            time.sleep(1)
        return state

    def count_rounds(self):
        """That its log tells of."""
        log = self.log_of(self.app)
        return sum(line.startswith("round ") for line in log.read_text().splitlines()) if log.exists() else 0

    def stop(self):
        """End it if it goes on, for it would go on into the next one."""
        with suppress(TrainingError):
            self.deployment.control.stop_run(self.id)

    def everything(self):
        """What must agree; what clients keep is on their nodes."""
        trainer = self.work.build_client_trainer()
        nodes = {client.name: str(place) for place, client in enumerate(self.work.federation.clients)}

        def own(state, name):
            where = self.deployment.folder / "nodes" / nodes[name] / make_folder_name(str(self.folder.path))
            return state.load_client_state(name, ClientStateStore(where), trainer.initial_client_state)

        return small_experiments.agreeing(self.folder, nodes, own)


def run_in_process(work, path):
    """The same in one process."""
    folder = RunFolder(path)
    folder.begin(work.config, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
        run_rounds(work, folder)
    return small_experiments.everything(work, folder)
