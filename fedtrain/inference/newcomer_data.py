"""Data of a client that comes when training is over, read as the run's own data were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch

from fedtrain.data.client_data import ClientData, Samples
from fedtrain.data.errors import DataError
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.image_dataset import ImageShape
from fedtrain.data.found.names import check_client_names
from fedtrain.data.found.pools import ONE_CLIENT, FoundDataset
from fedtrain.data.found.table_dataset import find_newcomers
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.readers.table_file import read_table
from fedtrain.data.standardise import standardise_client
from fedtrain.inference.trained_run import TrainedRun
from theory.errors import InputError
from theory.text import suggest_name


def read_newcomer(run: TrainedRun, path: Path, client: str | None = None) -> ClientData:
    """A client of the data at this path; ``client`` says which if there are several."""
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; mend the path")
    found = _find(run, path)
    names = list(found.info.domains)
    if client is None and len(names) > 1:
        raise InputError(
            f"{path}: it holds {len(names)} clients ({', '.join(names[:8])}); say which", options=("client",)
        )
    if client is not None and client not in names:
        raise InputError(f"{path}: no client {client!r}; {suggest_name(client, names)}", options=("client",))
    pool = found.pools[0 if client is None else names.index(client)]
    classes = run.federation.classes
    if unknown := next((name for name in found.info.classes if name not in classes), None):
        raise DataError(
            f"{path}: class {unknown!r} is none of those that were trained ({', '.join(classes[:20])}); leave it out"
        )
    number = np.array([classes.index(name) for name in found.info.classes], dtype=np.int64)

    def take(part: Split) -> Samples:
        labels = pool.train if part == "train" else pool.test
        inputs = pool.load_inputs(part, np.arange(len(labels), dtype=np.int64))
        return Samples(inputs, torch.from_numpy(number[labels]))

    name = path.absolute().name.split(".")[0] if pool.domain == ONE_CLIENT else pool.domain
    check_client_names(path, [name])
    data = ClientData(name, take("train"), take("test"))
    like = run.federation.clients[0].train.inputs
    if data.train.inputs.shape[1:] != like.shape[1:] or data.train.inputs.dtype != like.dtype:
        raise DataError(
            f"{path}: its inputs are {data.train.inputs.dtype} of shape {tuple(data.train.inputs.shape[1:])}, and "
            f"{like.dtype} of {tuple(like.shape[1:])} were trained on; give inputs of that kind"
        )
    info = replace(found.info, scaling=run.federation.scaling, table=run.federation.table)
    return standardise_client(data, info, run.config.data.standardise)


def _find(run: TrainedRun, path: Path) -> FoundDataset:
    """All that is there: rows by the columns that the run knows, images of the size that its network reads."""
    settings, schema = run.config.data, run.federation.table
    if schema is not None:
        numbers = {column.name for column in schema.columns if column.categories is None}
        table = read_table(path, number_columns=numbers)
        return find_newcomers(table, settings, path.name, schema, run.federation.classes)
    like = run.federation.clients[0].train.inputs
    shape = cast(ImageShape, tuple(like.shape[1:])) if like.ndim == 4 else None
    return find_dataset(path.absolute(), replace(settings, image_size=None), shape=shape)
