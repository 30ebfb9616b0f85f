"""A data set that a function of somebody's gives: clients with their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedtrain.data.client_data import ClientData, SamplePool, combine_fingerprints
from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.found.array_dataset import PIXEL_MEAN, PIXEL_STD
from fedtrain.data.found.names import check_client_names
from fedtrain.data.found.pools import FoundDataset, build_pool
from fedtrain.data.found.split import ClientSplit
from fedtrain.data.own_clients import build_own_federation
from fedtrain.data.scaling import measure_scaling
from fedtrain.extensions.errors import ExtensionError, describe_code_error, shorten_path
from fedtrain.extensions.references import Extension
from theory.errors import InputError


def find_code_dataset(found: Extension) -> FoundDataset:
    """What the function gives: clients, or a pair of clients and names of the classes."""
    where = f"dataset {found.name}" + (f" ({shorten_path(found.file)})" if found.file else "")
    given = call_function(found, where)
    clients, classes = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(clients, Sequence) or not all(isinstance(client, ClientData) for client in clients):
        raise ExtensionError(
            f"{where} gives {describe_gift(given)}; return a list of fedtrain.ClientData, or a pair of such a list "
            "and the names of the classes"
        )
    if named := next((client.name for client in clients if client.val is not None), None):
        raise ExtensionError(f"{where}: client {named} brings validation data; leave them out, and set data.val_size")
    try:
        federation = build_own_federation(clients, classes)
        check_client_names(found.name, [client.name for client in federation.clients])
    except InputError as error:
        raise ExtensionError(f"{where}: {error}") from None
    return build_found_dataset(found.name, federation.clients, federation.classes)


def call_function(found: Extension, where: str) -> Any:
    """What it returns; an error of it names its place."""
    if not callable(found.value):
        raise ExtensionError(f"{where} is {describe_gift(found.value)}; name a function that returns clients")
    try:
        return found.value()
    except Exception as error:
        raise ExtensionError(f"{where} failed: {describe_code_error(error)}") from error


def describe_gift(value: object) -> str:
    """What something is that should be clients."""
    return f"an instance of {type(value).__name__}"


def build_found_dataset(name: str, clients: Sequence[ClientData], classes: Sequence[str]) -> FoundDataset:
    """Pools that any skew can share out, one for each client."""
    like = clients[0].train.inputs
    pixels = like.dtype == torch.uint8
    info = DatasetInfo(
        name,
        name,
        {client.name: client.name for client in clients},
        tuple(classes),
        tuple(like.shape[1:]),
        PIXEL_MEAN if pixels else (0.0,),
        PIXEL_STD if pixels else (1.0,),
        input_type="uint8" if pixels else "float32",
        scaling=measure_scaling(
            torch.cat([client.train.inputs for client in clients]).float().numpy(), np.ones(like.shape[1], bool)
        )
        if like.ndim == 2 and not pixels
        else None,
    )
    pools = [build_client_pool(info, client) for client in clients]
    checksum = combine_fingerprints(client.fingerprint for client in clients)
    return FoundDataset(info, pools, "the function", (), checksum)


def build_client_pool(info: DatasetInfo, client: ClientData) -> SamplePool:
    """One client's samples in one row, those to train on first."""
    inputs = torch.cat([client.train.inputs, client.test.inputs])
    inputs = inputs if info.input_type == "uint8" else inputs.float()
    labels = torch.cat([client.train.labels, client.test.labels]).numpy()
    train, test = np.split(np.arange(len(labels)), [len(client.train)])
    return build_pool(info, client.name, labels, ClientSplit(train, test), lambda places: inputs[places])
