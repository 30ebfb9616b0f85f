"""The process group that this process was started into, if any."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

from fedtrain.errors import TrainingError
from theory.errors import InputError

STORE_VARIABLE = "FEDCO2_STORE"
"""Names a file by which ranks of one machine find each other, so that nothing has to listen for them."""
GROUP_TIMEOUT = timedelta(days=1)
"""A rank may train for long before it answers; one that dies is noticed at once."""


@dataclass(frozen=True)
class Rank:
    """Which process of how many this is."""

    rank: int
    world_size: int
    local_rank: int
    """Its number among those of this machine: the GPU that is its own."""

    @classmethod
    def from_environment(cls) -> Rank | None:
        """As whoever started this process says; None if nobody says anything."""
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return None
        return cls(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", "0")))

    def select_device(self, wanted: torch.device) -> torch.device:
        """Each rank has a GPU of its own; one that is named would be everybody's, which nccl does not allow."""
        if wanted.type != "cuda" or self.world_size == 1:
            return wanted
        if wanted.index is not None:
            raise InputError(
                f"{wanted} cannot be the GPU of {self.world_size} ranks; device cuda gives each its own",
                options=("device",),
            )
        if self.local_rank >= torch.cuda.device_count():
            raise TrainingError(f"rank {self.rank} finds no GPU of its own; start as many ranks as there are GPUs")
        return torch.device("cuda", self.local_rank)


@contextmanager
def join_process_group(place: Rank, device: torch.device) -> Iterator[None]:
    """Within, the ranks can talk: gloo from CPU to CPU, nccl from GPU to GPU."""
    store = os.environ.get(STORE_VARIABLE)
    if store or os.environ.get("LOCAL_WORLD_SIZE") == str(place.world_size):  # all on this machine
        for library in ("GLOO", "NCCL"):  # else they listen on whatever the host name means, or the first card
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{store}" if store else "env://",
        rank=place.rank,
        world_size=place.world_size,
        timeout=GROUP_TIMEOUT,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def exit_process(code: int) -> NoReturn:
    """End the process of a rank.

    A thread of gloo's may still hold the last tensors that it sent, and would abort the process if it let go of them
    while Python is being taken down. So it is not taken down.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
