"""One trainer, one theory: a round of training moves the outputs along the kernel of the method's shared names.

Full batches and one local step: Δf = -η K g + O(η²), where K = federated_kernel(J, owner, method.shared(module), 1/N),
g is the gradient of each client's own loss by its own outputs, and outputs are those in training, where batch norm
takes the statistics of the batch.
"""

import copy

import pytest
import torch
import torch.nn.functional as F

from fedtrain.backends.serial import SerialBackend
from fedtrain.config.local import LocalSettings
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.federated.client import ClientTrainer, Precision
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS, Peers, RoundContext
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedrep import FedRep
from theory import TwoLayerBN, compute_federated_kernel
from theory.kernels.autograd import get_trainable_parameters

SIZES, DIM, WIDTH, CLASSES = (6, 4, 5), 4, 40, 3
N = len(SIZES)
STEPS = (1e-3, 1e-4, 1e-5)


def force(title):
    """How many times ∂CE/∂f drives each branch in the first round.

    The head is frozen and common, so the N - 1 peers' heads of COPA and Fed-CO2 are the own one: the features are
    driven N times, which for COPA is once through its own branch and N - 1 times through that of the peers. FedRoD's
    personal branch sends nothing back. The terms of FedProx and MOON vanish, as a round begins at its own start.
    """
    special = {
        "FedRoD": {"generic": 1, "personal": 0},
        "COPA": {"own": 1, "peers": N - 1},
        "Fed-CO2": {"online": N, "offline": N},
        "Ditto": {"generic": 1, "personal": 1},
        "FML": {"generic": 0.5, "personal": 0.5},
        "Cooperation": {"online": 1, "offline": 1},
    }
    return special.get(title, {"model": 1})


def make():
    return TwoLayerBN(DIM, WIDTH, CLASSES, alpha=0.7, dtype=torch.float64)


def clients():
    chance = torch.Generator().manual_seed(3)
    made = []
    for i, n in enumerate(SIZES):
        x = torch.randn(n, DIM, generator=chance, dtype=torch.float64) @ torch.randn(
            DIM, DIM, generator=chance, dtype=torch.float64
        )
        samples = Samples(x + i, torch.randint(CLASSES, (n,), generator=chance))
        made.append(ClientData(f"client {i}", samples, samples))
    return made


def build_backend(method, lr=1e-3):
    how = LocalSettings(lr=lr, batch_size=max(SIZES))
    return SerialBackend(ClientTrainer(method, make, CLASSES, local=how, precision=Precision(torch.float64)), clients())


def modules(backend, message):
    """One module for each client, as it would be at the start of the next round."""
    made = []
    for name in backend.client_names:
        made.append(copy.deepcopy(backend.trainer.module).train())
        made[-1].load_state_dict({**backend.client_states[name], **message.shared})
    return made


def outputs(method, module, data):
    """Logits of all branches, by branch; heads never move, so that the peers' are copies of the own one."""
    head = module.head if method.published == "head" else None
    context = RoundContext(0, Peers([head] * (N - 1) if head else []), torch.ones(CLASSES))
    return method.branches(module, data.train.inputs, context)


def flat(branches):
    return torch.cat([logits.flatten() for logits in branches.values()])


def at_start(method):
    """Outputs f, their gradients g, Jacobian rows J by name, and the owner of each row."""
    backend = build_backend(method)
    f, g, owner, rows = [], [], [], {}
    for i, (module, data) in enumerate(
        zip(modules(backend, backend.initial_broadcast()), backend.clients.values(), strict=True)
    ):
        branches, weights = outputs(method, module, data), force(method.title)
        assert branches.keys() == weights.keys()
        f.append(flat(branches))
        for branch, logits in branches.items():
            free = logits.detach().requires_grad_()
            (by_output,) = torch.autograd.grad(F.cross_entropy(free, data.train.labels), free)
            g.append(weights[branch] * by_output.flatten())
        owner += [i] * len(f[-1])
        names = list(get_trainable_parameters(module))
        units, parameters = torch.eye(len(f[-1]), dtype=torch.float64), [module.get_parameter(name) for name in names]
        derived = torch.autograd.grad(f[-1], parameters, units, is_grads_batched=True)
        for name, value in zip(names, derived, strict=True):
            rows.setdefault(name, []).append(value.flatten(1))
    return torch.cat(f).detach(), torch.cat(g), {name: torch.cat(j) for name, j in rows.items()}, torch.tensor(owner)


def after_a_round(method, lr):
    backend = build_backend(method, lr)
    (only,) = federate(backend, backend.initial_broadcast(), 1)
    both = zip(modules(backend, only.message), backend.clients.values(), strict=True)
    return torch.cat([flat(outputs(method, module, data)) for module, data in both]).detach()


def errors(method, names, shared_weight=1 / N):
    """|Δf + η K g| / |η K g| for each step size."""
    f, g, rows, owner = at_start(method)
    predicted = -compute_federated_kernel(rows, owner, names, shared_weight) @ g
    return [((after_a_round(method, lr) - f) / lr - predicted).norm().item() / predicted.norm().item() for lr in STEPS]


ONE_STEP = [
    make()
    for name, make in METHODS.items()
    if name not in ("fedrep", "pfedme", "apfl", "knnper", "fedproto", "lgfedavg")
]
"""Not those that take several steps on a batch, predict by what is not trained so, or share a fixed head alone."""
EVERY = [*ONE_STEP, FedRep(head_epochs=0), FedCO2(personal="head"), FedCO2(personal="bn+head")]


@pytest.mark.parametrize("method", EVERY, ids=str)
def test_a_round_moves_the_outputs_along_the_methods_kernel(method):
    """The error is of second order, so that a tenth of the step has a tenth of the relative error."""
    large, middle, small = errors(method, build_backend(method).trainer.shared_names)
    assert small < 1e-3
    assert 0.08 <= middle / large <= 0.12
    assert 0.08 <= small / middle <= 0.12


@pytest.mark.parametrize(("name", "other"), [("fedavg", "fedbn"), ("fedbn", "fedavg"), ("fedbn", "singleset")])
def test_another_methods_names_give_another_movement(name, other):
    large, _, small = errors(METHODS[name](), build_backend(METHODS[other]()).trainer.shared_names)
    assert small > 0.1
    assert small == pytest.approx(large, rel=0.05)


def test_without_the_factor_of_averaging_it_is_not_what_a_round_does():
    assert errors(FedBN(), build_backend(FedBN()).trainer.shared_names, shared_weight=1.0)[-1] > 0.1
