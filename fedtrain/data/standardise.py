"""Standardise a client's numbers, by its own training part or by everybody's; fill in what is missing."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np

from fedtrain.data.client_data import ClientData, Samples
from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.errors import DataError
from fedtrain.data.scaling import Scaling, measure_scaling
from theory.errors import InputError


def standardise_client(client: ClientData, data: DatasetInfo, how: str) -> ClientData:
    """The client with inputs as a network reads them, and how they came to be so."""
    if data.scaling is None or data.input_type == "uint8":
        if how in ("client", "pooled"):
            raise InputError(f"standardise is {how}, and inputs of {data.title} are no rows of numbers; leave it out")
        return client
    if client.train.inputs.is_meta:  # a look ahead, without inputs
        return client
    scaling = choose_scaling(client, data, how)
    if scaling is None:
        return client

    def scale(samples: Samples) -> Samples:
        return Samples(scaling.apply(samples.inputs), samples.labels)

    val = None if client.val is None else scale(client.val)
    return replace(client, train=scale(client.train), val=val, test=scale(client.test), scaling=scaling)


def choose_scaling(client: ClientData, data: DatasetInfo, how: str) -> Scaling | None:
    """By whose mean and deviation; None for numbers that are taken as they are, of which none is missing."""
    assert data.scaling is not None
    if how == "pooled":
        return data.scaling
    if how == "none" or (how == "auto" and data.table is None):
        return None if data.table is None else data.scaling.without_standardising()
    is_number = np.ones(len(data.scaling.mean), dtype=bool) if data.table is None else data.table.is_number
    scaling = measure_scaling(client.train.inputs.numpy(), is_number)
    if (empty := next((i for i, mean in enumerate(scaling.mean) if isnan(mean)), None)) is not None:
        name = f"input {empty}" if data.table is None else data.table.input_names[empty]
        raise DataError(
            f"client {client.name}: none of its training samples has a value of {name}; ignore the column, or "
            "standardise by everybody's",
            options=("ignore", "standardise"),
        )
    return scaling
