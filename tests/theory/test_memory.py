"""Free memory is what the machine and the control groups leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from theory.memory import get_available_memory

MEMINFO = "MemTotal:       16000 kB\nMemFree:         100 kB\nMemAvailable:   8000 kB\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def group(folder: str, limit: object, used: int, cached: int) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {cached}\n",
    }


def test_a_machine_without_groups(tmp_path: Path) -> None:
    assert get_available_memory(write(tmp_path, {"proc/meminfo": MEMINFO})) == 8000 << 10


def test_a_container_has_what_its_limit_leaves(tmp_path: Path) -> None:
    files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n", **group("sys/fs/cgroup", 5000, 3000, 400)}
    assert get_available_memory(write(tmp_path, files)) == 2400


@pytest.mark.parametrize(
    ("inner", "outer", "free"), [(5000, "max", 1000), (5000, 4500, 500), ("max", "max", 8000 << 10)]
)
def test_the_tightest_of_the_groups_around_it_counts(inner: object, outer: object, free: int, tmp_path: Path) -> None:
    files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/user.slice/job\n"}
    files |= group("sys/fs/cgroup/user.slice/job", inner, 4000, 0) | group("sys/fs/cgroup/user.slice", outer, 4000, 0)
    assert get_available_memory(write(tmp_path, files)) == free


def test_the_first_version_of_control_groups(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/docker/abc"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n",
        f"{folder}/memory.limit_in_bytes": "7000\n",
        f"{folder}/memory.usage_in_bytes": "6000\n",
        f"{folder}/memory.stat": "cache 9\ntotal_inactive_file 500\n",
    }
    assert get_available_memory(write(tmp_path, files)) == 1500


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "a:b"])
def test_odd_files_are_passed_over(text: str, tmp_path: Path) -> None:
    assert get_available_memory(write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": text})) == 8000 << 10


def test_here() -> None:
    assert 2**20 < get_available_memory() < 2**63
