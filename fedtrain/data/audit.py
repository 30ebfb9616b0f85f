"""Look at every byte of what the store holds of a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtrain.data import domain_file
from fedtrain.data.catalogue import Dataset, dataset
from fedtrain.data.errors import DataError
from fedtrain.data.importing.progress import Progress, quiet
from fedtrain.data.store import place


def audit(name: str, root: Path, progress: Progress = quiet) -> dict[str, list[str]]:
    """What is wrong with each domain: checksums, sizes, labels, classes that nobody has; or that it is not there."""
    data = dataset(name)
    problems = {}
    for number, domain in enumerate(data.domains):
        progress(f"checking {domain}", number, len(data.domains))
        path = place(name, domain, root)
        problems[domain] = _problems(path, data) if path.exists() else [f"not there; fetch it: fedco2 data get {name}"]
    return problems


def _problems(path: Path, data: Dataset) -> list[str]:
    found, sizes = [], []
    try:
        about = domain_file.about(path)
        for part in domain_file.PARTS:
            labels = domain_file.labels(path, part, data)
            sizes.append(len(domain_file.images(path, part, data)))
            counts = np.bincount(labels, minlength=len(data.classes))
            if lacking := [name for name, count in zip(data.classes, counts, strict=True) if not count]:
                found.append(f"no {part} image of {', '.join(lacking)}")
    except DataError as error:
        return [*found, str(error)]
    if about.counts != " + ".join(map(str, sizes)):
        found.append(f"it says that it holds {about.counts} images but holds {' + '.join(map(str, sizes))}")
    return found
