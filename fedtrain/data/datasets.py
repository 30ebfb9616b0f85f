"""The five data sets of the paper: what they are called, what they hold, how their pixels become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedtrain.data.readers.class_folders import DOMAINNET_CLASSES, OFFICE_CLASSES
from theory.errors import InputError
from theory.text import suggest_name


@dataclass(frozen=True)
class DatasetInfo:
    """Domains are in the paper's order, by the name used in commands and files, with a title for people."""

    name: str
    title: str
    domains: Mapping[str, str]
    classes: tuple[str, ...]
    image_size: int
    """Images are squares of so many pixels, three channels."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    test_sizes: Mapping[str, int] = field(default_factory=dict)
    """Test images of each domain, where a split of our own has to be made."""


DIGIT_CLASSES = tuple(str(digit) for digit in range(10))
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_CLASSES = tuple(f"class {number}" for number in range(100))

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
            28,
            (0.5,),
            (0.5,),
        ),
        DatasetInfo(
            "office",
            "Office-Caltech10",
            {"amazon": "Amazon", "caltech": "Caltech", "dslr": "DSLR", "webcam": "WebCam"},
            OFFICE_CLASSES,
            256,
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
            256,
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
            32,
            (0.4914, 0.4822, 0.4465),
            (0.2023, 0.1994, 0.2010),
        ),
        DatasetInfo(
            "cifar100",
            "CIFAR-100",
            {"cifar100": "CIFAR-100"},
            CIFAR100_CLASSES,
            32,
            (0.5071, 0.4865, 0.4409),
            (0.2673, 0.2564, 0.2762),
        ),
    )
}


def get_dataset_info(name: str) -> DatasetInfo:
    """The data set of this name."""
    if name not in DATASETS:
        raise InputError(f"unknown data set {name!r}; {suggest_name(name, DATASETS)}")
    return DATASETS[name]
