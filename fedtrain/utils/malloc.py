"""Tell the memory allocator to return what the process has freed."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # as in glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed for the next tensor of that size; whether it was asked (other systems are not).

    By default it gives tensors of some megabytes back to the system at once. Every step of training then pays again for
    fresh pages of the same gradients, a fifth of its time where layers are large. For programs of our own, not for
    libraries: it holds for the whole process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
