"""How much memory a process may still take: what the machine has free, within the limits of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

LARGEST = 2**63
"""Where the system says nothing."""


def get_available_memory(root: Path = Path("/")) -> int:
    """Bytes available without swapping, in a container within its limit; all memory where the system does not say."""
    return min([_read_machine_memory(root), *_read_group_memory(root)])


def _read_machine_memory(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, AttributeError):
        return LARGEST


def _read_group_memory(root: Path) -> Iterator[int]:
    """What the group of this process and the groups around it leave, in either version of control groups."""
    try:
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except (OSError, ValueError):
        return
    base = root / "sys/fs/cgroup"
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if not controllers:
            yield from _read_group_files(base, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _read_group_files(base / "memory", path, *names)


def _read_group_files(base: Path, path: str, limit: str, used: str, cached: str) -> Iterator[int]:
    own = base / path.lstrip("/")
    for folder in (own, *own.parents):
        if folder != base and base not in folder.parents:
            return
        try:
            most, now = int((folder / limit).read_text()), int((folder / used).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # no such group here, as within a container, or no limit ("max")
            continue
        yield max(0, most - now + int(stat.get(cached, 0)))  # cached files are given back on demand
