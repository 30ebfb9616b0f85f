"""Every reader of fedco2, with the files that it is tried on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from fedtrain import checkpoint, config, presets
from fedtrain.data import domain_file, importing, readers
from fedtrain.data.catalogue import get_dataset_info
from fedtrain.folder import MANIFEST_FILE, METRICS_FILE, RunFolder
from fuzzing import attacks, calls, pictures, records
from fuzzing.packing import tar_seed
from fuzzing.seed import Seed
from theory import userdata
from theory.errors import InputError

Read = Callable[[Path, Path], object]
PARTS: tuple[Literal["train", "test"], ...] = ("train", "test")


@dataclass(frozen=True)
class Reader:
    """``read`` takes the file and the target, a place that it may write to."""

    file: str
    read: Read
    seeds: Callable[[], list[Seed]]
    attacks: Callable[[str], list[bytes]]
    """Takes the path of a file that must not come to be."""
    words: Sequence[bytes] = ()
    copy: str = ""
    """Another name under which the same bytes are found."""


def each(*reads: Callable[[], object]) -> None:
    """Do all of them, whatever becomes of the others; an error of the user's kind is raised if none went well."""
    errors: list[InputError] = []
    for read in reads:
        try:
            read()
        except InputError as error:
            errors.append(error)
    if len(errors) == len(reads):
        raise errors[-1]


def _idx(file: Path, target: Path) -> None:
    folder = file.parent
    each(
        lambda: readers.read_idx(file, folder / "labels"),
        lambda: readers.read_idx(folder / "images", file),
    )


def _config(file: Path, target: Path) -> None:
    tables = config.load_toml(file)
    each(
        lambda: config.format_config(config.parse_config(tables)),
        *(partial(presets.resolve_preset, preset, tables) for preset in ("digits", "cifar10")),
    )


def _checkpoint(file: Path, target: Path) -> None:
    each(lambda: checkpoint.read_round(file), lambda: checkpoint.load_checkpoint(file))


def _domain(file: Path, target: Path) -> None:
    data = get_dataset_info("digits")
    each(
        lambda: domain_file.read_domain_info(file),
        *(partial(domain_file.read_labels, file, part, data) for part in PARTS),
        *(partial(domain_file.read_images, file, part, data) for part in PARTS),
    )


def _folder(file: Path, target: Path) -> None:
    folder = RunFolder(file.parent)
    each(folder.rows, lambda: folder.read_json(MANIFEST_FILE))


def _import(file: Path, target: Path) -> None:
    importing.import_dataset("digits", [file], target, domain="usps")


def _pickle(data: Callable[[str], list[bytes]]) -> Callable[[str], list[bytes]]:
    """The same as the batches of an archive."""

    def archived(canary: str) -> list[bytes]:
        names = [f"cifar-10/data_batch_{number}" for number in range(1, 6)]
        return [tar_seed(dict.fromkeys(names, one), pack=False).whole for one in data(canary)]

    return archived


def _claims(kind: str) -> Callable[[str], list[bytes]]:
    return lambda canary: attacks.claims()[kind]


READERS: dict[str, Reader] = {
    "idx": Reader("idx", _idx, pictures.idx, _claims("idx")),
    "mat": Reader("a.mat", lambda file, _: readers.read_mat(file), pictures.matlab, _claims("mat")),
    "libsvm": Reader(
        "usps",
        lambda file, _: readers.read_libsvm(file),
        pictures.libsvm,
        _claims("libsvm"),
        [b" 7:", b"nan", b"1e400"],
    ),
    "cifar-python": Reader(
        "c",
        lambda file, _: readers.read_cifar10(file, "train"),
        lambda: pictures.cifar(False),
        _pickle(calls.pickles),
    ),
    "cifar-binary": Reader(
        "c", lambda file, _: readers.read_cifar10(file, "train"), lambda: pictures.cifar(True), attacks.archives
    ),
    "digits": Reader(
        "test.pkl", lambda file, _: readers.read_fedbn_digits(file.parent, "test"), pictures.digits, calls.pickles
    ),
    "index": Reader("a.pkl", lambda file, _: readers.read_image_list(file), pictures.index, calls.pickles),
    "npz": Reader(
        "a.npz",
        lambda file, _: each(lambda: readers.read_npz(file, "train", 10), lambda: readers.read_npz(file, "test")),
        pictures.npz,
        _claims("npz"),
        [b"'|O'", b"'<U9'", b"'|V0'", b"True", b"(2**99,)", b"(-1,)", b"()", b"'<f8'"],
    ),
    "image": Reader(
        "a.png", lambda file, _: readers.read_image(file, (8, 8)), pictures.image, lambda canary: attacks.images()
    ),
    "archive": Reader(
        "a", lambda file, target: readers.extract_archive(file, target), pictures.archive, attacks.archives
    ),
    "import": Reader("a.npz", _import, pictures.npz, _claims("npz")),
    "config": Reader("c.toml", _config, records.config, lambda canary: [*records.TOML_WORDS], records.TOML_WORDS),
    "checkpoint": Reader("c", _checkpoint, records.checkpoints, _claims("tensors"), records.JSON_WORDS),
    "domain": Reader("usps.safetensors", _domain, records.domain, _claims("tensors"), records.JSON_WORDS),
    "run-folder": Reader(
        METRICS_FILE, _folder, records.results, lambda canary: [*records.JSON_WORDS], records.JSON_WORDS, MANIFEST_FILE
    ),
    "theory-npz": Reader(
        "a.npz",
        lambda file, _: userdata.load_user_data(file, 1e-3),
        records.arrays,
        _claims("npz"),
        [b"'|O'", b"'<U9'", b"'|V0'", b"'<M8'", b"True", b"(2**99,)", b"(-1,)", b"()", b"'<f2'", b"'<c16'"],
    ),
}
