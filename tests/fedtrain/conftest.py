"""A toy federation, every method with its switches, and a run that remembers all that went over the wire."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from fedtrain.backends.serial import SerialBackend
from fedtrain.config.local import LocalSettings
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS, Peers, RoundContext
from fedtrain.methods.apfl import APFL
from fedtrain.methods.cooperate import Cooperate
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedper import FedPer
from fedtrain.methods.fedprox import FedProx
from fedtrain.methods.fedrep import FedRep
from fedtrain.methods.fedrod import FedRoD
from fedtrain.methods.moon import Moon
from fedtrain.methods.singleset import SingleSet
from fedtrain.models import Net
from fedtrain.runs.callbacks import OnRoundEnd
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds

VARIANTS = {
    **{name: make() for name, make in METHODS.items()},
    "fedrep": FedRep(head_epochs=2),
    "apfl-adaptive": APFL(adaptive=True),
    "singleset-own": SingleSet(start="own"),
    "fedprox-unsquared": FedProx(mu=1.0, squared=False),
    "moon-initial": Moon(previous="initial"),
    "fedrod-published": FedRoD(balanced=True, personal_sgd="plain"),
    "fedbn-shared-stats": FedBN(bn_stats="shared"),
    "fedco2-label-skew": FedCO2(intra="none", inter="none", bn_stats="shared", start="own"),
    "fedco2-one-way": FedCO2(intra="online", inter="offline", gen="mean", fusion="probabilities", mu=0.5),
    "fedco2-other-way": FedCO2(intra="offline", inter="online", start="own"),
    "fedco2-head": FedCO2(personal="head"),
    "fedco2-bn+head": FedCO2(personal="bn+head", bn_stats="shared"),
    "cooperate-fedper": Cooperate(online=FedPer(), intra="both", inter="both"),
    "cooperate-fedrod": Cooperate(online=FedRoD(), fusion="weighted"),
    "cooperate-three": Cooperate(online=FedRep(head_epochs=1), offline=Cooperate(online=FedProx()), fusion="best"),
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def method(request):
    """Each method as the command line gives it, then the switches that change what is shared, looked at or summed."""
    return request.param


def frozen(module):
    return copy.deepcopy(module).requires_grad_(False).eval()


@dataclass
class Run:
    """A backend after its rounds, and every round of it."""

    backend: SerialBackend
    history: list

    @property
    def message(self):
        return self.history[-1].message

    def load_entries(self, client):
        """All that a client's module holds when it predicts."""
        data = self.backend.clients[client]
        self.backend.trainer.start_round(data, self.backend.client_states[client], self.message)
        return {name: value.clone() for name, value in self.backend.trainer.module.state_dict().items()}

    def evaluate(self):
        return self.backend.evaluate(self.message, ("train", "test"))


class Toy:
    """Three clients with the same classes seen through different lenses; their order is not that of the alphabet."""

    names, sizes, dim, classes = ("b", "a", "c"), (14, 11, 12), 6, 3

    def build_net(self):
        """Batch norm in both parts; no bias where batch norm would take it out again."""
        features = nn.Sequential(nn.Linear(self.dim, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU())
        head = [nn.Linear(12, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, self.classes)]
        return Net(features, nn.Sequential(*head))

    def build_clients(self):
        chance = torch.Generator().manual_seed(5)
        centres = 3 * torch.randn(self.classes, self.dim, generator=chance)
        return [
            self._build_client(name, size, centres, chance) for name, size in zip(self.names, self.sizes, strict=True)
        ]

    def _build_client(self, name, size, centres, chance):
        stretch, shift = 0.5 + torch.rand(2, self.dim, generator=chance)

        def samples(n):
            labels = torch.arange(n) % self.classes
            noise = torch.randn(n, self.dim, generator=chance)
            return Samples((centres[labels] + 0.5 * noise) * stretch + shift, labels)

        return ClientData(name, samples(size), samples(30))

    def build_client_trainer(
        self, method, *, make=None, seed=0, device="cpu", preprocessing=None, precision=None, fast_path=True,
        participation=1.0, **local
    ):  # fmt: skip
        how = {"lr": 0.1, "momentum": 0.5, "weight_decay": 1e-3, "epochs": 1, "batch_size": 8} | local
        more = {
            "seed": seed,
            "device": device,
            "preprocessing": preprocessing,
            "precision": precision,
            "fast_path": fast_path,
            "participation": participation,
        }
        return ClientTrainer(method, make or self.build_net, self.classes, local=LocalSettings(**how), **more)

    def build_nets(self, count):
        """Networks in double precision that all differ, with statistics that tell evaluation from training."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            made = [self.build_net().double() for _ in range(count)]
            for net in made:
                net.head[-1].weight.data *= 5
                net(3 * torch.randn(9, self.dim, dtype=torch.float64) + 1)
            return made

    def build_batch(self):
        chance = torch.Generator().manual_seed(1)
        return torch.randn(7, self.dim, generator=chance, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2, 2])

    def build_context(self, *, peers=(), counts=(1, 1, 1), round_start_model=None):
        """What a client sees in the second round; all modules in it are frozen copies."""
        start = None if round_start_model is None else frozen(round_start_model)
        return RoundContext(1, Peers([frozen(head) for head in peers]), torch.tensor(counts), start)

    def train(self, method, rounds=2, *, clients=None, participation=1.0, weights="uniform", seed=0, **options):
        backend = SerialBackend(
            self.build_client_trainer(method, seed=seed, participation=participation, **options),
            clients or self.build_clients(),
        )
        options = {"participation": participation, "weights": weights, "seed": seed}
        return Run(backend, list(federate(backend, backend.initial_broadcast(), rounds, **options)))


@pytest.fixture(scope="session")
def toy():
    return Toy()


def equal(one, other):
    """Whether two nested dicts of tensors hold the same bits under the same names, in whatever order."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="session")
def same():
    return equal


@pytest.fixture(scope="session")
def below():
    """The entries under a path, named within it."""

    def entries(state, path):
        return {name.removeprefix(path): value for name, value in state.items() if name.startswith(path)}

    return entries


@pytest.fixture(scope="session")
def gradients():
    """Of a loss by all parameters of a module, by name."""

    def by_name(loss, module):
        found = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
        return dict(zip(dict(module.named_parameters()), found, strict=True))

    return by_name


@pytest.fixture(scope="session")
def same_run():
    """Whether two runs agree in all they sent and kept, bit by bit."""

    def judge(one, other):
        sent = zip(one.history, other.history, strict=True)
        return equal(one.backend.client_states, other.backend.client_states) and all(
            equal(a.message.shared, b.message.shared) and equal(a.message.peers, b.message.peers) for a, b in sent
        )

    return judge


@pytest.fixture
def begin(toy, tmp_path):
    """Begins runs: (experiment, folder)."""
    count = iter(range(99))

    def new(config, clients=None, place=None, **changes):
        clients = clients or [
            replace(c, val=Samples(c.test.inputs[:5], c.test.labels[:5])) for c in toy.build_clients()
        ]
        data = Federation(tuple(clients), ("x", "y", "z"), "Toy", False, Preprocessing(), ("a note",))
        folder = RunFolder(place or tmp_path / f"run {next(count)}")
        work = Experiment(replace(config, **changes), data, toy.build_net)
        folder.begin(work.config, {})
        return work, folder

    return new


@pytest.fixture
def run_twice(begin):
    """Runs a configuration in one go, and again with a stop after round 2: checkpoints of end, stop and end."""

    def stop(progress):
        if progress.round == 2:
            raise KeyboardInterrupt

    def run(config):
        work, folder = begin(config)
        run_rounds(work, folder)
        again, other = begin(config)
        with pytest.raises(KeyboardInterrupt):
            run_rounds(again, other, [OnRoundEnd(stop)])
        half = other.load_checkpoint()
        run_rounds(again, other)
        return folder.load_checkpoint(), half, other.load_checkpoint()

    return run


@pytest.fixture(scope="module")
def no_figures():
    """They take longer than all the rest of a tiny run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
        yield
