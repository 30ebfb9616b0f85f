"""What was recognised among a user's files: a domain, where it lies, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedtrain.data.progress import Progress
from fedtrain.data.readers.labelled_images import LabelledImages, Split
from fedtrain.data.storage.domain_file import SPLITS

SOURCE_ORDER = "split of its source, in its order"
SHUFFLED_ORDER = "split of its source, shuffled by fedco2 so that any first part has the classes in proportion (seed 0)"


@dataclass(frozen=True, eq=False)
class RawDomain:
    """Images as their source has them; without a test part the split will be ours."""

    train: LabelledImages
    test: LabelledImages | None
    split: str
    keep_order: bool = False
    """The order of the training list is the source's and means something."""


@dataclass(frozen=True, eq=False)
class DomainCandidate:
    """One domain. ``read`` is where all the work is."""

    domain: str | None
    """None where no name tells."""
    path: Path
    files: tuple[Path, ...]
    """What to hash as the origin; none for folders of many images."""
    read: Callable[[Progress], RawDomain]


def build_split_candidate(
    domain: str | None, path: Path, files: tuple[Path, ...], read: Callable[[Split], LabelledImages], ordered: str = ""
) -> DomainCandidate:
    """A source that has a training and a test part of its own; ``ordered`` says so if its order is to be kept."""

    def draft(progress: Progress) -> RawDomain:
        for step, part in enumerate(SPLITS):
            progress(f"reading {path.name}", step, len(SPLITS))
            images[part] = read(part)
        return RawDomain(images["train"], images["test"], ordered or SHUFFLED_ORDER, keep_order=bool(ordered))

    images: dict[Split, LabelledImages] = {}
    return DomainCandidate(domain, path, files, draft)
