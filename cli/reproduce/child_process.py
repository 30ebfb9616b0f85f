"""``python -m cli.reproduce.child_process PID ...``: the command ``fedco2 ...``; saves and ends when PID is gone."""

from __future__ import annotations

import os
import signal
import sys
import time
from threading import Thread

from cli.main import main

PAUSE = 0.5


def stop_when_parent_exits(parent: int) -> None:
    """Ask ourselves to end, as Ctrl-C would, once our parent is no longer the one that started us."""
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    parent, *arguments = sys.argv[1:]
    sys.argv = ["fedco2", *arguments]  # what the run will say that it was called with
    Thread(target=stop_when_parent_exits, args=(int(parent),), daemon=True).start()
    sys.exit(main(arguments))
