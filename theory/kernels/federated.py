"""The kernel of a federated method: shared parameters keep their Gram matrix, personal ones its client blocks."""

from __future__ import annotations

from collections.abc import Mapping, Set

from torch import Tensor

from theory.errors import InputError


def keep_client_blocks(gram: Tensor, owner: Tensor) -> Tensor:
    """Zero the entries that couple two clients (the pinching of matrix analysis)."""
    return gram * (owner[:, None] == owner[None, :])


def compute_federated_kernel(
    jacobian: Mapping[str, Tensor], owner: Tensor, shared: Set[str], shared_weight: float = 1.0
) -> Tensor:
    """K = shared_weight · Σ_{θ shared} J_θ J_θᵀ + Σ_{θ personal} (the client blocks of J_θ J_θᵀ).

    Row p of J_θ (n, |θ|) is the gradient of output p with respect to *its own client's* copy of θ. ``shared`` names the
    parameters that a training method averages. With a ``shared_weight`` of 1 this is the paper's kernel (gradient
    descent on the pooled loss); 1/N is what one step on each client followed by averaging really does.
    """
    if shared and not shared & jacobian.keys():
        raise InputError(f"none of {', '.join(sorted(shared))} is a parameter here; there are {', '.join(jacobian)}")
    total = owner.new_zeros((len(owner), len(owner)), dtype=next(iter(jacobian.values())).dtype)
    for name, rows in jacobian.items():
        gram = rows @ rows.T
        total += shared_weight * gram if name in shared else keep_client_blocks(gram, owner)
    return total
