"""The options of a partition by name: keywords in Python, flags on the command line."""

from __future__ import annotations

from typing import TypedDict, Unpack

from fedtrain.config.data import SETTINGS_OF_SKEW, DataSettings, DataSource, Skew
from fedtrain.config.presets import get_dataset_preset, resolve_preset
from fedtrain.registry import DATASET_NAMES
from theory.errors import InputError
from theory.text import suggest_name

SETTING_NAMES = {"data": "source", "data_seed": "seed"}
"""Options that are called otherwise than their settings in the section ``[data]``."""
OPTIONS_OF_SKEWS = ("alpha", "beta", "classes_per_client", "divide", "percent", "train_size", "least")


class PartitionOptions(TypedDict, total=False):
    """Which clients a data set makes; what is left out is as in the data set's preset."""

    data: DataSource
    """Real data if they are there, else the built-in stand-in; only real data; only the stand-in."""
    skew: Skew
    """How the clients' data differ."""
    clients: int
    """How many (label skews)."""
    alpha: float
    """Dirichlet concentration; smaller is more skewed."""
    beta: float
    """Pachinko: concentration of the fine classes."""
    classes_per_client: int
    """Pathological: classes of each client."""
    divide: int
    """Label + feature: parts of a domain, of which one is kept."""
    percent: float
    """Domain: the share of the training images."""
    train_size: int
    """Domain: training images of a client."""
    least: int
    """Dirichlet: the fewest training and test images that a client gets."""
    data_seed: int
    """Of the partition."""


def resolve_data_settings(dataset: str, **options: Unpack[PartitionOptions]) -> DataSettings:
    """The options over the data set's preset; one that the skew does not read is refused."""
    known = PartitionOptions.__annotations__
    if unknown := next((name for name in options if name not in known), None):
        raise InputError(f"unknown option {unknown!r}; {suggest_name(unknown, known)}")
    given = {SETTING_NAMES.get(name, name): value for name, value in options.items() if value is not None}
    if dataset not in DATASET_NAMES and given.get("source") == "auto":
        del given["source"]  # data of one's own have no stand-in
    settings = resolve_preset(get_dataset_preset(dataset), {"data": {"dataset": dataset, **given}}).data
    for name in OPTIONS_OF_SKEWS:
        if name in given and name not in SETTINGS_OF_SKEW[settings.skew]:
            raise InputError(f"{name} means nothing to skew {settings.skew!r}; leave it out", [name])
    return settings
