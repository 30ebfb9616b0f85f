"""What imported data are called: the published name only if they can be the published data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedtrain.data.datasets import DatasetInfo
from theory.errors import InputError
from theory.text import suggest_name

PUBLISHED_SIZES: dict[str, tuple[tuple[int, int], ...]] = {
    "mnist": ((60_000, 10_000), (7_438, 14_000)),
    "svhn": ((73_257, 26_032), (7_438, 19_858)),
    "usps": ((7_291, 2_007), (7_438, 1_860)),
    "synthdigits": ((479_400, 9_553), (7_438, 97_791)),
    "mnist_m": ((60_000, 10_000), (59_001, 9_001), (7_438, 14_000)),
    "cifar10": ((50_000, 10_000),),
    "cifar100": ((50_000, 10_000),),
}
"""Images to train on and to test with, as published by the owners, and by FedBN in ten parts."""
UNSPLIT_SIZES = {"amazon": 958, "caltech": 1_123, "dslr": 157, "webcam": 295}
"""Images of domains that have no parts of their own."""

DIGITS_PATTERNS = {
    "mnist_m": r"mnist_?m",
    "synthdigits": r"synth(etic)?(_?digits?)?|syn(_?(numbers?|digits?))?",
    "svhn": r"svhn",
    "usps": r"usps",
    "mnist": r"mnist",
}
LOOKALIKE_PATTERN = r"(?<![a-z])(fashion|[a-z]mnist|not_?mnist)"
"""Sets in MNIST's clothes."""


def format_title(data: DatasetInfo, domain: str, source: str, train: int, test: int) -> str:
    """The domain's title, and in brackets what sets these data apart from the published ones."""
    name = data.domains[domain]
    if re.search(r"re-?_?creat", source.lower()):
        return f"{name} (re-created)"
    whole = (
        train + test == UNSPLIT_SIZES[domain]
        if domain in UNSPLIT_SIZES
        else (train, test) in PUBLISHED_SIZES.get(domain, ((train, test),))
    )
    return name if whole else f"{name} (subset of {train:,} + {test:,})"


def guess_domain(data: DatasetInfo, names: Sequence[str]) -> str | None:
    """The domain that the nearest telling name stands for; ``names`` are a file's own and its folders', nearest first.

    None where no name tells, or where one could mean two.
    """
    if len(data.domains) == 1:
        return next(iter(data.domains))
    for name in names:
        text = re.sub(r"[^a-z0-9]+", "_", name.lower())
        if re.search(LOOKALIKE_PATTERN, text):
            return None
        found = set()
        for domain in data.domains:
            pattern = rf"(?<![a-z])({DIGITS_PATTERNS.get(domain, domain)})(?![a-z])"
            text_left = re.sub(DIGITS_PATTERNS["mnist_m"] + r"(?![a-z])", "", text) if domain == "mnist" else text
            if re.search(pattern, text_left):
                found.add(domain)
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def validate_domain(data: DatasetInfo, given: str) -> str:
    """The domain that a user names."""
    if given not in data.domains:
        hint = suggest_name(given, data.domains)
        raise InputError(f"{data.title} has no domain {given!r}; {hint}", options=("domain",))
    return given


def list_path_names(path: Path, top: Path) -> list[str]:
    """The names that may tell a domain: the path's own, then its folders' up to ``top``."""
    if path == top:
        return [path.name]
    return [path.name, *(parent.name for parent in path.parents if parent == top or top in parent.parents)]
