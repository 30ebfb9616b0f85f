"""Data sets as training sees them, and the five of the paper: domains, classes, normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedtrain.data.readers.class_folders import DOMAINNET_CLASSES, OFFICE_CLASSES
from fedtrain.data.scaling import Scaling
from fedtrain.data.superclasses import CIFAR100_CLASSES, find_superclasses
from fedtrain.data.table_schema import TableSchema
from theory.errors import InputError
from theory.text import suggest_name


@dataclass(frozen=True)
class DatasetInfo:
    """Names, classes and inputs; the paper's five are written down below, others are found in the user's files."""

    name: str
    title: str
    domains: Mapping[str, str]
    """The natural clients: the name of each in commands and files, with a title for people."""
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]
    """Of one sample: (channels, height, width) of images, or so many numbers."""
    mean: tuple[float, ...] = (0.0,)
    """Of pixels between 0 and 1, by channel or for all; inputs that are numbers already have a scaling instead."""
    std: tuple[float, ...] = (1.0,)
    test_sizes: Mapping[str, int] = field(default_factory=dict)
    """Test images of each domain, where a split of our own has to be made."""
    input_type: Literal["uint8", "float32"] = "uint8"
    """Pixels, or numbers."""
    scaling: Scaling | None = None
    """Mean and standard deviation of the numbers over everybody's training part."""
    table: TableSchema | None = None
    """The columns, if inputs are rows of a table."""
    licence: str = ""
    superclasses: tuple[int, ...] = ()
    """The coarse class of each class, if classes have such: Pachinko draws one first."""

    @property
    def image_size(self) -> int:
        """Pixels a side of images that are squares."""
        return self.input_shape[-1]

    @property
    def is_from_paper(self) -> bool:
        """Whether it is one of the five that are written down here."""
        return DATASETS.get(self.name) is self


DIGIT_CLASSES = tuple(str(digit) for digit in range(10))
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

DATASETS: dict[str, DatasetInfo] = {
    d.name: d
    for d in (
        DatasetInfo(
            "digits",
            "Digits",
            {
                "mnist": "MNIST",
                "svhn": "SVHN",
                "usps": "USPS",
                "synthdigits": "SynthDigits",
                "mnist_m": "MNIST-M",
            },
            DIGIT_CLASSES,
            (3, 28, 28),
            (0.5,),
            (0.5,),
        ),
        DatasetInfo(
            "office",
            "Office-Caltech10",
            {"amazon": "Amazon", "caltech": "Caltech", "dslr": "DSLR", "webcam": "WebCam"},
            OFFICE_CLASSES,
            (3, 256, 256),
            test_sizes={"amazon": 192, "caltech": 225, "dslr": 32, "webcam": 59},
        ),
        DatasetInfo(
            "domainnet",
            "DomainNet",
            {
                "clipart": "Clipart",
                "infograph": "Infograph",
                "painting": "Painting",
                "quickdraw": "Quickdraw",
                "real": "Real",
                "sketch": "Sketch",
            },
            DOMAINNET_CLASSES,
            (3, 256, 256),
            test_sizes={
                "clipart": 526,
                "infograph": 657,
                "painting": 619,
                "quickdraw": 1000,
                "real": 1217,
                "sketch": 554,
            },
        ),
        DatasetInfo(
            "cifar10",
            "CIFAR-10",
            {"cifar10": "CIFAR-10"},
            CIFAR10_CLASSES,
            (3, 32, 32),
            (0.4914, 0.4822, 0.4465),
            (0.2023, 0.1994, 0.2010),
        ),
        DatasetInfo(
            "cifar100",
            "CIFAR-100",
            {"cifar100": "CIFAR-100"},
            CIFAR100_CLASSES,
            (3, 32, 32),
            (0.5071, 0.4865, 0.4409),
            (0.2673, 0.2564, 0.2762),
            superclasses=find_superclasses(CIFAR100_CLASSES),
        ),
    )
}


def get_dataset_info(name: str) -> DatasetInfo:
    """The data set of this name."""
    if name not in DATASETS:
        raise InputError(f"unknown data set {name!r}; {suggest_name(name, DATASETS)}")
    return DATASETS[name]
