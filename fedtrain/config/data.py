"""Which data, and how they are spread over clients: the section ``[data]`` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from theory.errors import InputError

MAX_IMAGE_SIZE = 4096
DataSource = Literal["auto", "real", "standin"]
Skew = Literal["domain", "label+feature", "iid", "pathological", "dirichlet", "pachinko"]

SETTINGS_OF_SKEW: dict[str, set[str]] = {
    "domain": {"percent", "train_size"},
    "label+feature": {"alpha", "divide"},
    "iid": set(),
    "pathological": {"classes_per_client"},
    "dirichlet": {"alpha", "least"},
    "pachinko": {"alpha", "beta"},
}
"""The settings that mean something to a skew."""


@dataclass(frozen=True)
class DataSettings:
    """The defaults are those of no data set: each has a preset."""

    dataset: str = "digits"
    """digits, office, domainnet, cifar10, cifar100, the name of one that was added, the path of your own, or a
    reference to a function that gives one."""
    source: DataSource = "auto"
    """Real data if they are there, else the stand-in; only real ones; only the stand-in."""
    skew: Skew = "domain"
    """How the clients' data differ."""
    seed: int = 0
    """Of the partition and the subsets; all other chance is the run's."""
    clients: int | None = None
    """How many; with a domain for each client there are as many as domains."""
    alpha: float = 0.3
    """Dirichlet concentration; smaller is more skewed."""
    beta: float = 10.0
    """Pachinko: concentration of the fine classes in a coarse one."""
    classes_per_client: int = 2
    """Pathological: how many classes a client holds."""
    divide: int = 3
    """Label + feature: in how many parts a domain is split, of which its client keeps one."""
    least: int = 10
    """Dirichlet: the fewest training and test samples that a client may get."""
    least_per_class: int = 2
    """Label + feature: the fewest samples of a class that a part may get."""
    percent: float | None = None
    """Training ratio: the share of a domain's training pool (Digits: of USPS's size) that is trained on."""
    train_size: int | None = None
    """Training samples of a domain: the first of its list."""
    val_size: int = 0
    """Validation samples of a domain: the last of its list."""
    validation_share: float = 0.0
    """The share of each client's training samples that is not trained on but validated on, of every class alike."""
    noise: float = 0.0
    """σ_M: client i of N sees Gaussian noise of σ_M · i / (N - 1)."""
    noise_unit: Literal["pixel", "normalised"] = "pixel"
    """Noise in units of 0..255, or (published code) of normalised inputs, then clamped to 0..255."""
    augment: bool = False
    """Flip and turn training images."""
    augment_val: bool = False
    """Validate on augmented images (published code)."""
    labels: Literal["aligned", "misaligned"] = "aligned"
    """misaligned: images without their own labels, as published for label + feature skew on Office and DomainNet."""
    thin_test: Literal["all", "published"] = "all"
    """Label + feature: test sets follow the training classes; ``published`` leaves DSLR's and WebCam's whole."""
    hold_out: str | None = None
    """A client that takes no part in training, and is reported on as one that was never seen."""
    sha256: str = ""
    """Of the files at that path, when the run was planned; other files are refused."""
    client_column: str | None = None
    """Table: the column that says whose a row is."""
    target: str | None = None
    """Table: the column to be predicted."""
    split_column: str | None = None
    """Table: the column that says train or test; without it the split is fedco2's own."""
    categories: tuple[str, ...] = ()
    """Table: columns that are categories although they hold numbers."""
    ignore: tuple[str, ...] = ()
    """Table: columns that are left out."""
    missing: Literal["mean", "drop", "refuse"] = "mean"
    """Table: a missing number counts as the mean and a missing category as unknown; its row is dropped; an error."""
    standardise: Literal["auto", "client", "pooled", "none"] = "auto"
    """Numbers less their mean over their standard deviation, of the client's training part or of everybody's; auto:
    the client's for tables, none for arrays."""
    image_size: int | None = None
    """Found images: resized to squares of so many pixels; without it the size that most have."""
    test_share: float = 0.2
    """Found data without a split of their own: the share of a client's samples to test on."""
    split_seed: int = 0
    """Of that split."""

    def __post_init__(self) -> None:
        if not 0 < self.test_share < 1:
            raise InputError(f"data.test_share is {self.test_share}; it is a share: choose it between 0 and 1")
        if not 0 <= self.validation_share < 1:
            raise InputError(f"data.validation_share is {self.validation_share}; it is a share: choose it in [0, 1)")
        if self.validation_share and self.val_size:
            raise InputError(
                f"data.validation_share is {self.validation_share} and data.val_size {self.val_size}; both make "
                "validation data: set one of them to 0"
            )
        if not 0 <= self.split_seed < 2**32:
            raise InputError(f"data.split_seed is {self.split_seed}; choose it from 0 to {2**32 - 1}")
        if self.image_size is not None and not 1 <= self.image_size <= MAX_IMAGE_SIZE:
            raise InputError(f"data.image_size is {self.image_size}; choose it from 1 to {MAX_IMAGE_SIZE} pixels")

    @property
    def short_name(self) -> str:
        """Of the data set, without the folders that it lies in."""
        return Path(self.dataset).name.split(".")[0] or "data"

    def with_resolved_source(self, *, standin: bool) -> DataSettings:
        """The same with its source said outright: what ``auto`` came to."""
        return replace(self, source="standin" if standin else "real")
