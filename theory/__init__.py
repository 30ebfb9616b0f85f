"""The theory half of fedco2: kernels of two-layer batch-norm networks, and a check of every claim about them.

    import theory

    report = theory.verify(clients=5)
    report["O2"].verdict

What is where: ``problem`` (clients and their data), ``network``, ``kernels`` (finite and infinite width), ``training``
(real descent), ``study`` (one problem and its networks), ``claims`` (a check for each), ``certify`` and
``formula_certificates`` (proofs), ``leave_one_out`` (how much to share), ``report`` (figures, page, folder),
``forecast``. The story of a verification is ``verification``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from theory.claims import CLAIMS, Claim, Finding, check_claims
    from theory.config import TheoryConfig
    from theory.errors import InputError
    from theory.formula_certificates import certify_formula
    from theory.kernels.autograd import compute_jacobian
    from theory.kernels.closed_form import Kernel, Weights, compute_kernel, draw_initial_weights
    from theory.kernels.federated import compute_federated_kernel, keep_client_blocks
    from theory.kernels.infinite_width import compute_infinite_width_limit
    from theory.kernels.layerwise.ntk import ntk
    from theory.kernels.mixture import trace_mixture
    from theory.kernels.sphere_qmc import estimate_sphere_average
    from theory.leave_one_out import choose_sharing, expect_sharing
    from theory.network import TwoLayerBN
    from theory.problem import Problem, draw_synthetic_problem
    from theory.results import ClaimFinding
    from theory.study import Study
    from theory.user_data import UserData, build_user_data, load_user_data
    from theory.verification import VerificationReport, verify

HOMES = {
    "theory.formula_certificates": ("certify_formula",),
    "theory.claims": ("CLAIMS", "Claim", "Finding", "check_claims"),
    "theory.config": ("TheoryConfig",),
    "theory.errors": ("InputError",),
    "theory.kernels.autograd": ("compute_jacobian",),
    "theory.kernels.closed_form": ("Kernel", "Weights", "compute_kernel", "draw_initial_weights"),
    "theory.kernels.federated": ("compute_federated_kernel", "keep_client_blocks"),
    "theory.kernels.infinite_width": ("compute_infinite_width_limit",),
    "theory.kernels.layerwise.ntk": ("ntk",),
    "theory.kernels.mixture": ("trace_mixture",),
    "theory.kernels.sphere_qmc": ("estimate_sphere_average",),
    "theory.leave_one_out": ("choose_sharing", "expect_sharing"),
    "theory.network": ("TwoLayerBN",),
    "theory.problem": ("Problem", "draw_synthetic_problem"),
    "theory.results": ("ClaimFinding",),
    "theory.study": ("Study",),
    "theory.user_data": ("UserData", "build_user_data", "load_user_data"),
    "theory.verification": ("VerificationReport", "verify"),
}
"""Where each public name is defined. They are loaded when they are first used, so that importing this package is
quick and takes no torch."""

__all__ = [
    "CLAIMS",
    "Claim",
    "ClaimFinding",
    "Finding",
    "InputError",
    "Kernel",
    "Problem",
    "Study",
    "TheoryConfig",
    "TwoLayerBN",
    "UserData",
    "VerificationReport",
    "Weights",
    "build_user_data",
    "certify_formula",
    "check_claims",
    "choose_sharing",
    "compute_federated_kernel",
    "compute_infinite_width_limit",
    "compute_jacobian",
    "compute_kernel",
    "draw_initial_weights",
    "draw_synthetic_problem",
    "estimate_sphere_average",
    "expect_sharing",
    "keep_client_blocks",
    "load_user_data",
    "ntk",
    "trace_mixture",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'theory' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
