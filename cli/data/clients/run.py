"""What ``fedco2 data clients`` does once its options are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from cli.console import make_console
from cli.data.clients.view import ClientRow, print_clients
from fedtrain.config.data import SETTINGS_OF_SKEW, DataSettings
from fedtrain.config.partition_options import PartitionOptions, resolve_data_settings
from fedtrain.data.datasets import DATASETS, DatasetInfo, get_dataset_info
from fedtrain.data.partition import build_known_labels, count_classes
from fedtrain.data.partition.assign import assign_samples, validate_data_settings
from fedtrain.data.partition.client_indices import ClientIndices, LabelledPool
from fedtrain.data.partition.describe import describe_partition
from fedtrain.data.partition.indices import Indices
from fedtrain.data.source import load_dataset
from fedtrain.data.storage import store
from fedtrain.report.png import check_new_png, write_png

ORDER_DEPENDENT_SKEWS = ("iid", "pachinko")
"""Skews whose class counts depend on the order of the samples, not only on class sizes."""


@dataclass(frozen=True, eq=False)
class ClassCountPool:
    """Labels made of class sizes."""

    domain: str
    train: Indices
    test: Indices


def get_partition_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those that say which data set is shared out, and how."""
    return {name: options[name] for name in ("dataset", *PartitionOptions.__annotations__)}


def load_label_pools(
    settings: DataSettings, root: Path | None
) -> tuple[Sequence[LabelledPool], str, str, list[str], DatasetInfo]:
    """(pools, title, source, notes, description): real labels, the published class counts, or those of the stand-in."""
    if settings.dataset not in DATASETS:
        found = load_dataset(settings, root).merge_for(settings.skew)
        return found.pools, found.title, "real", list(found.notes), found.info
    data = get_dataset_info(settings.dataset)
    known = build_known_labels(data.name)
    if known and settings.source == "auto" and not store.list_stored_titles(data.name, store.resolve_data_dir(root)):
        notes = ["from published class counts: the images are not here"]
        if settings.skew in ORDER_DEPENDENT_SKEWS:
            notes.append("the order of the images matters to this skew: counts of the real ones differ a little")
        return [ClassCountPool(data.name, *known)], data.title, "class counts", notes, data
    found = load_dataset(settings, root)
    return found.pools, found.title, "standin" if found.standin else "real", list(found.notes), data


def build_client_row(share: ClientIndices, pool: LabelledPool, classes: int) -> ClientRow:
    """A client's counts; validation images only where there are some."""
    row: ClientRow = {
        "name": share.name,
        "train": count_classes(pool.train, share.train, classes).tolist(),
        "val": count_classes(pool.train, share.val, classes).tolist(),
        "test": count_classes(pool.test, share.test, classes).tolist(),
    }
    if not len(share.val):
        del row["val"]
    return row


def run_clients(options: dict[str, Any]) -> None:
    """Share out the labels; print, and draw if asked."""
    settings, plot = resolve_data_settings(**get_partition_options(options)), options["plot"]
    if settings.dataset in DATASETS:
        validate_data_settings(settings)
    if plot is not None:
        check_new_png(plot)
    pools, title, source, notes, data = load_label_pools(settings, options["data_dir"])
    classes, shares = data.classes, assign_samples(settings, pools, data)
    rows = [build_client_row(share, pools[share.pool_index], len(classes)) for share in shares]
    heading = f"{title}: {describe_partition(settings)}"
    if plot is not None:
        write_figure(plot, rows, classes, heading)
    if as_json := options["as_json"]:
        result = {"dataset": settings.dataset, "title": title, "source": source, "skew": settings.skew}
        result |= {name: getattr(settings, name) for name in sorted(SETTINGS_OF_SKEW[settings.skew])} | {
            "seed": settings.seed
        }
        click.echo(json.dumps({**result, "notes": notes, "classes": classes, "clients": rows}, ensure_ascii=False))
    else:
        print_clients(make_console(), heading, notes, rows, classes)
    if plot is not None and not as_json:
        make_console().print(f"Figure: {plot}", soft_wrap=True)


def write_figure(path: Path, rows: list[ClientRow], classes: Sequence[str], heading: str) -> None:
    """The training images as a figure."""
    from fedtrain.report.label_figure import draw_label_figure

    counts = np.array([one["train"] for one in rows], dtype=np.int64)
    write_png(draw_label_figure(counts, [one["name"] for one in rows], classes, heading), path)
