"""Where results go if nobody says where."""

from __future__ import annotations

import re
import time
from pathlib import Path


def choose_new_folder(kind: str) -> Path:
    """runs/KIND-DATE-TIME, numbered where that is taken."""
    plain = re.sub(r"[^\w.+-]+", "-", kind)  # a method may be called lg:LGFedAvg
    stamp = f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (Path("runs") / (stamp if k == 1 else f"{stamp}-{k}") for k in range(1, 1000))
    return next(folder for folder in numbered if not folder.exists())
