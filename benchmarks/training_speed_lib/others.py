"""Rounds of other people's code on the clients of a workload, in the place of the literal loop.

Nothing of theirs is here: a folder with their code is given, as git clones it, and their own functions train, average
and evaluate. What surrounds these functions in their programs is written anew, because there it cannot be had without
their command lines and data files.

  authors   github.com/zhyczy/Fed-CO2, commit 21f5255: FedAvg, FedBN and Fed-CO2 on Digits and Office
  pfllib    github.com/TsingZ0/PFLlib, commit d832e76: FedAvg and FedBN on CIFAR, with our network
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from fedtrain.data.client_data import Samples
from fedtrain.federated.messages import Split
from fedtrain.runs.experiment import Experiment
from training_speed_lib.published_data import SAMPLE_LOADERS, write_client_images
from training_speed_lib.sides import RoundCallback

NETWORKS = {"digits": "DigitModel", "office": "AlexNet"}
"""What the authors call them."""


class OneByOne(Dataset[tuple[Tensor, int]]):
    """Images that are read as the authors do: each by itself, through Pillow."""

    def __init__(self, samples: Samples, preset: str, training: bool) -> None:
        self.samples, self.load, self.training = samples, SAMPLE_LOADERS[preset], training

    def __len__(self) -> int:
        return len(self.samples.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.load(self.samples, index, self.training), int(self.samples.labels[index])


def run_authors_rounds(
    experiment: Experiment, splits: Sequence[Split], rounds: int, pace: RoundCallback, code: str
) -> None:
    """What their ``main.py`` does in a round, by their functions."""
    config, preset = experiment.config, experiment.config.data.dataset
    if preset not in NETWORKS:
        raise SystemExit("error: the authors' code for CIFAR is another program; take --workload w1 or w2")
    sys.path.insert(0, code)
    networks, methods, common = map(import_module, ("nets.models", "utils.methods", "utils.utils"))
    mode = {"fedco2": "fed-co2"}.get(config.method_name, config.method_name)
    args, device, loss = Namespace(mode=mode, lr=config.local.lr, mu=1e-3), torch.device("cpu"), nn.CrossEntropyLoss()
    with tempfile.TemporaryDirectory() as folder:
        clients = list(experiment.federation.clients)
        if preset == "office":
            clients = [write_client_images(client, Path(folder)) for client in clients]

        def load(samples: Samples, training: bool) -> DataLoader[tuple[Tensor, int]]:
            return DataLoader(OneByOne(samples, preset, training), config.local.batch_size, shuffle=training)

        trained = [load(client.train, training=True) for client in clients]
        others = [[load(getattr(client, split), training=False) for client in clients] for split in splits[1:]]
        server = getattr(networks, NETWORKS[preset])()
        models = [copy.deepcopy(server) for _ in clients]
        own = [copy.deepcopy(server) for _ in clients] if mode == "fed-co2" else []
        for round in range(rounds):
            pace(round)
            steps = [torch.optim.SGD(model.parameters(), lr=config.local.lr) for model in models]
            methods.local_training(models, own, [], server, [], args, trained, steps, loss, device, a_iter=round)
            weights = [1 / len(clients)] * len(clients)
            with torch.no_grad():
                server, models = common.communication(args, server, models, own, [], [], weights)
                for loaders in [trained, *others]:
                    for k, loader in enumerate(loaders):
                        common.test(k, models[k], own[k] if own else None, [], loader, loss, device, args)


def run_pfllib_rounds(
    experiment: Experiment, splits: Sequence[Split], rounds: int, pace: RoundCallback, code: str
) -> None:
    """What the servers of its FedAvg and FedBN do in a round, by their methods; it trains without momentum."""
    config, data = experiment.config, experiment.federation
    sys.path.insert(0, str(Path(code) / "system"))
    sys.modules.setdefault("h5py", ModuleType("h5py"))  # for results that are not written here
    kinds = {"fedavg": ("serveravg", "FedAvg"), "fedbn": ("serverbn", "FedBN")}
    if config.method_name not in kinds or config.data.dataset != "cifar10":
        raise SystemExit("error: PFLlib is compared on --workload w3, by --method fedavg or fedbn")
    module, name = kinds[config.method_name]
    args = Namespace(
        device="cpu", dataset="here", num_classes=len(data.classes), global_rounds=rounds,
        local_epochs=config.local.epochs, batch_size=config.local.batch_size, local_learning_rate=config.local.lr,
        model=experiment.get_model_builder()(), num_clients=len(data.clients),
        join_ratio=config.server.participation, random_join_ratio=False, few_shot=0, algorithm=name,
        time_select=False, goal="time", time_threthold=1e9, save_folder_name="", top_cnt=0, auto_break=False,
        eval_gap=1, client_drop_rate=0.0, train_slow_rate=0.0, send_slow_rate=0.0, dlg_eval=False, dlg_gap=0,
        batch_num_per_client=0, num_new_clients=0, fine_tuning_epoch_new=0, learning_rate_decay=False,
        learning_rate_decay_gamma=1.0,
    )  # fmt: skip
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for split in ("train", "test"):
            (Path(folder) / "dataset" / "here" / split).mkdir(parents=True)
            for k, client in enumerate(data.clients):
                write_npz(Path(folder) / "dataset" / "here" / split / f"{k}.npz", getattr(client, split))
        (Path(folder) / "system").mkdir()
        os.chdir(Path(folder) / "system")  # it looks for data in ../dataset
        try:
            server: Any = getattr(import_module(f"flcore.servers.{module}"), name)(args, 0)
            for round in range(rounds):
                pace(round)
                server.selected_clients = server.select_clients()
                server.send_models()
                for client in server.selected_clients:
                    client.train()
                server.receive_models()
                server.aggregate_parameters()
                server.send_models()
                server.test_metrics()
        finally:
            os.chdir(before)


def write_npz(path: Path, samples: Samples) -> None:
    """A client's data as PFLlib keeps them: one object in an npz."""
    x = samples.inputs.float().div(127.5).sub(1).numpy()
    np.savez_compressed(path, data=np.array({"x": x, "y": samples.labels.numpy()}, dtype=object))
