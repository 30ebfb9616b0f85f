"""The numbers behind the figures of a verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, cast

import torch
from torch import Tensor

from theory.claims.convergence import BRANCHES, compute_bound_curve, compute_mu
from theory.claims.dynamics import collect_residual_curves
from theory.config import TheoryConfig
from theory.kernels.closed_form import Weights
from theory.kernels.mixture import trace_mixture
from theory.leave_one_out import choose_sharing, expect_sharing
from theory.problem import Problem, draw_synthetic_problem
from theory.results import ClientsPoint, Curves, DrawPoint, GainEvidence, MixtureResults, TrackEvidence, WidthEvidence
from theory.study import ProgressCallback, Study, compute_min_eigenvalue

FIGURE_DRAWS, COSTLY_FIGURE_DRAWS = 20, 4
"""How many draws the figure of λ_min across draws shows at least, and where each draw is costly."""
AGREEMENTS = (0.0, 0.5, 1.0)
"""How much the targets of clients may have in common, for which errors are expected."""
COSTLY_WORK = 2e9
"""n² m above which a draw is costly."""


def collect_curves(
    setting: TheoryConfig,
    study: Study,
    evidence: Mapping[str, dict[str, Any]],
    trained: bool,
    progress: ProgressCallback = lambda what, done, total: None,
) -> Curves:
    """Collect them; ``evidence`` is that of each claim in the first draw, ``trained`` whether a claim trained.

    The draws beyond those of the setting, and the other numbers of clients, are computed here for the figures alone.
    """
    residuals: dict[str, list[float]] = {}
    bounds: dict[str, list[float]] = {}
    if trained:
        mu, paths = compute_mu(study), study.descents
        residuals = collect_residual_curves(paths)
        squares = {b: paths["separate"].compute_residual_norms(b).double().square() for b in BRANCHES}
        bounds = {
            b: compute_bound_curve(mu[b], study.rate, study.alpha, squares[b]).clamp_min(0).sqrt().tolist()
            for b in BRANCHES
        }
    kernels = {"V_on": study.online_kernel, "V_off": study.offline_kernel, "V": study.fused_kernel}
    return Curves(
        spectra={name: torch.linalg.eigvalsh(k.V.double()).flip(0).tolist() for name, k in kernels.items()},
        draws=_collect_draws(setting, study, progress),
        clients=_collect_client_counts(setting, study, progress),
        residuals=residuals,
        bounds=bounds,
        widths=cast("WidthEvidence | None", evidence.get("K4")),
        tracks=cast("TrackEvidence | None", evidence.get("C1")),
        gains=cast("GainEvidence | None", evidence.get("D2")),
    )


def collect_mixture(study: Study, client_names: Sequence[str] | None = None) -> MixtureResults:
    """Both criteria for how much to share, on the kernels V of this study; without names its targets are noise."""
    names = client_names or [str(i) for i in range(study.problem.clients)]
    return examine_mixture(
        study.online_kernel.V,
        study.problem.owner,
        names,
        offline=study.offline_kernel.V,
        targets=study.problem.y,
        noise=client_names is None,
        rounding=study.eigenvalue_tolerance,
    )


def examine_mixture(
    online: Tensor,
    owner: Tensor,
    client_names: Sequence[str],
    *,
    offline: Tensor | None = None,
    targets: Tensor | None = None,
    noise: bool = False,
    rounding: float = 0.0,
) -> MixtureResults:
    """Both criteria for kernels of any networks; ``rounding`` is what an eigenvalue may be off by."""
    curve = trace_mixture(online, owner, offline)
    if curve.lambda_max[0] <= rounding:  # d = 1: V is nothing but rounding
        return MixtureResults(curve, None, {}, noise, list(client_names))
    expected = {tau: expect_sharing(online, owner, tau, offline) for tau in AGREEMENTS}
    return MixtureResults(
        curve,
        None if targets is None else choose_sharing(online, owner, targets, offline),
        {tau: one for tau, one in expected.items() if one is not None},
        noise,
        list(client_names),
    )


class LeastEigenvalues(TypedDict):
    """λ_min of the three kernels, and the part of it that may be rounding."""

    V_on: float
    V_off: float
    V: float
    room: float


def _collect_min_eigenvalues(study: Study) -> LeastEigenvalues:
    return {
        "V_on": compute_min_eigenvalue(study.online_kernel.V),
        "V_off": compute_min_eigenvalue(study.offline_kernel.V),
        "V": compute_min_eigenvalue(study.fused_kernel.V),
        "room": study.eigenvalue_tolerance,
    }


def _collect_draws(setting: TheoryConfig, study: Study, progress: ProgressCallback) -> list[DrawPoint]:
    """λ_min of the three kernels over draws, fewer if each is costly. With the user's data only the networks change."""
    count = max(
        setting.draws, COSTLY_FIGURE_DRAWS if len(study.problem.x) ** 2 * setting.width >= COSTLY_WORK else FIGURE_DRAWS
    )
    rows = []
    for draw in range(count):
        progress("λ_min across draws", draw, count)
        rows.append(DrawPoint(setting.seed + draw, **_collect_min_eigenvalues(setting.build_study(draw))))
    return rows


def _collect_client_counts(setting: TheoryConfig, study: Study, progress: ProgressCallback) -> list[ClientsPoint]:
    """λ_min for growing numbers of clients, each with its own data."""
    N = study.problem.clients
    largest = N if setting.dataset else max(N, 20)
    if len(study.problem.x) / N * largest > 1000:
        largest = N
    everyone = study.problem
    if largest > N:
        everyone = draw_synthetic_problem(
            largest, setting.samples, setting.dim,
            covariance=setting.covariance, heterogeneity=setting.heterogeneity, seed=setting.seed,
        ).to(study.problem.x.dtype, study.problem.x.device)  # fmt: skip
    counts = sorted({1, 2, 5, 10, 20, N, largest} & set(range(1, largest + 1)))
    rows = []
    for k, count in enumerate(counts):
        progress("effect of the number of clients", k, len(counts))
        selected = everyone.owner < count
        some = Problem(everyone.x[selected], everyone.y[selected], everyone.owner[selected], everyone.S[:count])
        weights: Weights = replace(study.online, gamma=study.online.gamma[:1].expand(count, -1))
        one = Study(some, weights, projection=setting.projection, chunk=setting.chunk)
        rows.append(ClientsPoint(count, **_collect_min_eigenvalues(one)))
    return rows
