"""What the logs of Flower's processes tell."""

from __future__ import annotations

import re
from pathlib import Path

ANSI_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
NODE_ID_PATTERN = re.compile(r"SuperNode ID: (\d+)")
LISTENING_MESSAGE = "Uvicorn running on"
ERROR_PATTERN = re.compile(r"\[code: \d+\]|(?<!uvicorn\.)[Ee]rror\b|ERROR|Exception")  # that is the name of a log


def read_log(log: Path, start: int) -> str:
    """What was written after so many bytes, without colours."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            return ANSI_COLOURS.sub("", file.read().decode(errors="replace"))
    except FileNotFoundError:
        return ""


def find_node_id(text: str) -> str | None:
    """The id that a SuperNode says it has, once the SuperLink has let it in."""
    found = NODE_ID_PATTERN.search(text)
    return found and found[1]


def find_exit_reason(text: str) -> str:
    """Why a process ended: the last line that gives a reason, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if ERROR_PATTERN.search(line)]
    return " ".join((reasons or lines or ["it said nothing"])[-1].split())
