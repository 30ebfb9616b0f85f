"""What is to be examined: every option of ``fedco2 theory`` in one frozen object, and what it will cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import get_args

import torch

from theory.chance import SEEDS, check_seed
from theory.claims.kernels import JACOBIAN_NUMBERS
from theory.errors import InputError
from theory.gram import Projection, default_chunk
from theory.problem import Covariance, Problem, synthetic
from theory.study import Progress, Study
from theory.userdata import UserData, read

DTYPES = {"float64": torch.float64, "float32": torch.float32}
ORDERINGS = {"O1", "O2", "O3", "O4"}
GALLERY_GRAMS = 48
"""Kernels computed for the figures of many draws and many clients."""


@dataclass(frozen=True)
class Setting:
    """Synthetic clients (or the user's ``data``) and the networks on them."""

    clients: int = 5
    samples: int = 20
    dim: int = 10
    width: int = 4096
    alpha: float = 0.5
    covariance: Covariance = "anisotropic"
    heterogeneity: float = 1.0
    seed: int = 0
    draws: int = 1
    steps: int = 200
    projection: Projection = "exact"
    dtype: str = "float64"
    device: str = "cpu"
    chunk: int | None = None
    data: str | None = None
    ridge: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("clients", "samples", "dim", "width", "draws", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        check_seed(self.seed, SEEDS // 2)  # draws, and the figure of them, count on from it
        if self.chunk is not None and self.chunk < 1:
            raise InputError(f"chunk is {self.chunk}; it must be at least 1 (or leave it out)")
        if not 0 < self.alpha <= 1:
            raise InputError(f"alpha is {self.alpha}; the paper wants it in (0, 1]")
        if not 0 <= self.heterogeneity <= 5:
            raise InputError(f"heterogeneity is {self.heterogeneity}; choose it between 0 and 5")
        if self.dtype not in DTYPES:
            raise InputError(f"unknown dtype {self.dtype!r}; choose float64 or float32")
        if self.projection not in get_args(Projection):
            raise InputError(f"unknown projection {self.projection!r}; choose one of {', '.join(get_args(Projection))}")
        try:
            torch.device(self.device)
        except RuntimeError:
            raise InputError(f"unknown device {self.device!r}; use cpu or cuda") from None
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise InputError(f"device {self.device!r} is not there: this torch sees no CUDA; use --device cpu")

    def read_data(self) -> UserData | None:
        """The user's data, if any were given."""
        return self._user_data

    @cached_property
    def _user_data(self) -> UserData | None:
        """Read once: every draw and every prediction asks for it."""
        return None if self.data is None else read(Path(self.data), self.ridge)

    def problem(self, draw: int = 0) -> Problem:
        """The clients of one draw; the user's data are the same in all draws."""
        mine = self.read_data()
        problem = mine.problem if mine else synthetic(
            self.clients, self.samples, self.dim,
            covariance=self.covariance, heterogeneity=self.heterogeneity, seed=self.seed + draw,
        )  # fmt: skip
        return problem.to(DTYPES[self.dtype], self.device)

    def study(self, draw: int = 0, progress: Progress = lambda what, done, total: None) -> Study:
        """The networks of one draw on the clients of that draw."""
        return Study.at_init(
            self.problem(draw), self.width, self.alpha, seed=self.seed + draw, steps=self.steps,
            projection=self.projection, chunk=self.chunk, progress=progress,
        )  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What a run will need, predicted before it starts."""

    bytes: int
    seconds: float
    largest: str
    """The option that lowers the memory most."""


def predict_cost(setting: Setting, problem: Problem, claims: set[str]) -> Cost:
    """Memory exactly enough to refuse what cannot fit, time within a factor of two or three.

    The matrices are n x n, the descent keeps hidden activations n x m and offline weights N x m x d.
    """
    n, d, m, N = len(problem.x), problem.dim, setting.width, problem.clients
    item = DTYPES[setting.dtype].itemsize
    descends = bool(claims & {"D1", "D2", "D3", "C1", "C2"})
    parts = {
        "samples": 8 * n * n * (32 + 96 * ("K3" in claims)) + item * 6 * n * (setting.chunk or default_chunk(problem)),
        "width": item * m * (d * (N + 2) + 2 * N)
        + descends * item * (4 * n * m + 24 * N * m * d)
        + bool(claims & {"K1", "D1"}) * item * 3 * min(n * m * (d + 1), JACOBIAN_NUMBERS),
    }
    rate, pace = _measured_rates(DTYPES[setting.dtype])
    gram = 3.0 * n * n * m + 2.0 * n * d * m * (N + 1)
    grams = 8 + GALLERY_GRAMS * (claims != ORDERINGS) + 16 * ("K4" in claims) + 60 * ("C1" in claims)
    work = 4 * grams * gram / rate + 40.0 * n**3 / rate  # small products run at a quarter of full speed
    if claims & {"D2", "C1", "C2"}:
        work += setting.steps * 220.0 * n * m * (1 + d / 20) / pace  # five readings, two networks, some 20 passes each
    if claims & {"K3", "K4", "C1", "C2"} and problem.scales is None:
        work += (1 + ("K3" in claims)) * 250_000.0 * n * n / pace
    return Cost(int(sum(parts.values())), setting.draws * work, max(parts, key=lambda name: parts[name]))


def _measured_rates(dtype: torch.dtype) -> tuple[float, float]:
    """Flops a second of a matrix product, and elements a second of elementwise work, here and now.

    The best of a few short trials: a busy machine makes some of them slow.
    """

    def best(job: Callable[[], object]) -> float:
        times = []
        for _ in range(8):
            start = time.perf_counter()
            job()
            times.append(time.perf_counter() - start)
        return min(times)

    a = torch.ones(512, 512, dtype=dtype)
    return 2 * 512**3 / best(lambda: a @ a), 512**2 / best(lambda: a * a)


def available_memory() -> int:
    """Bytes that can be had without swapping; all of the machine's where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, AttributeError):
        return 2**63


def refuse_if_too_large(cost: Cost, available: int) -> None:
    """Better now than after an hour."""
    if cost.bytes > 0.9 * available:
        raise InputError(
            f"this needs about {cost.bytes / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are free; "
            f"lower --{cost.largest}" + (" or --clients" if cost.largest == "samples" else ", or use --dtype float32")
        )
