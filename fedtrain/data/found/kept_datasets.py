"""Data sets of the user's own that are kept in the data folder: a file for each client, and what they are."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedtrain.data.datasets import DATASETS, DatasetInfo
from fedtrain.data.errors import DataError
from fedtrain.data.found.names import check_client_names, check_name
from fedtrain.data.found.pools import FoundDataset
from fedtrain.data.progress import Progress, ignore_progress
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.readers.safe_read import summarise_error
from fedtrain.data.scaling import Scaling
from fedtrain.data.storage import domain_file
from fedtrain.data.storage.store import DOMAIN_FILE_SUFFIX, build_stored_pool
from fedtrain.data.table_schema import TableSchema
from theory.errors import InputError

DATASET_FILE = "dataset.toml"
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
MAX_DATASET_FILE = 2**26


def has_kept_dataset(name: str, root: Path) -> bool:
    """Whether a data set of this name was added."""
    return NAME_PATTERN.fullmatch(name) is not None and (root / name / DATASET_FILE).is_file()


def list_kept_datasets(root: Path) -> list[str]:
    """Names of all that were added."""
    return sorted(
        place.parent.name for place in root.glob(f"*/{DATASET_FILE}") if has_kept_dataset(place.parent.name, root)
    )


def keep_dataset(
    found: FoundDataset, name: str, root: Path, replace_old: bool = False, progress: Progress = ignore_progress
) -> Path:
    """Write it into the data folder, all of it or nothing; a client at a time is in memory."""
    if not NAME_PATTERN.fullmatch(name):
        raise InputError(f"a data set cannot be called {name!r}; use letters, digits, - and _, at most 40")
    if name in DATASETS:
        raise InputError(f"{name} is one of the paper's data sets; choose another name")
    target = root / name
    if target.exists() and not (replace_old and has_kept_dataset(name, root)):
        raise InputError(f"{target}: is already there; choose another name, or have it replaced", options=("replace",))
    root.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=".importing-", dir=root))
    try:
        for number, pool in enumerate(found.pools):
            progress(f"storing {pool.domain}", number, len(found.pools))
            blocks: dict[Split, domain_file.StoredImages] = {}
            for part in domain_file.SPLITS:
                labels = pool.train if part == "train" else pool.test
                inputs = pool.load_inputs(part, np.arange(len(labels), dtype=np.int64))
                blocks[part] = domain_file.StoredImages(np.ascontiguousarray(inputs.numpy()), labels)
            counts = f"{len(pool.train)} + {len(pool.test)}"
            about = domain_file.DomainInfo(name, pool.domain, pool.title, f"sha256 {found.sha256}", found.split, counts)
            domain_file.write_domain_file(workshop / name / f"{pool.domain}{DOMAIN_FILE_SUFFIX}", about, blocks)
        (workshop / name / DATASET_FILE).write_text(tomli_w.dumps(_describe(found)), encoding="utf-8")
        if target.exists():
            os.rename(target, workshop / "old")
        os.rename(workshop / name, target)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return target


def load_kept_dataset(name: str, root: Path) -> FoundDataset:
    """What was added under this name. Labels are checked now, inputs when they are taken."""
    path = root / name / DATASET_FILE
    try:
        content = path.read_bytes()
        if len(content) > MAX_DATASET_FILE:
            raise ValueError("it is too large")
        table = tomllib.loads(content.decode("utf-8"))
        info = _parse(name, table)
        split, notes = str(table["split"]), tuple(map(str, table["notes"]))
    except DataError:
        raise
    except Exception as error:  # a file that was altered by hand may hold anything
        way = f"add it again: fedco2 data add {name} PATH --replace"
        raise DataError(f"{path}: cannot be used: {summarise_error(error)}; {way}") from error
    check_client_names(path, list(info.domains))
    places = [root / name / f"{client}{DOMAIN_FILE_SUFFIX}" for client in info.domains]
    if missing := next((place for place in places if not place.is_file()), None):
        raise DataError(
            f"{missing}: the data of a client are missing; add it again: fedco2 data add {name} PATH --replace"
        )
    pools = [build_stored_pool(info, domain_file.read_domain_info(place), place) for place in places]
    return FoundDataset(info, pools, split, notes, hashlib.sha256(content).hexdigest())


def check_kept_dataset(name: str, root: Path) -> Iterator[tuple[str, list[str]]]:
    """Client by client what is wrong, after a look at every byte."""
    found = load_kept_dataset(name, root)
    for pool in found.pools:
        problems = []
        try:
            for part in domain_file.SPLITS:
                labels = pool.train if part == "train" else pool.test
                pool.load_inputs(part, np.arange(len(labels), dtype=np.int64))
        except DataError as error:
            problems = [str(error)]
        yield pool.domain, problems


def _describe(found: FoundDataset) -> dict[str, Any]:
    """As TOML holds it."""
    info = found.info
    table: dict[str, Any] = {
        "title": info.title,
        "clients": list(info.domains),
        "classes": list(info.classes),
        "split": found.split,
        "licence": info.licence,
        "notes": list(found.notes),
        "source_sha256": found.sha256,
        "input": {
            "shape": list(info.input_shape),
            "type": info.input_type,
            "mean": list(info.mean),
            "std": list(info.std),
        },
    }
    if info.superclasses:
        table["superclasses"] = list(info.superclasses)
    if info.scaling is not None:
        table["scaling"] = info.scaling.to_table()
    if info.table is not None:
        table["table"] = info.table.to_table()
    return table


def _parse(name: str, table: dict[str, Any]) -> DatasetInfo:
    given = table["input"]
    shape = tuple(int(side) for side in given["shape"])
    kind = given["type"]
    if not shape or min(shape) < 1 or kind not in ("uint8", "float32"):
        raise ValueError("its inputs are of no known shape and type")
    for one in table["classes"]:
        check_name(name, "class", one)
    plain = DatasetInfo(
        name, str(table["title"]), {one: one for one in table["clients"]}, tuple(table["classes"]), shape
    )
    return replace(
        plain,
        mean=tuple(map(float, given["mean"])),
        std=tuple(map(float, given["std"])),
        input_type=kind,
        scaling=Scaling.from_table(table["scaling"]) if "scaling" in table else None,
        table=TableSchema.from_table(table["table"]) if "table" in table else None,
        licence=str(table["licence"]),
        superclasses=_parse_superclasses(table),
    )


def _parse_superclasses(table: dict[str, Any]) -> tuple[int, ...]:
    coarse = tuple(int(one) for one in table.get("superclasses", ()))
    if coarse and (len(coarse) != len(table["classes"]) or min(coarse) < 0):
        raise ValueError("its superclasses are not one for each class")
    return coarse
