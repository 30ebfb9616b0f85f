"""The store: what goes in comes out, and no damage goes unseen."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from fedtrain.data.datasets import DATASETS, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.storage.domain_file import DomainInfo, StoredImages, read_labels, write_domain_file
from fedtrain.data.storage.store import (
    collect_notes,
    get_domain_path,
    list_stored_titles,
    load_real_pools,
    read_stored_domains,
    resolve_data_dir,
)
from fedtrain.data.storage.verify import verify_dataset

RNG = np.random.default_rng(0)
PARTS: tuple[Split, Split] = ("train", "test")


def make_stored_images(count: int, classes: int = 10, size: int = 32) -> StoredImages:
    return StoredImages(RNG.integers(0, 256, (count, 3, size, size), dtype=np.uint8), np.arange(count) % classes)


def write_domain(
    root: Path, name: str = "cifar10", domain: str = "cifar10", title: str = "CIFAR-10"
) -> dict[Split, StoredImages]:
    size = get_dataset_info(name).image_size
    blocks: dict[Split, StoredImages] = {
        "train": make_stored_images(20, size=size),
        "test": make_stored_images(10, size=size),
    }
    write_domain_file(
        get_domain_path(name, domain, root),
        DomainInfo(name, domain, title, "a.npz sha256 0", "split of its source", "20 + 10"),
        blocks,
    )
    return blocks


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    blocks = write_domain(tmp_path)
    (pool,) = load_real_pools("cifar10", tmp_path)
    assert (pool.domain, pool.title) == ("cifar10", "CIFAR-10")
    order = np.array([7, 0, 7, 3])
    for part in PARTS:
        assert np.array_equal(getattr(pool, part), blocks[part].labels)
        assert np.array_equal(pool.load_inputs(part, order).numpy(), blocks[part].images[order])
    taken = pool.load_inputs("train", order)
    taken.zero_()  # a client's own copy
    assert np.array_equal(pool.load_inputs("train", order).numpy(), blocks["train"].images[order])


def test_domains_come_in_the_catalogues_order(tmp_path: Path) -> None:
    for domain in reversed(DATASETS["digits"].domains):
        write_domain(tmp_path, "digits", domain)
    assert [pool.domain for pool in load_real_pools("digits", tmp_path)] == list(DATASETS["digits"].domains)


def test_missing_domains_are_named_with_the_way_out(tmp_path: Path) -> None:
    write_domain(tmp_path, "digits", "usps", "USPS (subset of 20 + 10)")
    assert list_stored_titles("digits", tmp_path) == {"usps": "USPS (subset of 20 + 10)"}
    with pytest.raises(DataError) as caught:
        load_real_pools("digits", tmp_path)
    said = str(caught.value)
    assert [pool.domain for pool in load_real_pools("digits", tmp_path, ["usps"])] == [
        "usps"
    ]  # nobody asks for the others
    with pytest.raises(DataError, match="Digits lacks mnist;"):
        load_real_pools("digits", tmp_path, ["mnist"])
    assert "mnist, svhn, synthdigits, mnist_m;" in said
    assert "fedco2 data get digits" in said
    assert "fedco2 data add digits PATH" in said


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_no_changed_byte_goes_unseen(tmp_path_factory: pytest.TempPathFactory, where: float, change: int) -> None:
    root = tmp_path_factory.mktemp("store")
    write_domain(root)
    path = get_domain_path("cifar10", "cifar10", root)
    data = bytearray(path.read_bytes())
    at = int(where * len(data))
    assume(data[at] != ord(" "))  # the header is padded with blanks, and another blank there says the same
    data[at] ^= change
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"cifar10\.safetensors: .*fedco2 data add cifar10"):
        [load_real_pools("cifar10", root)[0].load_inputs(part, np.arange(3)) for part in PARTS]
    assert verify_dataset("cifar10", root)["cifar10"]


def test_what_is_said_of_the_data_is_sealed(tmp_path: Path) -> None:
    write_domain(tmp_path, title="CIFAR-10 (subset of 20 + 10)")
    path = get_domain_path("cifar10", "cifar10", tmp_path)
    path.write_bytes(path.read_bytes().replace(b"CIFAR-10 (subset of 20 + 10)", b"CIFAR-10 (as was published!)"))
    with pytest.raises(DataError, match="was altered"):
        list_stored_titles("cifar10", tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 1000, 60_000])
def test_a_cut_off_file_is_refused_at_once(kept: int, tmp_path: Path) -> None:
    write_domain(tmp_path)
    os.truncate(get_domain_path("cifar10", "cifar10", tmp_path), kept)
    for look in (load_real_pools, list_stored_titles):
        with pytest.raises(DataError, match="fedco2 data add cifar10 PATH --domain cifar10 --replace"):
            look("cifar10", tmp_path)


def test_a_domain_under_anothers_name_is_refused(tmp_path: Path) -> None:
    write_domain(tmp_path, "digits", "mnist")
    shutil.copy(get_domain_path("digits", "mnist", tmp_path), get_domain_path("digits", "usps", tmp_path))
    with pytest.raises(DataError, match="it holds mnist of digits"):
        read_stored_domains("digits", tmp_path)


def test_labels_that_no_class_has_are_refused(tmp_path: Path) -> None:
    blocks: dict[Split, StoredImages] = {"train": make_stored_images(22, classes=11), "test": make_stored_images(10)}
    write_domain_file(
        get_domain_path("cifar10", "cifar10", tmp_path), DomainInfo("cifar10", "cifar10", "", "", "", "22 + 10"), blocks
    )
    with pytest.raises(DataError, match=r"not all within 0\.\.9"):
        load_real_pools("cifar10", tmp_path)


def test_other_safetensors_are_refused(tmp_path: Path) -> None:
    path = get_domain_path("cifar10", "cifar10", tmp_path)
    path.parent.mkdir()
    save_file({"train_labels": np.zeros(3, np.int64)}, path)
    with pytest.raises(DataError, match="not in the format"):
        read_labels(path, "train", get_dataset_info("cifar10"))


def test_nothing_is_left_of_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_domain(tmp_path)
    before = get_domain_path("cifar10", "cifar10", tmp_path).read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_domain(tmp_path)
    (left,) = (tmp_path / "cifar10").iterdir()
    assert left.read_bytes() == before


def test_audit_finds_what_loading_lets_pass(tmp_path: Path) -> None:
    write_domain(tmp_path)
    assert verify_dataset("cifar10", tmp_path) == {"cifar10": []}
    blocks: dict[Split, StoredImages] = {"train": make_stored_images(20), "test": make_stored_images(9)}
    write_domain_file(
        get_domain_path("cifar10", "cifar10", tmp_path), DomainInfo("cifar10", "cifar10", "", "", "", "20 + 10"), blocks
    )
    lacking, wrong = verify_dataset("cifar10", tmp_path)["cifar10"]
    assert lacking == "no test image of truck"
    assert "20 + 10" in wrong
    assert "20 + 9" in wrong
    assert "data get cifar100" in verify_dataset("cifar100", tmp_path)["cifar100"][0]


def test_notes_say_what_is_not_the_published_data(tmp_path: Path) -> None:
    write_domain(tmp_path, "digits", "mnist", "MNIST")
    assert collect_notes("digits", tmp_path) == ()
    write_domain(tmp_path, "digits", "synthdigits", "SynthDigits (re-created)")
    (note,) = collect_notes("digits", tmp_path)
    assert note == "SynthDigits (re-created) stands for SynthDigits"


def test_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCO2_DATA", raising=False)
    assert resolve_data_dir() == platformdirs.user_data_path("fedco2", appauthor=False)
    monkeypatch.setenv("FEDCO2_DATA", "~/x")
    assert resolve_data_dir() == Path.home() / "x"
    assert resolve_data_dir(tmp_path / "y") == tmp_path / "y"


def test_the_file_can_be_read_without_us(tmp_path: Path) -> None:
    blocks = write_domain(tmp_path)
    with safe_open(get_domain_path("cifar10", "cifar10", tmp_path), framework="np") as file:
        assert json.loads(json.dumps(file.metadata()))["origin"] == "a.npz sha256 0"
        assert np.array_equal(file.get_tensor("test_images"), blocks["test"].images)
