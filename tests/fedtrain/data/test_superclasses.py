"""Classes above classes: CIFAR-100's by name, or those of a user's own arrays; Pachinko works on both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtrain
from fedtrain.config.data import DataSettings
from fedtrain.data.build import build_federation
from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.kept_datasets import keep_dataset, load_kept_dataset
from fedtrain.data.partition import CIFAR100_COARSE
from fedtrain.data.superclasses import CIFAR100_CLASSES, find_superclasses

PACHINKO: dict[str, Any] = {"skew": "pachinko", "clients": 3, "beta": 1.0}


def write_arrays(path: Path, **more: Any) -> Path:
    y = np.tile(np.arange(6), 20)
    X = np.random.RandomState(0).randn(len(y), 3)
    np.savez(path, X=X, y=y, superclasses=[0, 0, 1, 1, 2, 2], **more)
    return path


def test_the_published_names_and_superclasses_belong_together() -> None:
    assert get_dataset_info("cifar100").classes == CIFAR100_CLASSES
    assert list(CIFAR100_CLASSES) == sorted(set(CIFAR100_CLASSES))
    of = dict(zip(CIFAR100_CLASSES, CIFAR100_COARSE.tolist(), strict=True))
    for family in (
        "beaver dolphin otter seal whale",
        "orchid poppy rose sunflower tulip",
        "bicycle bus motorcycle pickup_truck train",
        "maple_tree oak_tree palm_tree pine_tree willow_tree",
        "baby boy girl man woman",
    ):
        assert len({of[name] for name in family.split()}) == 1, family
    assert find_superclasses(CIFAR100_CLASSES[::-1]) == tuple(CIFAR100_COARSE[::-1].tolist())
    assert find_superclasses(CIFAR100_CLASSES[1:]) == find_superclasses(("cat", "dog")) == ()


def test_arrays_of_cifar100_know_its_coarse_classes(tmp_path: Path) -> None:
    y = np.repeat(np.arange(100), 3)
    np.savez(tmp_path / "a.npz", X=np.random.RandomState(0).randn(300, 2), y=y, classes=CIFAR100_CLASSES)
    assert find_dataset(tmp_path / "a.npz", DataSettings()).info.superclasses == tuple(CIFAR100_COARSE.tolist())
    data = build_federation(DataSettings(dataset=str(tmp_path / "a.npz"), **PACHINKO))
    assert data.classes == CIFAR100_CLASSES
    assert len(data.clients) == 3


def test_pachinko_takes_superclasses_of_ones_own(tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "a.npz")
    data = build_federation(DataSettings(dataset=str(path), alpha=0.05, **PACHINKO))
    held = [np.bincount(one.train.labels.numpy() // 2, minlength=3).max() / len(one.train) for one in data.clients]
    assert max(held) > 0.8  # so small an alpha gives nearly one coarse class to a client
    assert sum(len(one.train) + len(one.test) for one in data.clients) == 120
    keep_dataset(find_dataset(path, DataSettings()), "mine", tmp_path / "data")
    assert load_kept_dataset("mine", tmp_path / "data").info.superclasses == (0, 0, 1, 1, 2, 2)
    plain = tmp_path / "b.npz"
    np.savez(plain, X=np.random.RandomState(0).randn(40, 3), y=np.tile([0, 1], 20))
    with pytest.raises(fedtrain.InputError, match="without coarse classes; choose iid, pathological or dirichlet"):
        build_federation(DataSettings(dataset=str(plain), **PACHINKO))
    with pytest.raises(fedtrain.InputError, match=r"superclasses has shape \(6,\), and there are 7 classes"):
        find_dataset(write_arrays(tmp_path / "c.npz", classes=[*"abcdefg"]), DataSettings())


@pytest.mark.parametrize(
    "names",
    [("x_train", "y_train", "x_test", "y_test"), ("train_images", "train_labels", "test_images", "test_labels")],
)
def test_arrays_in_two_parts_keep_their_split(tmp_path: Path, names: tuple[str, ...]) -> None:
    order = np.random.RandomState(0)
    x, x_test = (order.randint(0, 255, (n, 6, 6)).astype(np.uint8) for n in (20, 8))
    y, y_test = np.tile([0, 1], 10)[:, None], np.tile([0, 1], 4)[:, None]
    np.savez(tmp_path / "a.npz", **dict(zip(names, (x, y, x_test, y_test), strict=True)))
    (client,) = build_federation(DataSettings(dataset=str(tmp_path / "a.npz"), skew="iid", clients=1)).clients
    assert (len(client.train), len(client.test)) == (20, 8)
    assert {one.numpy().tobytes() for one in client.test.inputs} == {one.tobytes() for one in x_test}
    np.savez(tmp_path / "a.npz", **dict(zip(names, (x, y, x_test[:, 1:], y_test), strict=True)))
    with pytest.raises(fedtrain.InputError, match="give both samples of one kind"):
        find_dataset(tmp_path / "a.npz", DataSettings())
