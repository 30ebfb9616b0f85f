"""Hostile files, a short version of ``benchmarks/fuzz.py``: our own error or a result, and nothing else is touched."""

import bz2
import gzip
import struct
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))  # where its scripts look for each other

from fuzzing import dataset_files, project_files
from fuzzing.attacks import BOMB_SIZE
from fuzzing.containers import MAT_HEADER, build_zip_seed, encode_npy
from fuzzing.mutate import mutate_seed
from fuzzing.readers import READERS, Reader

from fedtrain.config.schema import parse_config
from fedtrain.data.errors import DataError
from fedtrain.data.readers import extract_archive, read_cifar10, read_idx, read_libsvm, read_mat, read_npz
from fedtrain.data.readers.archive_members import ArchiveLimits
from fedtrain.data.readers.safe_pickle import parse_pickle
from fedtrain.data.storage import domain_file
from theory import user_data
from theory.errors import InputError


class Box:
    """A folder with the files of a reader and a target; nothing else may come to be in it."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader, self.folder, self.home = reader, folder, folder / "home" / "digits"
        self.home.mkdir(parents=True)
        for name, seed in zip(("images", "labels"), dataset_files.build_idx_seeds(), strict=False):
            (self.home / name).write_bytes(seed.content)

    def accepts(self, data: bytes) -> bool:
        """Whether the bytes are read; an error must be ours, one printable line, and not that memory ran out."""
        for name in {self.reader.file, self.reader.copy} - {""}:
            (self.home / name).write_bytes(data)
        target = self.folder / "home" / "target"
        before = sorted(self.folder.rglob("*"))
        refusal: InputError | None = None
        try:
            self.reader.read(self.home / self.reader.file, target)
        except InputError as error:
            refusal = error
        assert str(refusal).isprintable()
        assert not isinstance(refusal and refusal.__cause__, MemoryError)
        assert sorted(path for path in self.folder.rglob("*") if target not in (path, *path.parents)) == before
        if target.exists():
            target.rename(self.folder.parent / f"{self.folder.name}-{len(list(self.folder.parent.iterdir()))}")
        return refusal is None


@pytest.fixture
def box(name: str, tmp_path: Path) -> Box:
    if name == "parquet" or name.startswith("arrow"):
        pytest.importorskip("pyarrow")
    return Box(READERS[name], tmp_path / "box")


@pytest.mark.parametrize("name", sorted(set(READERS) - {"image"}))  # of images some seeds are of formats not read
def test_good_files_are_read(box: Box) -> None:
    assert all(box.accepts(seed.content) for seed in box.reader.seeds())


@pytest.mark.parametrize("name", READERS)
def test_attacks_do_nothing(name: str, box: Box) -> None:
    harmless = {"archive", "config", "run-folder"}  # odd names that stay inside, and words of the format
    for number, data in enumerate(box.reader.attacks(str(box.folder / "canary"))):
        assert not box.accepts(data) or name in harmless or name == "image", number


@pytest.mark.parametrize("name", ["config", "checkpoint", "domain", "run-folder", "theory-npz"])
def test_damaged_files_are_read_or_refused(name: str, box: Box) -> None:
    seeds = box.reader.seeds()

    @settings(max_examples=200, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**64))
    def attack(number: int) -> None:
        box.accepts(mutate_seed(seeds, Random(number), box.reader.words))

    attack()


# --- what was found once ---------------------------------------------------------------------------------------------


def peak(read: Callable[[], object]) -> int:
    """The most memory in use while a file is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_small_may_not_unpack_to_much(tmp_path: Path) -> None:
    """It was allowed up to 2 GiB, of a file of two megabytes and less."""
    file, zeros = tmp_path / "file", bytes(BOMB_SIZE)
    packed = zlib.compress(zeros)
    for data, read in [
        (gzip.compress(struct.pack(">4I", 0x0803, BOMB_SIZE, 1, 1) + zeros, 1), lambda: read_idx(file, file)),
        (MAT_HEADER + struct.pack("<II", 15, len(packed)) + packed, lambda: read_mat(file)),
        (build_zip_seed({"x_train.npy": zeros}).content, lambda: read_npz(file, "train")),
        (bz2.compress(zeros, 1), lambda: read_libsvm(file)),
        (build_zip_seed({"data_batch_1.bin": zeros}).content, lambda: read_cifar10(file, "train")),
        (build_zip_seed({"X.npy": zeros}).content, lambda: user_data.load_user_data(file, 0.0)),
    ]:
        file.write_bytes(data)
        with pytest.raises(InputError, match=r"unpacks to (more|over)"):
            read()
    large = build_zip_seed(
        {"x_train.npy": encode_npy(np.zeros((2, 300, 300, 3), np.uint8)), "y_train.npy": encode_npy(np.arange(2))}
    )
    file.write_bytes(large.content)
    assert len(large.content) * 100 < 540_000  # far smaller than what it holds, and fine
    assert read_npz(file, "train").images.shape == (2, 300, 300, 3)


def test_lines_of_libsvm_are_bounded(tmp_path: Path) -> None:
    """A line of short words took some forty times its size; empty lines took time without end."""
    (tmp_path / "usps").write_bytes(b"1 " * 2**19)
    assert peak(lambda: read_libsvm(tmp_path / "usps")) < 8 * 2**20
    (tmp_path / "usps").write_bytes(b"\n" * 2**19)
    with pytest.raises(DataError, match="line 262145: more than 262144 lines"):
        read_libsvm(tmp_path / "usps")


@pytest.mark.parametrize("deep", [False, True])
def test_folders_of_an_archive_are_counted(deep: bool, tmp_path: Path) -> None:
    """Names of thirty folders each made thirty times as many folders as members are allowed."""
    names = [f"{n}/a/b/c/f" if deep else f"{n}/" for n in range(60)]
    (tmp_path / "a.zip").write_bytes(build_zip_seed(dict.fromkeys(names, b""), zipfile.ZIP_STORED).content)
    limit = 4 * 60 + 1 if deep else 60 + 1  # and the target itself
    extract_archive(tmp_path / "a.zip", tmp_path / "fine", ArchiveLimits(folders=limit))
    with pytest.raises(DataError, match=f"more than the {limit - 1} folders allowed"):
        extract_archive(tmp_path / "a.zip", tmp_path / "out", ArchiveLimits(folders=limit - 1))
    assert not (tmp_path / "out").exists()


def test_escapes_that_mean_nothing_do_not_warn() -> None:
    with pytest.raises(DataError, match="escape"):
        parse_pickle(b"S'\\9'\n.", "file")


def users_file(folder: Path, x: NDArray[np.float64], owner: NDArray[Any]) -> Path:
    np.savez(folder / "a.npz", X=x, y=np.arange(float(len(x))), owner=owner)
    return folder / "a.npz"


def test_names_of_clients_cannot_steer_a_terminal(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((12, 2)) + 5
    file = users_file(tmp_path, x, np.repeat(["\x1b[31m\n", "x" * 9999], 6))
    names = [name for name, _ in user_data.load_user_data(file, 0.0).offsets]
    assert names == ["\\x1b[31m\\n", "x" * 37 + "..."]
    x[:6] = 1.0
    with pytest.raises(InputError, match=r"^client \\x1b\[31m\\n: "):
        user_data.load_user_data(users_file(tmp_path, x, np.repeat(["\x1b[31m\n", "b"], 6)), 0.0)


def test_few_rows_with_many_columns_do_not_make_huge_covariances(tmp_path: Path) -> None:
    """A file of one megabyte asked for 6 GiB."""
    path = users_file(tmp_path, np.random.default_rng(0).standard_normal((12, 10_000)), np.repeat(["a", "b"], 6))
    with pytest.raises(InputError, match=r"2 clients in 10000 dimensions take 1\.5 GiB"):
        user_data.load_user_data(path, 0.0)


@pytest.mark.parametrize("number", [10**400, -(10**400), 16**5000, 2**63], ids=["large", "low", "huge", "64 bits"])
def test_whole_numbers_of_settings_are_those_of_toml(number: int) -> None:
    """Beyond the largest float, conversion failed; beyond 4300 digits, even the error did."""
    for section, key in {"local": "epochs", "machine": "threads", "data": "skew"}.items():
        with pytest.raises(InputError, match=f"^{section}.{key} is ") as caught:
            parse_config({section: {key: number}})
        assert len(str(caught.value)) < 200
    if abs(number) > 2**63:
        with pytest.raises(InputError, match=r"^local\.lr is -?inf; it must be a finite number"):
            parse_config({"local": {"lr": number}})


def test_long_settings_do_not_make_long_errors() -> None:
    for tables in ({"data": {"skew": "x" * 9000}}, {"local": {"x" * 9000: 1}}, {"local": {"lr": [0] * 9000}}):
        with pytest.raises(InputError, match=r"\.\.\.") as caught:
            parse_config(tables)
        assert len(str(caught.value)) < 400  # the longest list of keys that it names has 220


def test_headers_of_python_2_are_read_without_a_warning(tmp_path: Path) -> None:
    old = encode_npy(np.zeros((6, 2, 2), np.uint8)).replace(b"(6, 2, 2), }   ", b"(6L, 2L, 2L), }")
    assert b"6L" in old
    (tmp_path / "a.npz").write_bytes(
        build_zip_seed({"x_train.npy": old, "y_train.npy": encode_npy(np.arange(6))}).content
    )
    assert len(read_npz(tmp_path / "a.npz", "train")) == 6
    x = encode_npy(np.random.default_rng(0).standard_normal((6, 2))).replace(b"(6, 2), }  ", b"(6L, 2L), }")
    assert b"6L" in x
    files = {"X.npy": x, "y.npy": encode_npy(np.arange(6.0)), "owner.npy": encode_npy(np.zeros(6, int))}
    (tmp_path / "a.npz").write_bytes(build_zip_seed(files).content)
    assert user_data.load_user_data(tmp_path / "a.npz", 0.0).problem.sizes == [6]


@pytest.mark.parametrize("order", "<>")
def test_text_that_is_no_unicode_is_refused(order: str, tmp_path: Path) -> None:
    """Python has a SystemError for it, from its innermost."""
    x = np.random.default_rng(0).standard_normal((12, 2))
    codes = np.repeat(np.array([65, 0x110000], f"{order}u4"), 6)
    with pytest.raises(InputError, match="not broken text"):
        user_data.load_user_data(users_file(tmp_path, x, codes.view(f"{order}U1")), 0.0)
    with pytest.raises(InputError, match="not complex128"):
        user_data.load_user_data(users_file(tmp_path, x, np.zeros(12, complex)), 0.0)


def test_a_cache_that_does_not_say_where_it_comes_from_is_refused(tmp_path: Path) -> None:
    header, data = project_files.build_domain_seeds()[1].parts
    path = tmp_path / "digits" / "usps.safetensors"
    path.parent.mkdir()
    path.write_bytes(project_files.build_domain_seeds()[1].build([header.replace(b'"origin"', b'"orogin"'), data]))
    with pytest.raises(DataError, match="origin"):
        domain_file.read_domain_info(path)
