"""One problem, one pair of networks, and everything that the claims measure on them, each computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from theory.errors import InputError
from theory.kernels.closed_form import Kernel, Projection, Weights, compute_kernel, draw_initial_weights
from theory.kernels.federated import keep_client_blocks
from theory.kernels.infinite_width import InfiniteWidthLimit, compute_infinite_width_limit
from theory.problem import Problem
from theory.training.descent import Reading, Trajectory, descend
from theory.training.residuals import compute_stable_step

ProgressCallback = Callable[[str, int, int], None]
"""Called with a description of the work, the amount done and the total."""


class Study:
    """The networks at t = 0 (or at given weights), their kernels, infinite-width limit and training runs."""

    def __init__(
        self,
        problem: Problem,
        online: Weights,
        offline: Weights | None = None,
        *,
        projection: Projection = "exact",
        fusion: float = 0.5,
        steps: int = 200,
        seed: int = 0,
        chunk: int | None = None,
        progress: ProgressCallback = lambda what, done, total: None,
    ) -> None:
        """``offline`` starts from the online weights unless given; F = ``fusion`` · (F_on + F_off)."""
        self.problem, self.online, self.offline = problem, online, offline or online.copy_per_client()
        self.projection, self.fusion, self.steps, self.seed, self.chunk = projection, fusion, steps, seed, chunk
        self.progress = progress

    @classmethod
    def at_init(
        cls,
        problem: Problem,
        width: int = 4096,
        alpha: float = 0.5,
        *,
        seed: int = 0,
        steps: int = 200,
        projection: Projection = "exact",
        chunk: int | None = None,
        progress: ProgressCallback = lambda what, done, total: None,
    ) -> Study:
        """A study of networks at the paper's initialisation."""
        if width < 1:
            raise InputError(f"width is {width}; a network needs at least one hidden unit")
        if not 0 < alpha <= 1:
            raise InputError(f"alpha is {alpha}; the paper wants it in (0, 1]")
        if steps < 1:
            raise InputError(f"steps is {steps}; descent needs at least one")
        online = draw_initial_weights(problem, width, alpha, seed)
        return cls(problem, online, projection=projection, seed=seed, steps=steps, chunk=chunk, progress=progress)

    def with_width(self, width: int, seed: int) -> Study:
        """The same problem with freshly drawn networks of another width."""
        return Study.at_init(
            self.problem, width, self.alpha, seed=seed, steps=self.steps, projection=self.projection, chunk=self.chunk
        )

    def to_double(self) -> Study:
        """This study in float64, for checks that divide by a small step and need the digits."""
        if self.problem.x.dtype == torch.float64:
            return self
        online, offline = (
            replace(w, v=w.v.double(), c=w.c.double(), gamma=w.gamma.double()) for w in (self.online, self.offline)
        )
        return Study(
            self.problem.to(torch.float64),
            online,
            offline,
            projection=self.projection,
            fusion=self.fusion,
            steps=self.steps,
            seed=self.seed,
            chunk=self.chunk,
            progress=self.progress,
        )

    @property
    def alpha(self) -> float:
        """The scale α of the weights."""
        return self.online.alpha

    @property
    def tolerance(self) -> float:
        """The relative difference that counts as rounding, including sums over hidden units."""
        return 1e-10 if self.problem.x.dtype == torch.float64 else 1e-4

    @property
    def eigenvalue_tolerance(self) -> float:
        """How far rounding may move an eigenvalue of V, relative to α²Λ = V + α²G, as V alone may be all rounding."""
        return self.tolerance * self.alpha**2 * compute_max_eigenvalue(self.online_kernel.Lambda)

    @property
    def residual_floor(self) -> float:
        """Residuals below this share of the first one count as rounding and are not compared."""
        return 1e-11 if self.problem.x.dtype == torch.float64 else 1e-5

    def compute_kernel(
        self, weights: Weights, *, share_gamma: bool = False, projection: Projection | None = None
    ) -> Kernel:
        """V and G at these weights."""
        return compute_kernel(
            self.problem, weights, share_gamma=share_gamma, projection=projection or self.projection, chunk=self.chunk
        )

    @cached_property
    def online_kernel(self) -> Kernel:
        """Online: v shared, γ personal. This is FedBN."""
        return self.compute_kernel(self.online)

    @cached_property
    def offline_kernel(self) -> Kernel:
        """Offline: everything personal. This is SingleSet."""
        return self.compute_kernel(self.offline)

    @cached_property
    def fused_kernel(self) -> Kernel:
        """The paper's fused kernel: the mean of the two."""
        return 0.5 * (self.online_kernel + self.offline_kernel)

    @cached_property
    def fedavg_kernel(self) -> Kernel:
        """FedAvg: γ shared too, so G couples clients."""
        return self.compute_kernel(self.online, share_gamma=True)

    @cached_property
    def limit(self) -> InfiniteWidthLimit:
        """The exact infinite-width kernels."""
        return compute_infinite_width_limit(self.problem, self.alpha)

    @cached_property
    def limit_kernels(self) -> dict[str, Kernel]:
        """The limit of each model's kernel at initialisation."""
        owner = self.problem.owner.cpu()
        on = self.limit.build_online_kernel(owner)
        off = on.keep_client_blocks(owner)
        return {"online": on, "offline": off, "fused": 0.5 * (on + off)}

    @cached_property
    def joint_kernel(self) -> Tensor:
        """The kernel of descent on the fused loss: fusion² (Λ_on + Λ_off), a quarter of the sum in the paper."""
        return self.fusion**2 * (self.online_kernel.Lambda + self.offline_kernel.Lambda)

    @cached_property
    def rate(self) -> float:
        """The common step 1/λ_max(Λ_on) for the loss Σ(F-y)²/2: stable for all models, as none has a larger λ_max."""
        return compute_stable_step(self.online_kernel.Lambda, share=0.5)

    @cached_property
    def descents(self) -> dict[str, Trajectory]:
        """The trajectories of real descent in every reading."""
        n = len(self.problem.y)
        own_joint, own_on, own_off = (
            compute_stable_step(K) for K in (self.joint_kernel, self.online_kernel.Lambda, self.offline_kernel.Lambda)
        )
        # A federated client descends the mean over its own samples; λ_max(V/N + G) is at most that of client blocks.
        local = (
            compute_stable_step(keep_client_blocks(self.online_kernel.Lambda, self.problem.owner), share=0.5)
            * min(self.problem.sizes)
            / 2
        )
        plans: dict[str, tuple[Reading, float | tuple[float, float]]] = {
            "separate": ("separate", n / 2 * self.rate),
            "joint": ("joint", n / 2 * self.rate),
            "separate, own step": ("separate", (n / 2 * own_on, n / 2 * own_off)),
            "joint, own step": ("joint", n / 2 * own_joint),
            "federated": ("federated", local),
        }
        total, done, trajectories = len(plans) * self.steps, 0, {}

        def report_step() -> None:
            nonlocal done
            done += 1
            self.progress("descent of the real networks", done, total)

        for name, (reading, step) in plans.items():
            trajectories[name] = descend(
                self.problem, self.online, self.offline, reading, self.steps, step,
                snapshot_count=9 if name == "separate" else 0, on_step=report_step,
            )  # fmt: skip
        return trajectories


def compute_min_eigenvalue(K: Tensor) -> float:
    """λ_min of a symmetric matrix."""
    return torch.linalg.eigvalsh(K.double())[0].item()


def compute_max_eigenvalue(K: Tensor) -> float:
    """λ_max of a symmetric matrix."""
    return torch.linalg.eigvalsh(K.double())[-1].item()


def truncate_width(weights: Weights, width: int) -> Weights:
    """Keep only the first ``width`` hidden units."""
    if weights.width <= width:
        return weights
    return replace(weights, v=weights.v[..., :width, :], c=weights.c[..., :width], gamma=weights.gamma[..., :width])
