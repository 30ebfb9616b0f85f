"""Every reader of fedco2, with the files that it is tried on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedtrain.config import presets, schema
from fedtrain.config.data import DataSettings
from fedtrain.config.toml import format_error
from fedtrain.data import importing, readers
from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.kept_datasets import load_kept_dataset
from fedtrain.data.found.pools import FoundDataset
from fedtrain.data.found.table_dataset import encode_table, find_newcomers
from fedtrain.data.readers.table_file import read_table
from fedtrain.data.storage import domain_file
from fedtrain.federated.codec.states import decode_state
from fedtrain.inference.personal_file import read_personal
from fedtrain.runs import checkpoint
from fedtrain.runs.folder import MANIFEST_FILE, METRICS_FILE, RunFolder
from fedtrain.runs.predictions import load_predictions
from fuzzing import arrow_files, attacks, dataset_files, own_data_files, pickle_attacks, project_files
from fuzzing.containers import build_tar_seed
from fuzzing.seed_file import Seed
from theory import user_data
from theory.errors import InputError

ReadFile = Callable[[Path, Path], object]
CSV_SETTINGS = own_data_files.TABLE_SETTINGS
ARROW_TABLE_SETTINGS = DataSettings(client_column="site", target="ill", split_column="part")
SPLITS: tuple[Literal["train", "test"], ...] = ("train", "test")


@dataclass(frozen=True)
class Reader:
    """``read`` takes the file and the target, a place that it may write to."""

    file: str
    read: ReadFile
    seeds: Callable[[], list[Seed]]
    attacks: Callable[[str], list[bytes]]
    """Takes the path of a file that must not come to be."""
    words: Sequence[bytes] = ()
    copy: str = ""
    """Another name under which the same bytes are found."""


def read_all(*reads: Callable[[], object]) -> None:
    """Do all of them, whatever becomes of the others; an error of the user's kind is raised if none went well."""
    errors: list[InputError] = []
    for read in reads:
        try:
            read()
        except InputError as error:
            errors.append(error)
    if len(errors) == len(reads):
        raise errors[-1]


def _read_idx(file: Path, target: Path) -> None:
    folder = file.parent
    read_all(
        lambda: readers.read_idx(file, folder / "labels"),
        lambda: readers.read_idx(folder / "images", file),
    )


def _read_config(file: Path, target: Path) -> None:
    tables = schema.load_toml(file)
    read_all(
        lambda: schema.format_config(schema.parse_config(tables)),
        *(partial(presets.resolve_preset, preset, tables) for preset in ("digits", "cifar10")),
    )


def _read_checkpoint(file: Path, target: Path) -> None:
    read_all(lambda: checkpoint.read_round(file), lambda: checkpoint.load_checkpoint(file))


def _read_payload(file: Path, target: Path) -> None:
    """A client's answer, as each codec reads it."""
    try:
        entries = load_file(file)
    except SafetensorError:
        raise InputError("no tensors, so nothing for a codec") from None

    def decode(codec: str) -> object:
        try:
            return decode_state(entries, project_files.PAYLOAD_FORMS, codec)
        except ValueError as error:
            raise InputError(format_error(error)) from None

    read_all(*(partial(decode, codec) for codec in project_files.PAYLOAD_CODECS))


def _read_domain(file: Path, target: Path) -> None:
    data = get_dataset_info("digits")
    read_all(
        lambda: domain_file.read_domain_info(file),
        *(partial(domain_file.read_labels, file, part, data) for part in SPLITS),
        *(partial(domain_file.read_images, file, part, data) for part in SPLITS),
    )


def _read_run_folder(file: Path, target: Path) -> None:
    folder = RunFolder(file.parent)
    read_all(folder.load_rows, lambda: folder.read_json(MANIFEST_FILE))


def _read_arrow(file: Path, target: Path) -> None:
    folder = arrow_files.lay_out_folder(target, file.read_bytes(), json.dumps(arrow_files.STATE).encode())
    read_all(
        lambda: _decode_all(find_dataset(folder, DataSettings())),
        lambda: find_dataset(folder, ARROW_TABLE_SETTINGS),
    )


def _read_arrow_state(file: Path, target: Path) -> None:
    arrow = arrow_files.build_image_row_seeds()[0].content
    find_dataset(arrow_files.lay_out_folder(target, arrow, file.read_bytes()), DataSettings())


def _read_packed_folder(file: Path, target: Path) -> None:
    with own_data_files.unpack_into(target):
        _decode_all(find_dataset(file, DataSettings()))


def _read_rows(file: Path, target: Path) -> None:
    """A table for a run on another one: rows to predict, and a newcomer."""
    info = own_data_files.find_table().info
    schema = info.table
    assert schema is not None
    table = read_table(file, number_columns={one.name for one in schema.columns if one.categories is None})
    read_all(
        lambda: encode_table(table, schema),
        lambda: find_newcomers(table, CSV_SETTINGS, file.name, schema, info.classes),
    )


def _read_kept(file: Path, target: Path) -> None:
    own_data_files.lay_out_kept(target, file.read_bytes())
    _decode_all(load_kept_dataset(own_data_files.KEPT_NAME, target))


def _decode_all(found: FoundDataset) -> None:
    for pool in found.pools:
        for part in SPLITS:
            pool.load_inputs(part, np.arange(len(pool.train if part == "train" else pool.test)))


def _import_file(file: Path, target: Path) -> None:
    importing.import_dataset("digits", [file], target, domain="usps")


def _wrap_in_archive(data: Callable[[str], list[bytes]]) -> Callable[[str], list[bytes]]:
    """The same as the batches of an archive."""

    def archived(canary: str) -> list[bytes]:
        names = [f"cifar-10/data_batch_{number}" for number in range(1, 6)]
        return [build_tar_seed(dict.fromkeys(names, one), pack=False).content for one in data(canary)]

    return archived


def _select_header_attacks(kind: str) -> Callable[[str], list[bytes]]:
    return lambda canary: attacks.build_header_attacks()[kind]


READERS: dict[str, Reader] = {
    "idx": Reader("idx", _read_idx, dataset_files.build_idx_seeds, _select_header_attacks("idx")),
    "mat": Reader(
        "a.mat", lambda file, _: readers.read_mat(file), dataset_files.build_matlab_seeds, _select_header_attacks("mat")
    ),
    "libsvm": Reader(
        "usps",
        lambda file, _: readers.read_libsvm(file),
        dataset_files.build_libsvm_seeds,
        _select_header_attacks("libsvm"),
        [b" 7:", b"nan", b"1e400"],
    ),
    "cifar-python": Reader(
        "c",
        lambda file, _: readers.read_cifar10(file, "train"),
        lambda: dataset_files.build_cifar_seeds(False),
        _wrap_in_archive(pickle_attacks.build_pickle_attacks),
    ),
    "cifar-binary": Reader(
        "c",
        lambda file, _: readers.read_cifar10(file, "train"),
        lambda: dataset_files.build_cifar_seeds(True),
        attacks.build_archive_attacks,
    ),
    "digits": Reader(
        "test.pkl",
        lambda file, _: readers.read_fedbn_digits(file.parent, "test"),
        dataset_files.build_digits_seeds,
        pickle_attacks.build_pickle_attacks,
    ),
    "index": Reader(
        "a.pkl",
        lambda file, _: readers.read_image_list(file),
        dataset_files.build_index_seeds,
        pickle_attacks.build_pickle_attacks,
    ),
    "npz": Reader(
        "a.npz",
        lambda file, _: read_all(lambda: readers.read_npz(file, "train", 10), lambda: readers.read_npz(file, "test")),
        dataset_files.build_npz_seeds,
        _select_header_attacks("npz"),
        [b"'|O'", b"'<U9'", b"'|V0'", b"True", b"(2**99,)", b"(-1,)", b"()", b"'<f8'"],
    ),
    "csv": Reader(
        "t.csv",
        lambda file, _: find_dataset(file, CSV_SETTINGS),
        project_files.build_csv_seeds,
        lambda canary: [*project_files.CSV_WORDS],
        project_files.CSV_WORDS,
    ),
    "found-npz": Reader(
        "a.npz",
        lambda file, _: find_dataset(file, DataSettings(dataset="a.npz")),
        project_files.build_found_npz_seeds,
        _select_header_attacks("npz"),
        [b"'|O'", b"'<U9'", b"'|V0'", b"'<U4'", b"True", b"(2**99,)", b"(-1,)", b"()", b"'<f2'", b"'<c16'"],
    ),
    "parquet": Reader(
        "t.parquet",
        lambda file, _: find_dataset(file, CSV_SETTINGS),
        arrow_files.build_parquet_seeds,
        lambda canary: [],
    ),
    "arrow": Reader("rows", _read_arrow, arrow_files.build_image_row_seeds, lambda canary: []),
    "arrow-state": Reader(
        "state.json",
        _read_arrow_state,
        arrow_files.build_state_seeds,
        lambda canary: [*arrow_files.STATE_WORDS],
        arrow_files.STATE_WORDS,
    ),
    "packed-folder": Reader(
        "a.zip",
        _read_packed_folder,
        own_data_files.build_packed_folder_seeds,
        attacks.build_archive_attacks,
    ),
    "rows": Reader(
        "t.csv",
        _read_rows,
        own_data_files.build_newcomer_seeds,
        lambda canary: [*project_files.CSV_WORDS],
        project_files.CSV_WORDS,
    ),
    "kept": Reader(
        "dataset.toml",
        _read_kept,
        own_data_files.build_kept_seeds,
        lambda canary: [*project_files.TOML_WORDS],
        project_files.TOML_WORDS,
    ),
    "predictions": Reader(
        "predictions.npz",
        lambda file, _: load_predictions(file),
        own_data_files.build_prediction_seeds,
        _select_header_attacks("npz"),
        project_files.JSON_WORDS,
    ),
    "personal": Reader(
        "p.safetensors",
        lambda file, _: read_personal(file),
        own_data_files.build_personal_seeds,
        _select_header_attacks("tensors"),
        project_files.JSON_WORDS,
    ),
    "image": Reader(
        "a.png",
        lambda file, _: readers.read_image(file, (8, 8)),
        dataset_files.build_image_seeds,
        lambda canary: attacks.build_image_attacks(),
    ),
    "archive": Reader(
        "a",
        lambda file, target: readers.extract_archive(file, target),
        dataset_files.build_archive_seeds,
        attacks.build_archive_attacks,
    ),
    "import": Reader("a.npz", _import_file, dataset_files.build_npz_seeds, _select_header_attacks("npz")),
    "config": Reader(
        "c.toml",
        _read_config,
        project_files.build_config_seeds,
        lambda canary: [*project_files.TOML_WORDS],
        project_files.TOML_WORDS,
    ),
    "payload": Reader(
        "payload",
        _read_payload,
        project_files.build_payload_seeds,
        _select_header_attacks("tensors"),
        project_files.JSON_WORDS,
    ),
    "checkpoint": Reader(
        "c",
        _read_checkpoint,
        project_files.build_checkpoint_seeds,
        _select_header_attacks("tensors"),
        project_files.JSON_WORDS,
    ),
    "domain": Reader(
        "usps.safetensors",
        _read_domain,
        project_files.build_domain_seeds,
        _select_header_attacks("tensors"),
        project_files.JSON_WORDS,
    ),
    "run-folder": Reader(
        METRICS_FILE,
        _read_run_folder,
        project_files.build_result_seeds,
        lambda canary: [*project_files.JSON_WORDS],
        project_files.JSON_WORDS,
        MANIFEST_FILE,
    ),
    "theory-npz": Reader(
        "a.npz",
        lambda file, _: user_data.load_user_data(file, 1e-3),
        project_files.build_theory_npz_seeds,
        _select_header_attacks("npz"),
        [b"'|O'", b"'<U9'", b"'|V0'", b"'<M8'", b"True", b"(2**99,)", b"(-1,)", b"()", b"'<f2'", b"'<c16'"],
    ),
}
