"""Verify what the store holds of a data set, byte by byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtrain.data.datasets import DatasetInfo, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.progress import Progress, ignore_progress
from fedtrain.data.storage import domain_file
from fedtrain.data.storage.store import get_domain_path


def verify_dataset(name: str, root: Path, progress: Progress = ignore_progress) -> dict[str, list[str]]:
    """What is wrong with each domain: checksums, sizes, labels, classes that nobody has; or that it is not there."""
    data = get_dataset_info(name)
    problems = {}
    for number, domain in enumerate(data.domains):
        progress(f"checking {domain}", number, len(data.domains))
        path = get_domain_path(name, domain, root)
        problems[domain] = (
            _find_problems(path, data) if path.exists() else [f"not there; fetch it: fedco2 data get {name}"]
        )
    return problems


def _find_problems(path: Path, data: DatasetInfo) -> list[str]:
    found, sizes = [], []
    try:
        about = domain_file.read_domain_info(path)
        for part in domain_file.SPLITS:
            labels = domain_file.read_labels(path, part, data)
            sizes.append(len(domain_file.read_images(path, part, data)))
            counts = np.bincount(labels, minlength=len(data.classes))
            if lacking := [name for name, count in zip(data.classes, counts, strict=True) if not count]:
                found.append(f"no {part} image of {', '.join(lacking)}")
    except DataError as error:
        return [*found, str(error)]
    if about.counts != " + ".join(map(str, sizes)):
        found.append(f"it says that it holds {about.counts} images but holds {' + '.join(map(str, sizes))}")
    return found
