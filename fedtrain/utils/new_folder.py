"""Choose a new folder for results when nobody names one."""

from __future__ import annotations

import re
import time
from pathlib import Path


def make_folder_name(text: str) -> str:
    """Without signs that are trouble in paths: a method may be called lg:LGFedAvg."""
    return re.sub(r"[^\w.+-]+", "-", text)


def choose_new_folder(kind: str) -> Path:
    """runs/KIND-DATE-TIME, numbered where that is taken."""
    stamp = f"{make_folder_name(kind)}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (Path("runs") / (stamp if k == 1 else f"{stamp}-{k}") for k in range(1, 1000))
    return next(folder for folder in numbered if not folder.exists())
