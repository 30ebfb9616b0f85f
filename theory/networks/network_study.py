"""A run looked at through its kernels: at every checkpoint spectra, orderings and the next round, model by model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from theory.claims.base import Finding
from theory.errors import InputError
from theory.kernels.layerwise.plan import USABLE_SHARE, build_memory_error, get_free_bytes
from theory.kernels.layerwise.probe import refuse_training_mode
from theory.networks.kernels import ClientSamples, FederatedKernel, compute_federated_ntk
from theory.networks.next_round import RoundForecast, compare_round, compare_tiny_round
from theory.networks.orderings import judge_orderings
from theory.networks.sharing import HeldOut, SharingFindings, examine_sharing
from theory.networks.spectrum import Spectrum, measure_spectrum
from theory.networks.tangent_round import Batches, compare_real_round

FUSED = "fused"
MATRICES_OF_MODEL = 5
"""Of what is shared, of what is not, their sum, its client blocks, and the sum at the first checkpoint."""
WORKING_MATRICES = 10
"""Of mixtures and eigenvalue problems."""
ORDERINGS = {
    "O1": "V_off is the client blocks of V_on",
    "O2": "λ_min(V_off) ≥ λ_min(V_on)",
    "O3": "λ_min of the mean ≥ the mean of λ_min ≥ λ_min(V_on)",
    "O4": "λ_max of the mean ≤ λ_max(V_on)",
}
OUTSIDE = (
    "Kernels are those of networks in evaluation mode. Batch norm in training mode mixes the samples of a batch, so "
    "what it adds to a run is outside of these kernels."
)


@dataclass(frozen=True)
class RealRound:
    """The run's own next round: mini-batches of all training data, batch norm in training mode, the method's loss."""

    outputs: Mapping[str, Sequence[Tensor]]
    """After it: of each model, by each client's network on the client's samples."""
    batches: Sequence[Batches]
    """Of each client, as the round took them."""
    lr: float


@dataclass(frozen=True)
class NetworkCheckpoint:
    """The networks of all clients after some rounds: for each model (branch) one network of each client."""

    round: int
    networks: Mapping[str, Sequence[nn.Module]]
    shared: frozenset[str]
    """Entries that the method averages, by their names in these networks."""
    is_sum: bool = False
    """Whether the prediction is the sum of all models' outputs, which have no entry in common."""
    fused: Sequence[nn.Module] = ()
    """The networks of the prediction where it is not that sum; none where there is one model."""
    real_round: RealRound | None = None
    held_out: HeldOut | None = None
    """Where the prediction is the sum of an online and an offline model."""


@dataclass(frozen=True)
class LocalSteps:
    """The run's own local training, as far as a kernel can speak of it."""

    lr: float
    steps: tuple[int, ...]
    """Of each client in a round."""


@dataclass(frozen=True)
class ModelFindings:
    """One model at one checkpoint."""

    spectrum: Spectrum
    clients: dict[str, Spectrum]
    """Of each client's own block."""
    drift: float
    """|K - K at the first checkpoint| / |K at the first checkpoint|."""
    tiny_round: RoundForecast | None = None
    own_round: RoundForecast | None = None
    real_round: RoundForecast | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        rounds = {"tiny_round": self.tiny_round, "own_round": self.own_round, "real_round": self.real_round}
        return {
            "spectrum": self.spectrum.to_dict(),
            "clients": {name: one.to_dict() for name, one in self.clients.items()},
            "drift": self.drift,
            **{name: None if one is None else one.to_dict() for name, one in rounds.items()},
        }


@dataclass(frozen=True)
class CheckpointFindings:
    """All models at one checkpoint."""

    round: int
    models: dict[str, ModelFindings]
    orderings: dict[str, Finding]
    sharing: SharingFindings | None = None
    """None where nothing is shared."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "round": self.round,
            "models": {name: one.to_dict() for name, one in self.models.items()},
            "orderings": {
                name: {
                    key: getattr(one, key) for key in ("verdict", "lhs", "rhs", "margin", "unit", "words", "evidence")
                }
                for name, one in self.orderings.items()
            },
            "sharing": None if self.sharing is None else self.sharing.to_dict(),
        }


@dataclass(frozen=True)
class NetworkStudy:
    """What the kernels of a run say."""

    checkpoints: list[CheckpointFindings]
    clients: list[str]
    samples: list[int]
    outputs: int
    dtype: str
    reading: str
    """What V_on and V_off are."""
    about: dict[str, Any] = field(default_factory=dict)
    """Where it comes from: the run, its method, its data."""
    notes: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether no ordering fails at the first checkpoint, at which online and offline models are equal."""
        return all(one.verdict != "fails" for one in self.checkpoints[0].orderings.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.about,
            "clients": self.clients,
            "samples": self.samples,
            "outputs": self.outputs,
            "dtype": self.dtype,
            "reading": self.reading,
            "notes": self.notes,
            "checkpoints": [one.to_dict() for one in self.checkpoints],
        }


def study_networks(
    checkpoints: Iterable[NetworkCheckpoint],
    samples: ClientSamples,
    *,
    local: LocalSteps | None = None,
    next_round: bool = True,
    memory: int | None = None,
) -> NetworkStudy:
    """Look at the networks of a run at each of its checkpoints, on the same samples.

    Args:
        checkpoints: in the order of their rounds; each is asked for when the one before is done.
        samples: of every client.
        local: the run's own steps, to see how far its kernels predict a round of them.
        next_round: whether to make a round with the networks and compare.
        memory: bytes that the kernels may take; by default most of what is free. What does not fit is refused before
            the work starts.
    """
    first: dict[str, Tensor] = {}
    found: list[CheckpointFindings] = []
    reading, outputs, dtype = "", 0, ""
    for checkpoint in checkpoints:
        if not found:
            refuse_large_study(checkpoint, samples, memory)
        kernels = compute_model_kernels(checkpoint, samples, memory)
        first = first or {name: kernel.whole for name, kernel in kernels.items()}
        outputs, dtype = len(next(iter(kernels.values())).owner) // samples.total, _name_dtype(kernels)
        models = {
            name: _examine_model(
                name, kernel, first[name], checkpoint, samples, local if next_round else None, next_round
            )
            for name, kernel in kernels.items()
        }
        online, offline, reading = choose_models(kernels)
        orderings = judge_orderings(online.whole, offline.whole, online.owner)
        sharing = None
        if online.couples_clients:
            sharing = examine_sharing(online, offline, samples, _pick_answers(checkpoint, kernels, online, offline))
        found.append(CheckpointFindings(checkpoint.round, models, orderings, sharing))
    if not found:
        raise InputError("there is no checkpoint to look at; train with checkpoints, or keep some of them")
    notes = [OUTSIDE, *_list_notes(next_round, local)]
    sizes = [len(x) for x in samples.inputs]
    return NetworkStudy(found, list(samples.names), sizes, outputs, dtype, reading, notes=notes)


def refuse_large_study(checkpoint: NetworkCheckpoint, samples: ClientSamples, memory: int | None) -> None:
    """Refuse what does not fit into memory; kernels of several models are held at once, and worked on in float64."""
    network, x = next(iter(checkpoint.networks.values()))[0], samples.inputs[0]
    refuse_training_mode(network)
    with torch.no_grad():
        outputs = network(x[:1]).numel()
    models = len(checkpoint.networks) + (len(checkpoint.networks) > 1)
    numbers = (samples.total * outputs) ** 2
    needed = numbers * (models * MATRICES_OF_MODEL * x.element_size() + WORKING_MATRICES * torch.float64.itemsize)
    budget = int(USABLE_SHARE * get_free_bytes(x.device)) if memory is None else memory
    if needed > budget:
        raise build_memory_error(samples.total, outputs, needed, budget, memory is not None)


def compute_model_kernels(
    checkpoint: NetworkCheckpoint, samples: ClientSamples, memory: int | None = None
) -> dict[str, FederatedKernel]:
    """The kernel of each model, and of the prediction where there are several."""
    kernels = {
        name: compute_federated_ntk(networks, samples, checkpoint.shared, memory)
        for name, networks in checkpoint.networks.items()
    }
    if len(kernels) > 1 and checkpoint.is_sum:
        total, *others = kernels.values()
        for other in others:
            total = total + other
        kernels[FUSED] = total
    elif checkpoint.fused:
        kernels[FUSED] = compute_federated_ntk(checkpoint.fused, samples, checkpoint.shared, memory)
    return kernels


def choose_models(kernels: Mapping[str, FederatedKernel]) -> tuple[FederatedKernel, FederatedKernel, str]:
    """V_on and V_off, and in words what they are here.

    Where one model is shared and another is not, these are the two. Else V_on is the kernel of the prediction, and
    V_off the one that the same networks would have if nothing were shared.
    """
    models = {name: kernel for name, kernel in kernels.items() if name != FUSED}
    shared = [name for name, kernel in models.items() if kernel.couples_clients]
    alone = [name for name in models if name not in shared]
    if len(shared) == 1 and len(alone) == 1:
        words = f"V_on is the kernel of the {shared[0]} model, V_off of the {alone[0]} model"
        return models[shared[0]], models[alone[0]], words
    name = FUSED if FUSED in kernels else next(iter(models))
    kernel = kernels[name]
    if not kernel.couples_clients:
        words = "nothing is shared, so V_on and V_off are one kernel, and the orderings say nothing"
    else:
        words = (
            f"V_on is the kernel of the method ({name}), V_off the one that the same networks would have if nothing "
            "were shared; so O1 is an identity"
        )
    unshared = FederatedKernel(torch.zeros_like(kernel.whole), kernel.blocks, kernel.owner)
    return kernel, unshared, words


def _examine_model(
    name: str,
    kernel: FederatedKernel,
    first: Tensor,
    checkpoint: NetworkCheckpoint,
    samples: ClientSamples,
    local: LocalSteps | None,
    next_round: bool,
) -> ModelFindings:
    classes = len(kernel.owner) // samples.total
    clients = {
        client: measure_spectrum(kernel.whole[rows, rows], y, classes)
        for client, rows, y in zip(samples.names, kernel.list_rows(), samples.labels, strict=True)
    }
    networks = checkpoint.networks.get(name)
    tiny = own = None
    if networks is not None and next_round:
        tiny = compare_tiny_round(networks, kernel, samples, checkpoint.shared)
        if local is not None:
            own = compare_round(networks, kernel, samples, checkpoint.shared, local.lr, local.steps)
    drift = ((kernel.whole - first).norm() / first.norm()).item()
    spectrum = measure_spectrum(kernel.whole, torch.cat(list(samples.labels)), classes)
    real = checkpoint.real_round
    made = None
    if networks is not None and real is not None:
        made = compare_real_round(networks, real.outputs[name], real.batches, samples, checkpoint.shared, real.lr)
    return ModelFindings(spectrum, clients, drift, tiny, own, made)


def _pick_answers(
    checkpoint: NetworkCheckpoint, kernels: Mapping[str, FederatedKernel], *models: FederatedKernel
) -> HeldOut | None:
    """Of the online and of the offline model, in this order, where these are all that the prediction is the sum of."""
    held_out = checkpoint.held_out
    names = [name for model in models for name, kernel in kernels.items() if kernel is model and name != FUSED]
    if held_out is None or set(names) != set(held_out.outputs):
        return None
    return HeldOut(held_out.split, {name: held_out.outputs[name] for name in names}, held_out.labels)


def _name_dtype(kernels: Mapping[str, FederatedKernel]) -> str:
    return str(next(iter(kernels.values())).whole.dtype).removeprefix("torch.")


def _list_notes(next_round: bool, local: LocalSteps | None) -> list[str]:
    if not next_round:
        return []
    words = (
        "The next round is made on these samples alone, by full-batch steps on the cross entropy of each model, "
        "without momentum, weight decay and what a method adds to its loss."
    )
    return [words] if local is None else [words, f"The run's own steps: {max(local.steps)} of size {local.lr:g}."]
