"""Every setting of a verification in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import get_args

import torch

from theory.errors import InputError
from theory.kernels.closed_form import Projection
from theory.problem import Covariance, Problem, draw_synthetic_problem
from theory.rng import SEED_LIMIT, check_seed
from theory.study import ProgressCallback, Study
from theory.user_data import DEFAULT_RIDGE, UserData, load_user_data

DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class TheoryConfig:
    """Synthetic clients (or the user's own ``dataset``) and the networks on them."""

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
    dataset: str | UserData | None = None
    """The user's own data: an .npz file, or what `theory.build_user_data` made of arrays."""
    ridge: float = DEFAULT_RIDGE

    def __post_init__(self) -> None:
        for name in ("clients", "samples", "dim", "width", "draws", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        check_seed(self.seed, SEED_LIMIT // 2)  # draws, also those of the figure, use the seeds that follow
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
            raise InputError(
                f"device {self.device!r} is not there: this torch sees no CUDA; use device cpu", options=["device"]
            )

    def load_data(self) -> UserData | None:
        """The user's data, if any were given."""
        return self._user_data

    @cached_property
    def _user_data(self) -> UserData | None:
        """Read once, although every draw and every prediction needs it."""
        if isinstance(self.dataset, str):
            return load_user_data(Path(self.dataset), self.ridge)
        return self.dataset

    @property
    def size(self) -> ProblemSize:
        """The size of the problem, known before synthetic clients are drawn."""
        data = self.load_data()
        if data is None:
            isotropic = self.covariance != "anisotropic" or self.dim == 1
            return ProblemSize(self.clients * self.samples, self.clients, self.dim, isotropic)
        return ProblemSize(
            len(data.problem.x), data.problem.clients, data.problem.dim, data.problem.isotropic_scales is not None
        )

    def build_problem(self, draw: int = 0) -> Problem:
        """The clients of one draw; the user's data are the same in all draws."""
        data = self.load_data()
        problem = data.problem if data else draw_synthetic_problem(
            self.clients, self.samples, self.dim,
            covariance=self.covariance, heterogeneity=self.heterogeneity, seed=self.seed + draw,
        )  # fmt: skip
        return problem.to(DTYPES[self.dtype], self.device)

    def build_study(self, draw: int = 0, progress: ProgressCallback = lambda what, done, total: None) -> Study:
        """The networks of one draw on the clients of that draw."""
        return Study.at_init(
            self.build_problem(draw), self.width, self.alpha, seed=self.seed + draw, steps=self.steps,
            projection=self.projection, chunk=self.chunk, progress=progress,
        )  # fmt: skip


@dataclass(frozen=True)
class ProblemSize:
    """What the cost of a run depends on: n samples of N clients in d dimensions, and whether every S_i = s_i I."""

    n: int
    N: int
    d: int
    isotropic: bool
