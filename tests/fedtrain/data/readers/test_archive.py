"""Archives: they unpack whole or not at all, and never outside of their folder."""

import io
import shutil
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from dataset_files import reads_or_raises_data_error, write_tar
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrain.data.errors import DataError
from fedtrain.data.readers import (
    extract_archive,
)
from fedtrain.data.readers.archive_members import ArchiveLimits

GOOD = {"set/a/1.txt": b"one", "set/a/2.txt": b"two" * 1000, "set/b/3.txt": b""}


def write_zip(path: Path, files: dict[str, bytes], mode: int = 0) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        warnings.simplefilter("ignore")  # a name twice
        for name, data in files.items():
            info = zipfile.ZipInfo("placeholder")
            info.filename = name
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            file.writestr(info, data)


def write_plain_tar(path: Path, files: dict[str, bytes]) -> None:
    write_tar(path, files, "w:")


every_archive = pytest.mark.parametrize("pack", [write_zip, write_tar, write_plain_tar])


def read_tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@every_archive
def test_archives_unpack(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    pack(tmp_path / "a", GOOD | {"./set/c.txt": b"c"})
    extract_archive(tmp_path / "a", tmp_path / "new" / "out")
    assert read_tree(tmp_path / "new" / "out") == GOOD | {"set/c.txt": b"c"}
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"]
    with pytest.raises(DataError, match="already there"):
        extract_archive(tmp_path / "a", tmp_path / "new" / "out")


@every_archive
@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "set/../../evil",
        "/tmp/evil",
        "..",
        "C:/evil",
        "set\\..\\..\\evil",
        "",
        "a/" * 500 + "b",
        "a\x01b",
        "//evil",
    ],
)
def test_names_that_leave_the_folder_are_refused(
    pack: Callable[[Path, dict[str, bytes]], None], name: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    pack(home / "a", {"good.txt": b"good", name.replace("/tmp/evil", str(tmp_path / "evil")): b"evil"})
    with pytest.raises(DataError, match="home/a: "):
        extract_archive(home / "a", home / "out")
    assert list(tmp_path.rglob("*")) == [home, home / "a"]


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_and_devices_in_tar_are_refused(kind: bytes, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = kind, str(outside)
        tar.addfile(link)
        info = tarfile.TarInfo("link/evil")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    with pytest.raises(DataError, match=r"a\.tar: "):
        extract_archive(tmp_path / "a.tar", tmp_path / "out")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.tar", "outside"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_zip_are_refused(kind: int, tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", {"link": b"/etc"}, kind | 0o777)
    with pytest.raises(DataError, match="link or device"):
        extract_archive(tmp_path / "a.zip", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


@every_archive
def test_limits_of_archives(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    pack(tmp_path / "a", {f"{i}": bytes(1000) for i in range(100)})
    extract_archive(tmp_path / "a", tmp_path / "fine")
    for limits in (ArchiveLimits(total=50_000), ArchiveLimits(ratio=0, floor=50_000), ArchiveLimits(members=50)):
        with pytest.raises(DataError, match="allowed"):
            extract_archive(tmp_path / "a", tmp_path / "out", limits)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "fine"]


@pytest.mark.parametrize("pack", [write_zip, write_tar])
def test_archive_bombs_are_refused(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    pack(tmp_path / "a", {"zeros": bytes(40 * 2**20)})  # 1000 to 1
    with pytest.raises(DataError, match="allowed"):
        extract_archive(tmp_path / "a", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_tar_header_that_asks_for_too_much(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 2**33 - 1
    (tmp_path / "a.tar").write_bytes(info.tobuf() + bytes(4096))
    with pytest.raises(DataError, match="at once"):
        extract_archive(tmp_path / "a.tar", tmp_path / "out")


def test_a_zip_that_lies_about_sizes(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", {"zeros": bytes(10**6)})
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace(struct.pack("<I", 10**6), struct.pack("<I", 100)))
    with pytest.raises(DataError, match=r"a\.zip"):
        extract_archive(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@every_archive
def test_a_name_twice_or_a_file_as_a_folder(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    for number, files in enumerate([{"a": b"1", "./a": b"2"}, {"a": b"1", "a/b": b"2"}, {"a/b": b"1", "a": b"2"}]):
        pack(tmp_path / f"{number}", files)
        with pytest.raises(DataError, match="not a readable zip or tar"):
            extract_archive(tmp_path / f"{number}", tmp_path / "out")
        assert not (tmp_path / "out").exists()


@every_archive
def test_damaged_archives_leave_nothing(
    pack: Callable[[Path, dict[str, bytes]], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    file = folder / "a"
    pack(file, GOOD)
    whole = file.read_bytes()
    place = st.integers(0, len(whole) - 1)

    @settings(max_examples=40)
    @given(st.lists(st.tuples(place, st.integers(0, 255)), max_size=3), st.none() | place)
    def damage(changes: list[tuple[int, int]], end: int | None) -> None:
        data = bytearray(whole)
        for at, value in changes:
            data[at] = value
        file.write_bytes(data[:end])
        if reads_or_raises_data_error(lambda: extract_archive(file, folder / "out")):
            shutil.rmtree(folder / "out")
        assert list(folder.iterdir()) == [file]

    damage()


@pytest.mark.parametrize("pack", [write_tar, write_plain_tar])
def test_a_truncated_tar_is_not_half_unpacked(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    pack(tmp_path / "whole", GOOD)
    whole = (tmp_path / "whole").read_bytes()
    content = 3 * 512 + 512 + 3072  # headers and files, without the blocks of zeros that end it
    for size in range(0, len(whole), 7) if pack is write_tar else range(0, content + 1, 512):
        (tmp_path / "a").write_bytes(whole[:size])
        with pytest.raises(DataError):
            extract_archive(tmp_path / "a", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_broken_header_is_not_the_end_of_a_tar(tmp_path: Path) -> None:
    write_plain_tar(tmp_path / "a", GOOD)
    data = bytearray((tmp_path / "a").read_bytes())
    data[1024 + 150] ^= 1  # the checksum of the second member
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match="does not end"):
        extract_archive(tmp_path / "a", tmp_path / "out")


def test_links_at_the_target_are_not_followed(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", GOOD)
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match="already there"):
        extract_archive(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "nowhere").exists()


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", GOOD)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    start = data.index(b"PK\x01\x02")
    data[start + 8] |= 1
    data[6] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError, match="encrypted"):
        extract_archive(tmp_path / "a.zip", tmp_path / "out")
