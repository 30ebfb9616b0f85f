"""Memory that is freed is used again."""

import platform
import subprocess
import sys

import pytest

from fedtrain.utils import malloc

FAULTS = """
import resource, sys, torch
from fedtrain.utils.malloc import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(20):
    torch.ones(2**24)  # until the heap has settled
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(2**24)  # 64 MiB, freed at once
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_freed_memory_is_not_faulted_in_again():
    def faults(how):
        return int(
            subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True, text=True).stdout
        )

    assert faults("keep") < 0.2 * faults("give back")


def test_a_system_without_it_is_left_alone(monkeypatch):
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: object())
    assert not malloc.keep_freed_memory()
