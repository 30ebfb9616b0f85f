"""Weights & Biases, offline: its files lie in ``wandb/``, and ``wandb sync`` uploads them if you wish."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from fedtrain.runs.folder import RunFolder
from fedtrain.trackers.base import Tracker


class Wandb(Tracker):
    """Nothing is sent, whatever ``WANDB_MODE`` says, unless ``offline=False`` is asked for in Python."""

    package: ClassVar[str] = "wandb"
    extra: ClassVar[str] = "wandb"
    run: Any = None

    def __init__(self, project: str = "fedco2", *, offline: bool = True) -> None:
        self.project, self.offline = project, offline

    def load_package(self) -> ModuleType:
        """With its reports of errors to its makers switched off, unless the user has switched them on."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        return super().load_package()

    def open(self, folder: RunFolder, settings: Mapping[str, Any], rounds_done: int) -> None:
        """The same number for every part of a run, so that they are one when they are uploaded."""
        place = folder.path.absolute()
        number = hashlib.blake2b(str(place).encode(), digest_size=8).hexdigest()
        wandb = self.load_package()
        self.run = wandb.init(
            project=self.project,
            name=place.name,
            id=number,
            dir=str(place),
            config=dict(settings),
            mode="offline" if self.offline else "online",
            resume="allow",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, save_code=False),
        )
        self.run.define_metric("round")
        self.run.define_metric("*", step_metric="round")

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """All of them, with the round as one of them."""
        self.run.log({**numbers, "round": round})

    def close(self, *, finished: bool) -> None:
        """Finish; another exit code for a run that was stopped."""
        if self.run is not None:
            self.run.finish(exit_code=0 if finished else 1)
