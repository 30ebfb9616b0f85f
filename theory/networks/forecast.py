"""Which method will generalise best, predicted with the kernels of the very networks before they are trained.

As in `theory.forecast`, each sample is predicted from the other folds by kernel regression; only the kernels are
others: those of deep networks, with what a method shares and what it keeps. A round of averaging with equal weights
descends K_shared / N + K_personal (claim D3), N the number of clients. A method that predicts with several models adds
their predictions, each regressed on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import torch
from torch import Tensor, nn

from theory.forecast import (
    Forecast,
    RidgeFit,
    assign_folds,
    encode_centered_one_hot,
    regress,
    score_classes,
    validate_classes,
)
from theory.networks.kernels import ClientSamples, FederatedKernel, compute_federated_ntk
from theory.rng import check_seed

MOST_OUTPUTS = 3
"""Kernels of so many outputs are averaged; as training begins outputs are alike but for chance."""


def compute_mean_ntk(
    networks: Sequence[nn.Module], samples: ClientSamples, shared: Set[str], memory: int | None = None
) -> FederatedKernel:
    """The kernel of one output, averaged over outputs: one row for each sample.

    Of a wide network all outputs have this kernel, and no two of them are coupled. Of a real one that is nearly so as
    training begins, and regression with it costs outputs³ times less.
    """
    with torch.no_grad():
        count = networks[0](samples.inputs[0][:1]).numel()
    chosen = torch.linspace(0, count - 1, min(count, MOST_OUTPUTS)).round().long().tolist()
    total: FederatedKernel | None = None
    for output in chosen:
        one = compute_federated_ntk(networks, samples, shared, memory, outputs=[output])
        total = one if total is None else total + one
    assert total is not None
    return FederatedKernel(total.shared / len(chosen), total.personal / len(chosen), total.owner)


def forecast_networks(
    methods: Mapping[str, Sequence[FederatedKernel]], labels: Tensor, *, seed: int = 0, names: Sequence[str] = ()
) -> Forecast:
    """Forecast classes by each method's kernels, one row for each sample; of several models the sum of predictions.

    Args:
        methods: for each method the kernels of its models, by `compute_mean_ntk`.
        labels: of all samples, client by client.
        seed: of the folds.
        names: of the clients, for errors.
    """
    check_seed(seed)
    owner = next(iter(methods.values()))[0].owner
    sizes = torch.bincount(owner).tolist()
    validate_classes(labels, sizes, names or [str(i) for i in range(len(sizes))])
    targets, fold = encode_centered_one_hot(labels), assign_folds(owner, labels, seed)
    scores: dict[str, Tensor] = {}
    ridges: dict[str, float] = {}
    for method, kernels in methods.items():
        fits = [regress_kernel(kernel, targets, fold) for kernel in kernels]
        scores[method] = score_classes(torch.stack([fit.predicted for fit in fits]).sum(0), labels)
        ridges[method] = fits[0].ridge  # of its first model, the one that is shared if any is
    return Forecast(owner, scores, ridges)


def regress_kernel(kernel: FederatedKernel, targets: Tensor, fold: Tensor) -> RidgeFit:
    """Regression with what averaging descends; client by client where nothing is shared."""
    rows = kernel.list_rows()
    K = kernel.shared.double() / len(rows) + kernel.personal.double()
    return regress(K, targets, fold, [slice(0, len(K))] if kernel.couples_clients else rows)
