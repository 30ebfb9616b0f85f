"""Importing: every layout is recognised, split cleanly and named honestly; what is unclear is asked about."""

import bz2
import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from fedtrain.data.datasets import DATASETS, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.importing import import_dataset
from fedtrain.data.importing.naming import format_title, guess_domain
from fedtrain.data.importing.train_test_split import interleave_classes, split_train_test
from fedtrain.data.storage.store import collect_notes, list_stored_titles, load_real_pools, read_stored_domains
from theory.errors import InputError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (20, 16, 16), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(20) % 10
DIGITS, OFFICE = get_dataset_info("digits"), get_dataset_info("office")
Write = Callable[[Path], Path]


def write_npz(path: Path, images: NDArray[np.uint8] = COLOUR) -> Path:
    np.savez(path, x_train=images, y_train=LABELS, x_test=images[:10], y_test=LABELS[:10])
    return path


def write_picture(path: Path, seed: int, size: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)).save(path)


def write_pickle(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))


def write_zip(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder))
    return path


def write_office(folder: Path, each: int = 2, twins: dict[str, str] | None = None) -> Path:
    """``each`` images of every class and domain."""
    for d, domain in enumerate(OFFICE.domains):
        for c, name in enumerate(OFFICE.classes):
            for i in range(each):
                write_picture(folder / domain / name / f"{i:03}.png", 1000 * d + each * c + i)
    for copy, original in (twins or {}).items():
        (folder / copy).write_bytes((folder / original).read_bytes())
    return folder


def write_fedbn_digits(folder: Path) -> Path:
    for name in ("MNIST", "MNIST_M"):
        write_pickle(folder / "data" / name / "test.pkl", (COLOUR, LABELS))
        for i in range(10):
            write_pickle(folder / "data" / name / "partitions" / f"train_part{i}.pkl", (COLOUR[i : i + 2], [9, i]))
    return folder


def write_idx(path: Path, array: NDArray[Any], pack: bool) -> None:
    data = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    path.with_name(path.name + ".gz" * pack).write_bytes(gzip.compress(data) if pack else data)


def write_mnist(folder: Path, pack: bool = True) -> Path:
    for part in ("train", "t10k"):
        write_idx(folder / f"{part}-images-idx3-ubyte", GREY, pack)
        write_idx(folder / f"{part}-labels-idx1-ubyte", LABELS, pack)
    return folder


def write_usps(folder: Path) -> Path:
    lines = [
        f"{y + 1} " + " ".join(f"{i}:{v}" for i, v in enumerate(x.ravel() / 128 - 1, 1))
        for x, y in zip(GREY, LABELS, strict=True)
    ]
    for name in ("usps.bz2", "usps.t.bz2"):
        (folder / name).write_bytes(bz2.compress("\n".join(lines).encode()))
    return folder / "usps.t.bz2"


def write_mat(folder: Path, prefix: str = "") -> Path:
    for part in ("train", "test"):
        savemat(folder / f"{prefix}{part}_32x32.mat", {"X": COLOUR.transpose(1, 2, 3, 0), "y": LABELS[:, None] + 1})
    return folder / f"{prefix}train_32x32.mat"


def write_class_folders(folder: Path) -> Path:
    for part in ("train", "test"):
        for i in range(20):
            write_picture(folder / "mnist_m" / part / str(i % 10) / f"{i}.png", i)
    return folder


@pytest.mark.parametrize(
    ("make", "domains"),
    [
        (lambda folder: write_npz(folder / "svhn_28.npz"), ["svhn"]),
        (lambda folder: write_npz(folder / "usps.npz", GREY), ["usps"]),
        (write_fedbn_digits, ["mnist", "mnist_m"]),
        (lambda folder: write_zip(folder.parent / "d.zip", write_fedbn_digits(folder)), ["mnist", "mnist_m"]),
        (write_mnist, ["mnist"]),
        (lambda folder: write_mnist(folder, pack=False), ["mnist"]),
        (lambda folder: write_mnist(folder) / "t10k-labels-idx1-ubyte.gz", ["mnist"]),
        (write_usps, ["usps"]),
        (write_mat, ["svhn"]),
        (lambda folder: write_mat(folder, "synth_"), ["synthdigits"]),
        (lambda folder: write_mat(folder, "synth_").parent, ["synthdigits"]),
        (write_class_folders, ["mnist_m"]),
        (lambda folder: write_class_folders(folder) / "mnist_m", ["mnist_m"]),
    ],
)
def test_every_layout_of_digits(make: Write, domains: list[str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    added = import_dataset("digits", [make(tmp_path / "in")], tmp_path / "data")
    assert [one.info.domain for one in added] == list(list_stored_titles("digits", tmp_path / "data")) == domains
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"digits"}  # nothing unpacked stays


def test_grey_becomes_three_equal_channels_of_the_right_size(tmp_path: Path) -> None:
    for domain in DIGITS.domains:
        write_npz(tmp_path / f"{domain}.npz", GREY if domain in ("mnist", "usps") else COLOUR)
    import_dataset("digits", sorted(tmp_path.glob("*.npz")), tmp_path / "data")
    for pool in load_real_pools("digits", tmp_path / "data"):
        images = pool.load_inputs("test", np.arange(10))
        assert images.shape == (10, 3, 28, 28)
        raw = (GREY if pool.domain in ("mnist", "usps") else COLOUR)[3]
        want = np.asarray(Image.fromarray(raw).resize((28, 28), Image.Resampling.BILINEAR))
        assert np.array_equal(images[3].numpy(), np.stack([want] * 3) if want.ndim == 2 else want.transpose(2, 0, 1))


def test_images_and_labels_stay_together(tmp_path: Path) -> None:
    flat = np.repeat(LABELS, 28 * 28 * 3).reshape(20, 28, 28, 3).astype(np.uint8)
    for domain in DIGITS.domains:
        write_npz(tmp_path / f"{domain}.npz", flat)
    import_dataset("digits", [tmp_path], tmp_path / "data")
    pool = load_real_pools("digits", tmp_path / "data")[0]
    assert np.array_equal(pool.load_inputs("train", np.arange(20))[:, 0, 0, 0].numpy(), pool.train)
    assert not np.array_equal(pool.train, LABELS)  # shuffled
    assert sorted(pool.train[:10]) == sorted(pool.train[10:]) == list(range(10))


def test_fedbn_keeps_its_order(tmp_path: Path) -> None:
    import_dataset("digits", [write_fedbn_digits(tmp_path)], tmp_path / "data")
    about = read_stored_domains("digits", tmp_path / "data")["mnist"]
    assert about.split.startswith("FedBN's split")
    assert about.counts == "20 + 20"
    from fedtrain.data.storage.domain_file import read_labels

    order = read_labels(tmp_path / "data" / "digits" / "mnist.safetensors", "train", DIGITS)
    assert list(order) == [x for i in range(10) for x in (9, i)]


def write_cifar(folder: Path, name: str, binary: bool) -> Path:
    fine = "labels" if name == "cifar10" else "fine_labels"
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"] if name == "cifar10" else ["train", "test"]
    pixels = COLOUR.transpose(0, 3, 1, 2).reshape(20, -1)
    lead = LABELS[:, None].repeat(1 if name == "cifar10" else 2, 1).astype(np.uint8)
    for file in names:
        if binary:
            (folder / f"{file}.bin").write_bytes(np.concatenate([lead, pixels], 1).tobytes())
        else:
            write_pickle(folder / file, {b"data": pixels, fine.encode(): LABELS.tolist()})
    return folder


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_every_layout_of_cifar(name: str, binary: bool, packed: bool, tmp_path: Path) -> None:
    (tmp_path / "batches").mkdir()
    path = write_cifar(tmp_path / "batches", name, binary)
    if packed:
        with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as archive:
            archive.add(path, "batches")
        path = tmp_path / "c.tar.gz"
    import_dataset(name, [path], tmp_path / "data")
    (pool,) = load_real_pools(name, tmp_path / "data")
    assert list(pool.train[:20]) == LABELS.tolist()  # as in the source: partitions of others refer to places
    assert np.array_equal(pool.load_inputs("test", np.arange(20)).numpy(), COLOUR.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("nested", ["", "office_caltech_10", "a/office_caltech_10"])
@pytest.mark.parametrize("packed", [True, False])
def test_folders_of_classes(nested: str, packed: bool, tmp_path: Path) -> None:
    write_office(tmp_path / "in" / nested)
    path = write_zip(tmp_path / "o.zip", tmp_path / "in") if packed else tmp_path / "in"
    import_dataset("office", [path], tmp_path / "data")
    pools = load_real_pools("office", tmp_path / "data")
    assert [pool.domain for pool in pools] == list(OFFICE.domains)
    assert [(len(pool.train), len(pool.test)) for pool in pools] == [(16, 4)] * 4  # a fifth: too few for the usual size
    assert "fedco2's own: Amazon, Caltech" in collect_notes("office", tmp_path / "data")[-1]


def test_one_domain_of_an_odd_name(tmp_path: Path) -> None:
    write_office(tmp_path)
    (tmp_path / "dslr").rename(tmp_path / "camera")
    with pytest.raises(InputError, match="camera: its name does not tell the domain; say which, one of amazon"):
        import_dataset("office", [tmp_path / "camera"], tmp_path / "data")
    (added,) = import_dataset("office", [tmp_path / "camera"], tmp_path / "data", domain="dslr")
    assert added.info.title == "DSLR (subset of 16 + 4)"


@pytest.mark.parametrize("prefix", ["office_caltech_10/", "", "elsewhere/office_caltech_10/"])
def test_fedbns_lists(prefix: str, tmp_path: Path) -> None:
    folder = write_office(tmp_path / "office_caltech_10")
    wanted: dict[str, list[str]] = {}
    for domain in OFFICE.domains:
        names = [f"{prefix}{domain}/{name}/00{i}.png" for i in (1, 0) for name in OFFICE.classes]
        wanted[domain] = [name.split("/")[-2] for name in names[:15]]
        for part, cut in {"train": slice(15), "test": slice(15, None)}.items():
            write_pickle(folder / f"{domain}_{part}.pkl", (names[cut], [name.split("/")[-2] for name in names[cut]]))
    import_dataset("office", [folder], tmp_path / "data")
    for pool in load_real_pools("office", tmp_path / "data"):
        assert [OFFICE.classes[label] for label in pool.train] == wanted[pool.domain]
    assert not any("fedco2's own" in note for note in collect_notes("office", tmp_path / "data"))


def test_lists_and_images_in_two_archives(tmp_path: Path) -> None:
    images, lists = write_office(tmp_path / "images"), tmp_path / "lists"
    names = [f"Office/dslr/{name}/000.png" for name in OFFICE.classes]
    for part in ("train", "test"):
        write_pickle(lists / "Office" / f"dslr_{part}.pkl", (names, list(OFFICE.classes)))
    paths = [write_zip(tmp_path / f"{folder.name}.zip", folder) for folder in (lists, images)]
    (added,) = import_dataset("office", paths, tmp_path / "data", only=["dslr"])
    assert added.info.split.startswith("FedBN's split")
    with pytest.raises(DataError, match=r"its first image Office/dslr/back_pack/000\.png is not there"):
        import_dataset("office", paths[:1], tmp_path / "data", replace=True)


def test_a_malicious_pickle_or_archive_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, ("raise SystemExit",)

    write_fedbn_digits(tmp_path / "in")
    write_pickle(tmp_path / "in" / "data" / "MNIST" / "test.pkl", Evil())
    with pytest.raises(DataError, match=r"builtins\.exec"):
        import_dataset("digits", [tmp_path / "in"], tmp_path / "data")
    with zipfile.ZipFile(tmp_path / "slip.zip", "w") as archive:
        archive.writestr("../../slipped", b"")
    with pytest.raises(DataError, match="does not stay inside"):
        import_dataset("digits", [tmp_path / "slip.zip"], tmp_path / "data")
    assert not list((tmp_path / "data").rglob("*"))
    assert not (tmp_path / "slipped").exists()


def test_what_is_there_stays_unless_replaced(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "usps.npz", GREY)
    import_dataset("digits", [path], tmp_path / "data")
    with pytest.raises(InputError, match=r"usps\.safetensors: is already there; ask for it to be replaced"):
        import_dataset("digits", [path, write_npz(tmp_path / "mnist.npz")], tmp_path / "data")
    assert list(list_stored_titles("digits", tmp_path / "data")) == ["usps"]  # refused before any work
    import_dataset("digits", [write_npz(path, COLOUR)], tmp_path / "data", replace=True)
    assert list(list_stored_titles("digits", tmp_path / "data")) == ["usps"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("digits.npz", "say which"),
        ("fashion_mnist.npz", "say which"),
        ("mnist_usps.npz", "say which"),
        ("u.h5", "usps.bz2"),
    ],
)
def test_what_is_unclear_is_asked_about(name: str, hint: str, tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz").rename(tmp_path / name)
    with pytest.raises(InputError, match=hint):
        import_dataset("digits", [tmp_path / name], tmp_path / "data")


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    a, b = write_npz(tmp_path / "mnist_a.npz"), write_npz(tmp_path / "mnist_b.npz")
    with pytest.raises(InputError, match="both mnist"):
        import_dataset("digits", [a, b], tmp_path / "data")
    with pytest.raises(InputError, match="add one at a time"):
        import_dataset("digits", [a, b], tmp_path / "data", domain="mnist")
    with pytest.raises(InputError, match="did you mean 'mnist_m'"):
        import_dataset("digits", [a], tmp_path / "data", domain="mnistm")
    with pytest.raises(DataError, match="no such file"):
        import_dataset("digits", [tmp_path / "no.npz"], tmp_path / "data")
    with pytest.raises(DataError, match="nothing of DomainNet found"):
        import_dataset("domainnet", [tmp_path / "data"], tmp_path / "data")
    write_usps(tmp_path).unlink()
    with pytest.raises(DataError, match=r"usps\.t\.bz2: no such file"):
        import_dataset("digits", [tmp_path / "usps.bz2"], tmp_path / "data")


def test_an_image_that_does_not_decode_leaves_nothing(tmp_path: Path) -> None:
    write_office(tmp_path / "in")
    (tmp_path / "in" / "dslr" / "mug" / "000.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"mug/000\.png"):
        import_dataset("office", [tmp_path / "in" / "dslr"], tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize(
    ("names", "domain"),
    [
        (["mnist_m.npz"], "mnist_m"),
        (["MNIST-M"], "mnist_m"),
        (["mnistm.zip"], "mnist_m"),
        (["mnist_mini.npz"], "mnist"),
        (["synthdigits_recreated.npz"], "synthdigits"),
        (["SynthDigits"], "synthdigits"),
        (["raw", "MNIST"], "mnist"),
        (["usps.npz", "MNIST"], "usps"),
        (["kmnist.npz"], None),
        (["x", "FashionMNIST"], None),
        (["resynth.npz"], None),
    ],
)
def test_domains_by_name(names: list[str], domain: str | None) -> None:
    assert guess_domain(DIGITS, names) == domain


@pytest.mark.parametrize(
    ("domain", "source", "sizes", "wanted"),
    [
        ("synthdigits", "synthdigits_recreated.npz", (7438, 2000), "SynthDigits (re-created)"),
        ("synthdigits", "synth.npz", (479_400, 9_553), "SynthDigits"),
        ("svhn", "svhn_28.npz", (7438, 5000), "SVHN (subset of 7,438 + 5,000)"),
        ("svhn", "svhn.npz", (73_257, 26_032), "SVHN"),
        ("mnist", "digit_dataset.zip", (7438, 14_000), "MNIST"),
    ],
)
def test_titles_are_honest(domain: str, source: str, sizes: tuple[int, int], wanted: str) -> None:
    assert format_title(DIGITS, domain, source, *sizes) == wanted


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(0, 99))
def test_every_first_part_has_the_classes_in_proportion(labels: list[int], seed: int) -> None:
    given_labels = np.array(labels)
    order = interleave_classes(given_labels, seed)
    assert sorted(order) == list(range(len(labels)))
    classes, counts = np.unique(given_labels, return_counts=True)
    for k in range(1, len(labels) + 1):
        got = np.array([(given_labels[order[:k]] == c).sum() for c in classes])
        share = counts / len(labels)
        assert (np.abs(got - k * share) <= 1 + len(classes) * share + 1e-9).all()


def test_the_first_743_of_mnist_are_like_all() -> None:
    labels = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    first = np.bincount(labels[interleave_classes(labels)[:743]])
    assert np.abs(first - 743 * np.bincount(labels) / 60000).max() < 3


@given(st.integers(150, 250), st.integers(20, 400), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_our_split_is_clean(count: int, different: int, wanted: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, twins = rng.integers(0, 5, count), rng.integers(0, different, count)
    train, test = split_train_test(labels, twins, wanted)
    assert sorted([*train, *test]) == list(range(count))
    assert not set(twins[train]) & set(twins[test])
    ends = len(set(twins)) // 8
    single = np.bincount(twins)[twins[train]] == 1
    if single.sum() >= 2 * ends:
        assert not set(twins[train[:ends]]) & set(twins[train[len(train) - ends :]])
    enough = (np.bincount(twins)[twins] == 1).sum() > count / 2
    if enough and wanted:
        assert len(test) == wanted


@pytest.mark.parametrize("domain", OFFICE.domains)
def test_sizes_of_office_are_the_references(domain: str) -> None:
    whole = {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}[domain]
    labels = np.random.default_rng(1).integers(0, 10, whole)
    twins = np.arange(whole)
    twins[:34] //= 2  # 17 pairs, as in Amazon
    train, test = split_train_test(labels, twins, OFFICE.test_sizes[domain])
    assert (len(train), len(test)) == (whole - OFFICE.test_sizes[domain], OFFICE.test_sizes[domain])
    assert not set(twins[train[:62]]) & set(twins[train[-50:]])
    shares = np.bincount(labels[test], minlength=10) - len(test) * np.bincount(labels, minlength=10) / whole
    assert np.abs(shares).max() <= 1


def test_equal_images_are_found_and_stay_on_one_side(tmp_path: Path) -> None:
    twins = {f"dslr/{name}/{i:03}.png": f"dslr/{name}/{i + 1:03}.png" for name in OFFICE.classes for i in (0, 2)}
    write_office(tmp_path / "in", 9, twins)
    import_dataset("office", [tmp_path / "in"], tmp_path / "data")
    pool = next(pool for pool in load_real_pools("office", tmp_path / "data") if pool.domain == "dslr")
    train, test = (
        {image.numpy().tobytes() for image in pool.load_inputs(part, np.arange(len(getattr(pool, part))))}
        for part in ("train", "test")
    )
    assert len(pool.train) - len(train) == 20
    assert len(pool.test) == 18
    assert not train & test


def test_published_sizes_are_known_for_all_but_domainnet() -> None:
    from fedtrain.data.importing.naming import PUBLISHED_SIZES, UNSPLIT_SIZES

    domains = {domain for data in DATASETS.values() if data.name != "domainnet" for domain in data.domains}
    assert domains == set(PUBLISHED_SIZES) | set(UNSPLIT_SIZES)


def test_progress_is_told(tmp_path: Path) -> None:
    told = io.StringIO()
    write_office(tmp_path / "in")
    import_dataset(
        "office",
        [tmp_path / "in"],
        tmp_path / "data",
        progress=lambda what, done, total: print(what, done, total, file=told),
    )
    assert "dslr 20 20" in told.getvalue()
