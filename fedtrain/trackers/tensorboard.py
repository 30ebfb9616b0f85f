"""TensorBoard, by way of tensorboardX: event files in ``tensorboard/``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fedtrain.runs.folder import RunFolder
from fedtrain.trackers.base import Tracker


class TensorBoard(Tracker):
    """``tensorboard --logdir RUN/tensorboard`` shows them."""

    package: ClassVar[str] = "tensorboardX"
    extra: ClassVar[str] = "tensorboard"
    writer: Any = None

    def open(self, folder: RunFolder, settings: Mapping[str, Any], rounds_done: int) -> None:
        """A resumed run hides what an earlier process wrote of rounds that were not completed."""
        purge = {"purge_step": rounds_done + 1} if rounds_done else {}
        place, part = str(folder.path / "tensorboard"), f".{rounds_done:06}"  # its own clock tells seconds only
        self.writer = self.load_package().SummaryWriter(place, filename_suffix=part, **purge)
        self.writer.add_text("settings", "\n".join(f"    {key} = {value}" for key, value in settings.items()))

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """A scalar for each."""
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def close(self, *, finished: bool) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()
