"""The theory half of fedco2: kernels of two-layer batch-norm networks, and a verdict on every claim about them."""

from theory.claims import CLAIMS, Claim, Finding, verify
from theory.errors import InputError
from theory.federated import federated_kernel, pinch
from theory.gram import Kernel, Weights, initial_weights, kernel
from theory.jacobian import jacobian
from theory.limit import infinite_width
from theory.network import TwoLayerBN
from theory.problem import Problem, synthetic
from theory.sphere import sphere_average
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
    "federated_kernel",
    "infinite_width",
    "initial_weights",
    "jacobian",
    "kernel",
    "pinch",
    "sphere_average",
    "synthetic",
    "verify",
]
