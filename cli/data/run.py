"""What ``fedco2 data`` does once its options are read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import click

from cli.console import make_console
from cli.data.progress import show_progress
from cli.data.view import DatasetRow, StoredDomainRow, show_datasets, show_stored_data
from fedtrain.config.data import DataSettings
from fedtrain.config.toml import parse_section
from fedtrain.data.datasets import DATASETS
from fedtrain.data.download.dataset import download_dataset
from fedtrain.data.download.sources import LICENCE_TERMS
from fedtrain.data.errors import DataError
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.kept_datasets import (
    check_kept_dataset,
    has_kept_dataset,
    keep_dataset,
    list_kept_datasets,
    load_kept_dataset,
)
from fedtrain.data.importing import ImportedDomain, import_dataset
from fedtrain.data.storage.domain_file import read_domain_info
from fedtrain.data.storage.store import get_domain_path, resolve_data_dir
from fedtrain.data.storage.verify import verify_dataset
from fedtrain.utils.text import format_bytes, format_count


def show_list(given: Path | None, as_json: bool) -> None:
    """One row a data set."""
    root = resolve_data_dir(given)
    rows: list[DatasetRow] = [
        {
            "name": data.name,
            "title": data.title,
            "domains": dict(data.domains),
            "classes": len(data.classes),
            "size": data.image_size,
            "terms": LICENCE_TERMS[data.name],
            "present": [domain for domain in data.domains if get_domain_path(data.name, domain, root).exists()],
        }
        for data in DATASETS.values()
    ]
    kept = [build_kept_row(name, root) for name in list_kept_datasets(root)]
    if as_json:
        click.echo(json.dumps([*rows, *kept], ensure_ascii=False))
        return
    show_datasets(make_console(), rows)
    for row in kept:
        shape = " x ".join(map(str, row["shape"]))
        terms = f"; {row['terms']}" if row["terms"] else ""
        held = f"{len(row['domains'])} clients, {row['classes']} classes"
        click.echo(f"{row['name']}: your own, {held}, inputs of {shape}{terms}")


class KeptRow(TypedDict):
    """A data set of the user's own."""

    name: str
    title: str
    domains: dict[str, str]
    classes: int
    shape: list[int]
    terms: str
    present: list[str]


def build_kept_row(name: str, root: Path) -> KeptRow:
    """Of a data set of the user's own."""
    info = load_kept_dataset(name, root).info
    return {
        "name": name,
        "title": info.title,
        "domains": dict(info.domains),
        "classes": len(info.classes),
        "shape": list(info.input_shape),
        "terms": info.licence,
        "present": list(info.domains),
    }


def show_status(given: Path | None, as_json: bool) -> None:
    """A line for each data set; as JSON each domain."""
    root = resolve_data_dir(given)
    chosen_by = (
        "--data-dir" if given else "$FEDCO2_DATA" if os.environ.get("FEDCO2_DATA") else "the user's folder for data"
    )
    rows = [_build_status_row(name, domain, root) for name, data in DATASETS.items() for domain in data.domains]
    if as_json:
        click.echo(json.dumps({"folder": str(root), "from": chosen_by, "domains": rows}, ensure_ascii=False))
        return
    click.echo(f"{root} ({chosen_by})")
    show_stored_data(make_console(), rows)
    for name in list_kept_datasets(root):
        size = sum(file.stat().st_size for file in (root / name).iterdir())
        click.echo(f"{name}: your own, {format_bytes(size)}; to train on it: fedco2 train --dataset {name}")


def _build_status_row(name: str, domain: str, root: Path) -> StoredDomainRow:
    path = get_domain_path(name, domain, root)
    row: StoredDomainRow = {"dataset": name, "domain": domain, "state": "absent", "bytes": 0}
    if path.exists():
        row["bytes"] = path.stat().st_size
        try:
            info = read_domain_info(path)
            row["state"], row["title"], row["origin"] = "present", info.title, info.origin
            row["split"], row["counts"] = info.split, info.counts
        except DataError as error:
            row["state"], row["problem"] = "broken", str(error)
    return row


def run_get(name: str, domain: str | None, replace: bool, given: Path | None) -> None:
    """Download and import."""
    with show_progress() as progress:
        added = download_dataset(
            name, resolve_data_dir(given), domain, replace, progress, lambda line: click.echo(line, err=True)
        )
    _print_imported(added)
    if not added:
        click.echo(f"{domain or name} is there already; see fedco2 data status, or fetch it again with --replace")


def run_add(name: str, paths: Sequence[Path], domain: str | None, replace: bool, given: Path | None) -> None:
    """Import."""
    with show_progress() as progress:
        added = import_dataset(name, paths, resolve_data_dir(given), domain, replace, progress)
    _print_imported(added)


def run_keep(name: str, path: Path, reading: dict[str, Any], replace_old: bool, given: Path | None) -> None:
    """Find what is there, and keep it."""
    licence = reading.pop("licence", "")
    settings = parse_section(DataSettings, {"dataset": str(path), **reading}, "data")
    with show_progress() as progress:
        found = find_dataset(path.absolute(), settings, progress)
        found = replace(found, info=replace(found.info, licence=licence))
        target = keep_dataset(found, name, resolve_data_dir(given), replace_old, progress)
    train, test = (sum(len(getattr(pool, part)) for pool in found.pools) for part in ("train", "test"))
    clients, classes = format_count(len(found.pools), "client"), len(found.info.classes)
    click.echo(f"added {name} to {target}: {clients}, {classes} classes, {train} + {test} samples: {found.split}")
    for note in found.notes:
        click.echo(f"note: {note}")
    click.echo(f"next: fedco2 train --dataset {name}")


def _print_imported(added: Sequence[ImportedDomain]) -> None:
    for one in added:
        click.echo(f"added {one.info.title}, {one.info.counts} images: {one.info.split}")


def run_check(name: str, given: Path | None, as_json: bool) -> bool:
    """Verify; whether all is well."""
    root = resolve_data_dir(given)
    with show_progress(quiet=as_json) as progress:
        if has_kept_dataset(name, root):
            problems = dict(check_kept_dataset(name, root))
        else:
            problems = verify_dataset(name, root, progress)
    sound = not any(problems.values())
    if as_json:
        click.echo(json.dumps({"dataset": name, "folder": str(root), "ok": sound, "problems": problems}))
    else:
        for domain, found in problems.items():
            click.echo(f"{domain:<12} {'; '.join(found) or 'ok'}")
    return sound
