"""The theory half of fedco2: kernels of two-layer batch-norm networks, and a check of every claim about them."""

from theory.claims import CLAIMS, Claim, Finding, check_claims
from theory.errors import InputError
from theory.kernels.autograd import compute_jacobian
from theory.kernels.closed_form import Kernel, Weights, compute_kernel, draw_initial_weights
from theory.kernels.federated import compute_federated_kernel, keep_client_blocks
from theory.kernels.infinite_width import compute_infinite_width_limit
from theory.kernels.sphere_qmc import estimate_sphere_average
from theory.network import TwoLayerBN
from theory.problem import Problem, draw_synthetic_problem
from theory.study import Study

__all__ = [
    "CLAIMS",
    "Claim",
    "Finding",
    "InputError",
    "Kernel",
    "Problem",
    "Study",
    "TwoLayerBN",
    "Weights",
    "check_claims",
    "compute_federated_kernel",
    "compute_infinite_width_limit",
    "compute_jacobian",
    "compute_kernel",
    "draw_initial_weights",
    "draw_synthetic_problem",
    "estimate_sphere_average",
    "keep_client_blocks",
]
