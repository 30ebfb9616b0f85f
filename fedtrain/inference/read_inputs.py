"""Files that a trained model is asked about: images, or rows of a table, prepared as the run's own data were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedtrain.data.client_data import Federation
from fedtrain.data.errors import DataError
from fedtrain.data.found.table_dataset import encode_table
from fedtrain.data.readers.image_file import read_image, read_image_as
from fedtrain.data.readers.table_file import read_table
from fedtrain.data.scaling import Scaling
from theory.errors import InputError


@dataclass(frozen=True, eq=False)
class NamedInputs:
    """Inputs as a client holds them, and what each is called."""

    inputs: Tensor
    names: list[str]


def read_inputs(data: Federation, client: str | None, paths: Sequence[Path]) -> NamedInputs:
    """What is in the files. Rows are standardised as the client's, or as everybody's if it was never seen."""
    like = data.clients[0].train.inputs
    if missing := [str(path) for path in paths if not path.exists()]:
        what = "image file" if like.ndim == 4 else "file"
        raise DataError(
            f"no such {what}: {', '.join(missing)}; give the path of {'an image' if like.ndim == 4 else 'one'}"
        )
    if data.table is not None:
        scaling = next((one.scaling for one in data.clients if one.name == client), data.scaling)
        return _read_rows(data, scaling, paths)
    if like.dtype != torch.uint8 or like.ndim != 4 or like.shape[1] not in (1, 3):
        shape = " x ".join(map(str, like.shape[1:]))
        raise InputError(f"this run reads inputs of {shape}, which are no images; hand them to Run.predict in Python")
    channels, height, width = like.shape[1:]
    images = [
        torch.from_numpy(read_image_as(path, (height, width), channels))
        if data.is_own
        else torch.from_numpy(read_image(path, (height, width))).permute(2, 0, 1)
        for path in paths
    ]
    return NamedInputs(torch.stack(images), [str(path) for path in paths])


def _read_rows(data: Federation, scaling: Scaling | None, paths: Sequence[Path]) -> NamedInputs:
    assert data.table is not None
    numbers = {column.name for column in data.table.columns if column.categories is None}
    blocks, names = [], []
    for path in paths:
        table = read_table(path, number_columns=numbers)
        blocks.append(torch.from_numpy(encode_table(table, data.table)))
        names += [f"{path} {table.locate(row)}" for row in range(len(table))]
    rows = torch.cat(blocks)
    return NamedInputs(rows if scaling is None else scaling.apply(rows), names)
