"""MLflow with a local store of files in ``mlruns/``."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from fedtrain.runs.folder import RunFolder
from fedtrain.trackers.base import Tracker
from fedtrain.utils.atomic_files import replace_atomically

MAX_BATCH = 1000
"""Metrics that MLflow takes at once."""
RUN_FILE = "fedco2-run-id"
FORBIDDEN = re.compile(r"[^\w.\-/ ]")


class MLflow(Tracker):
    """``mlflow ui --backend-store-uri RUN/mlruns`` shows it."""

    package: ClassVar[str] = "mlflow"
    extra: ClassVar[str] = "mlflow"
    client: Any = None
    run_id: str = ""

    def load_package(self) -> ModuleType:
        """With its telemetry switched off, unless the user has switched it on; with files as a store, which need leave.

        From 3.17 on MLflow wants a database for new runs, which is more than mlflow-skinny brings.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        return super().load_package()

    def open(self, folder: RunFolder, settings: Mapping[str, Any], rounds_done: int) -> None:
        """A resumed run goes on under its number."""
        store = folder.path.absolute() / "mlruns"
        self.client = self.load_package().MlflowClient(tracking_uri=store.as_uri())
        store.mkdir(exist_ok=True)
        known = store / RUN_FILE
        if known.exists():
            self.run_id = known.read_text(encoding="utf-8")
            self.client.update_run(self.run_id, status="RUNNING")
            return
        name = "fedco2"
        found = self.client.get_experiment_by_name(name)
        experiment = self.client.create_experiment(name) if found is None else found.experiment_id
        self.run_id = self.client.create_run(experiment, run_name=folder.path.absolute().name).info.run_id
        for key, value in settings.items():
            self.client.log_param(self.run_id, key, value)
        with replace_atomically(known) as part:
            part.write_text(self.run_id, encoding="utf-8")

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """A metric for each; signs that MLflow does not allow in names become underscores."""
        metric, now = self.load_package().entities.Metric, int(time.time() * 1000)
        metrics = [metric(FORBIDDEN.sub("_", name), float(value), now, round) for name, value in numbers.items()]
        for first in range(0, len(metrics), MAX_BATCH):
            self.client.log_batch(self.run_id, metrics=metrics[first : first + MAX_BATCH])

    def close(self, *, finished: bool) -> None:
        """Say how it ended."""
        if self.run_id:
            self.client.set_terminated(self.run_id, "FINISHED" if finished else "KILLED")
