"""Studies on which a claim must hold or must not, and what every finding is held to."""

import json
import math
import re
from dataclasses import asdict, replace

import numpy as np
import torch

from theory import CLAIMS, Problem, Study

CLAIM_IDS = [
    "K1",
    "K2",
    "K3",
    "K4",
    "K5",
    "K6",
    "K7",
    "O1",
    "O2",
    "O3",
    "O4",
    "O5",
    "D1",
    "D2",
    "D3",
    "C1",
    "C2",
    "C3",
    "B1",
    "X1",
]
UNITS = {"absolute", "relative", "digits"}


def collect_floats(value):
    """All floats in what a finding carries."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [x for one in value for x in collect_floats(one)]
    return [value] if isinstance(value, float) else []


def assert_well_formed(finding, slack=1e-9):
    """The finding itself, once it is well formed: a known verdict, a margin of its sign, numbers that JSON can hold."""
    assert re.fullmatch("holds|fails|undecided|holds under: .+", finding.verdict)
    if finding.verdict == "holds":
        assert finding.margin >= -slack
    else:
        assert finding.margin <= slack
    assert finding.unit in UNITS
    assert finding.words
    assert all(type(value) is float for value in (finding.lhs, finding.rhs, finding.margin))
    kept = json.loads(json.dumps(asdict(finding)))
    assert kept["evidence"] == finding.evidence
    assert not any(math.isnan(x) for x in collect_floats(asdict(finding)))
    return finding


def check_claim(name, study):
    slack = 1e-9 if study.problem.x.dtype == torch.float64 else 1e-3
    largest = compute_eigenvalues(study.online_kernel.Lambda)[-1]
    return assert_well_formed(CLAIMS[name].check(study), slack * max(1, largest))


def compute_eigenvalues(K):
    return np.linalg.eigvalsh(K.detach().double().numpy())


def build_study(problem, width=512, **options):
    return Study.at_init(problem, width, **{"steps": 40, "seed": 1} | options)


def override_study(study, **parts):
    """The same networks, with some of what the study would compute given instead."""
    other = Study(
        study.problem, study.online, study.offline, projection=study.projection, steps=study.steps, seed=study.seed
    )
    vars(other).update(parts)
    return other


def scale_offline(study, factor):
    """γ_off larger or smaller than γ_on: V_off is no longer the client blocks of V_on but factor² of them."""
    offline = study.offline
    return Study(study.problem, study.online, replace(offline, gamma=factor * offline.gamma), steps=study.steps)


def build_two_clients(first, second, S):
    """One tensor of inputs for each of two clients, targets opposite."""
    x, sizes = torch.cat([first, second]), torch.tensor([len(first), len(second)])
    y = torch.linspace(1, 2, len(x), dtype=torch.float64)
    return Problem(
        x, torch.where(torch.arange(len(x)) < len(first), y, -y), torch.arange(2).repeat_interleave(sizes), S
    )


def draw_normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_scaled_identities(*scales, dim):
    return torch.stack([s * torch.eye(dim, dtype=torch.float64) for s in scales])
