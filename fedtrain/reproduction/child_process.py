"""``python -m fedtrain.reproduction.child_process PID KEYWORDS COMMAND``: a run that ends with the process PID."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from threading import Thread
from types import FrameType
from typing import Any

from fedtrain.errors import TrainingError
from fedtrain.report.progress_view import ProgressView
from fedtrain.training import plan, run_plan
from fedtrain.utils.signals import handle_signals
from theory.errors import InputError

PAUSE = 0.5


def stop_when_parent_exits(parent: int) -> None:
    """Ask ourselves to end, as Ctrl-C would, once our parent is no longer the one that started us."""
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os.kill(os.getpid(), signal.SIGTERM)


def train_as_child(keywords: dict[str, Any], command: str) -> int:
    """Train; what happens goes to the log, and what goes wrong is its last line."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        with handle_signals(interrupt, [signal.SIGTERM]):
            run_plan(plan(**keywords), [ProgressView()], command=command)
    except KeyboardInterrupt:
        print("interrupted; complete rounds are saved")
        return 130
    except (InputError, TrainingError) as error:
        print(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    parent, keywords, command = sys.argv[1:]
    Thread(target=stop_when_parent_exits, args=(int(parent),), daemon=True).start()
    sys.exit(train_as_child(json.loads(keywords), command))
