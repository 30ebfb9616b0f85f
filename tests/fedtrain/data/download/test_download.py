"""Downloads against a server on this machine that behaves as badly as servers do."""

import hashlib
import http.client
import http.server
import io
import json
import pickle
import re
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from fedtrain.data.download import dataset as getting
from fedtrain.data.download import http_transfer
from fedtrain.data.download.dataset import download_dataset
from fedtrain.data.download.file import CHECKSUMS_FILE, download_file
from fedtrain.data.download.sources import (
    DOWNLOAD_SOURCES,
    LICENCE_TERMS,
    DownloadSource,
    RemoteFile,
    select_sources,
)
from fedtrain.data.errors import DataError
from fedtrain.data.importing import ignore_progress
from fedtrain.data.storage.store import list_stored_titles
from theory.errors import InputError

BODY = np.random.default_rng(0).bytes(300_000)
MD5, SHA256 = (f"{kind}:{hashlib.new(kind, BODY).hexdigest()}" for kind in ("md5", "sha256"))


@dataclass
class Server:
    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut: list[int] = field(default_factory=list)
    """How many bytes each of the next answers sends before the connection breaks."""
    redirect: str = ""
    chunked: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def remote(self, *folders: str, checksum: str | None = SHA256, size: int | None = None) -> RemoteFile:
        return RemoteFile(tuple(f"{self.url}{folder}/a.bin" for folder in folders or ("",)), checksum, size)


class Handler(http.server.BaseHTTPRequestHandler):
    state: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted, state = self.headers.get("Range"), self.state
        state.asked.append((self.path, wanted))
        if state.redirect:
            self.answer(302, b"", Location=state.redirect)
        elif self.path not in state.files:
            self.answer(404, b"")
        else:
            body = state.files[self.path]
            start = int(re.findall(r"\d+", wanted)[0]) if wanted and state.ranges else 0
            if start and start >= len(body):
                self.answer(416, b"", **{"Content-Range": f"bytes */{len(body)}"})
            elif start:
                self.answer(206, body[start:], **{"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"})
            else:
                self.answer(200, body)

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if not self.state.chunked:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.state.cut and status in (200, 206):
            body = body[: self.state.cut.pop(0)]
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("FEDCO2_MIRROR", raising=False)
    handler = type("Bound", (Handler,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as host:
        handler.state = Server(f"http://127.0.0.1:{host.server_port}")  # type: ignore[attr-defined]
        thread = threading.Thread(target=host.serve_forever, args=(0.01,))
        thread.start()
        yield handler.state  # type: ignore[attr-defined]
        host.shutdown()
        thread.join()


def download_bytes(remote: RemoteFile, folder: Path) -> bytes:
    path = download_file(remote, folder, folder / CHECKSUMS_FILE)
    assert path == folder / "a.bin"
    assert not (folder / "a.bin.part").exists()
    return path.read_bytes()


@pytest.mark.parametrize("checksum", [MD5, SHA256])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_plain_download(server: Server, tmp_path: Path, checksum: str, chunked: bool) -> None:
    server.files["/a.bin"], server.chunked = BODY, chunked
    assert download_bytes(server.remote(checksum=checksum), tmp_path) == BODY
    assert download_bytes(server.remote(checksum=checksum), tmp_path) == BODY
    assert len(server.asked) == 1  # what is here and whole is not fetched again


def test_it_goes_on_where_the_connection_was_cut(server: Server, tmp_path: Path) -> None:
    server.files["/a.bin"], server.cut = BODY, [100_000, 50_000]
    assert download_bytes(server.remote(), tmp_path) == BODY
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_it_goes_on_in_another_run(server: Server, tmp_path: Path) -> None:
    server.files["/a.bin"] = BODY
    (tmp_path / "a.bin.part").write_bytes(BODY[:1000])
    assert download_bytes(server.remote(), tmp_path) == BODY
    assert server.asked == [("/a.bin", "bytes=1000-")]


@pytest.mark.parametrize("there", [BODY, b"x" * len(BODY), b"x" * (len(BODY) + 5), b"x" * 10])
def test_whatever_lies_there_the_file_comes_out_right(server: Server, tmp_path: Path, there: bytes) -> None:
    server.files["/a.bin"] = BODY
    (tmp_path / "a.bin.part").write_bytes(there)
    assert download_bytes(server.remote(), tmp_path) == BODY


def test_more_than_the_whole_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    server.files["/a.bin"], part = BODY, tmp_path / "a.bin.part"
    part.write_bytes(BODY + b"more")
    with pytest.raises(http_transfer.ConnectionCutError, match="start again"):
        http_transfer.resume_download(f"{server.url}/a.bin", part, len(BODY), ignore_progress)
    assert not part.exists()


def test_a_server_that_cannot_go_on_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.files["/a.bin"], server.ranges, server.cut = BODY, False, [100_000]
    assert download_bytes(server.remote(), tmp_path) == BODY
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100000-"]


def test_a_connection_that_is_always_cut_is_given_up(server: Server, tmp_path: Path) -> None:
    server.files["/a.bin"], server.cut = BODY, [10] * 99
    with pytest.raises(DataError, match=r"a\.bin could not be fetched .*cut"):
        download_bytes(server.remote(), tmp_path)
    assert len(server.asked) < 10
    assert (tmp_path / "a.bin.part").read_bytes() == BODY[:30]  # to go on from another time


def test_a_wrong_checksum_leads_to_the_next_mirror(server: Server, tmp_path: Path) -> None:
    server.files |= {"/bad/a.bin": BODY[::-1], "/good/a.bin": BODY}
    assert download_bytes(server.remote("/missing", "/bad", "/good"), tmp_path) == BODY
    assert [path for path, _ in server.asked] == ["/missing/a.bin", "/bad/a.bin", "/good/a.bin"]


def test_a_wrong_checksum_everywhere_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.files |= {"/a.bin": BODY[1:], "/b/a.bin": BODY[2:]}
    with pytest.raises(DataError) as caught:
        download_bytes(server.remote("", "/b"), tmp_path)
    assert str(caught.value).count("of the wrong checksum") == 2
    assert not list(tmp_path.iterdir())


def test_without_a_published_checksum_the_first_one_counts(server: Server, tmp_path: Path) -> None:
    server.files["/a.bin"] = BODY
    remote = server.remote(checksum=None)
    (tmp_path / "a.bin.part").write_bytes(b"from another time")
    assert download_bytes(remote, tmp_path) == BODY
    assert server.asked == [("/a.bin", None)]  # pieces are not put together where nothing could tell
    assert json.loads((tmp_path / CHECKSUMS_FILE).read_text()) == {"a.bin": SHA256}
    (tmp_path / "a.bin").unlink()
    server.files["/a.bin"] = BODY[::-1]
    with pytest.raises(DataError, match="of the wrong checksum"):
        download_bytes(remote, tmp_path)
    (tmp_path / CHECKSUMS_FILE).write_text("[")
    with pytest.raises(DataError, match="remove it"):
        download_bytes(remote, tmp_path)


def test_more_than_expected_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["/a.bin"] = BODY
    for server.chunked in (False, True):
        with pytest.raises(DataError, match="the 1000 "):
            download_bytes(server.remote(size=1000), tmp_path)


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/a.bin"])
def test_no_way_out_of_http(server: Server, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server.redirect = target
    with pytest.raises(DataError, match=r"[Rr]edirect"):
        download_bytes(server.remote(), tmp_path)
    monkeypatch.setenv("FEDCO2_MIRROR", "file:///etc")
    with pytest.raises(DataError, match="not an http or https address"):
        download_bytes(server.remote(), tmp_path)


def test_no_way_from_https_to_http() -> None:
    request = urllib.request.Request("https://a/b")
    with pytest.raises(http_transfer.DownloadRefusedError, match="from https to http"):
        http_transfer._SafeRedirectHandler().redirect_request(
            request, io.BytesIO(), 302, "", http.client.HTTPMessage(), "http://a/b"
        )


def test_a_redirect_is_followed(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Handler.do_GET

    def once(self: Handler) -> None:
        self.state.redirect = f"{self.state.url}/b/a.bin" if self.path == "/a.bin" else ""
        answer(self)

    monkeypatch.setattr(Handler, "do_GET", once)
    server.files["/b/a.bin"] = BODY
    assert download_bytes(server.remote(), tmp_path) == BODY


def test_a_silent_server_does_not_hold_us_for_ever(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(http_transfer, "TIMEOUT", 0.1)
    monkeypatch.setattr(Handler, "do_GET", lambda self: gate.wait(5))
    try:
        with pytest.raises(DataError, match=r"a\.bin could not be fetched"):
            download_bytes(server.remote(), tmp_path)
    finally:
        gate.set()


def test_a_full_disk_is_not_the_mirrors_fault(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    server.files["/a.bin"] = BODY
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        download_bytes(server.remote(), tmp_path)


# --- get: download and import -------------------------------------------------------------------------------------


def build_digits_archive(names: tuple[str, ...] = ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST_M")) -> bytes:
    images = np.random.default_rng(0).integers(0, 256, (10, 28, 28, 3), dtype=np.uint8)
    data, stream = pickle.dumps((images, np.arange(10))), io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            for file in ("test.pkl", *(f"partitions/train_part{i}.pkl" for i in range(10))):
                archive.writestr(f"digit_dataset/{name}/{file}", data)
    return stream.getvalue()


def publish_digits(monkeypatch: pytest.MonkeyPatch, server: Server, body: bytes, checksum: str | None = None) -> None:
    """Put a digits archive on the mirror; the published place has nothing."""
    server.files["/m/digit_dataset.zip"] = body
    remote = RemoteFile((f"{server.url}/home/digit_dataset.zip",), checksum)
    mnist = RemoteFile((f"{server.url}/own/mnist.npz",), None)
    own = (
        DownloadSource(tuple(DOWNLOAD_SOURCES["digits"][0].domains), (remote,), "a note"),
        DownloadSource(("mnist",), (mnist,)),
    )
    monkeypatch.setitem(DOWNLOAD_SOURCES, "digits", own)
    monkeypatch.setenv("FEDCO2_MIRROR", f"{server.url}/m/")


def test_get_fetches_imports_and_cleans_up(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, told = build_digits_archive(), list[str]()
    publish_digits(monkeypatch, server, body)
    added = download_dataset("digits", tmp_path, notify=told.append)
    assert (
        [one.info.domain for one in added]
        == list(list_stored_titles("digits", tmp_path))
        == list(DOWNLOAD_SOURCES["digits"][0].domains)
    )
    assert "no published checksum" in told[0]
    assert {path.name for path in tmp_path.iterdir()} == {"digits", CHECKSUMS_FILE}
    assert download_dataset("digits", tmp_path) == []  # all is there
    assert len(server.asked) == 1


def test_get_adds_only_what_is_missing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_digits(monkeypatch, server, build_digits_archive())
    download_dataset("digits", tmp_path)
    (tmp_path / "digits" / "usps.safetensors").unlink()
    stamp = (tmp_path / "digits" / "mnist.safetensors").stat().st_mtime_ns
    assert [one.info.domain for one in download_dataset("digits", tmp_path)] == ["usps"]
    assert (tmp_path / "digits" / "mnist.safetensors").stat().st_mtime_ns == stamp


def test_get_of_one_domain_asks_its_own_home(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_digits(monkeypatch, server, build_digits_archive())
    stream = io.BytesIO()
    images, labels = np.zeros((10, 28, 28), np.uint8), np.arange(10)
    np.savez(stream, x_train=images, y_train=labels, x_test=images, y_test=labels)
    server.files["/own/mnist.npz"] = stream.getvalue()
    assert [one.info.domain for one in download_dataset("digits", tmp_path, "mnist")] == ["mnist"]
    assert [one.info.domain for one in download_dataset("digits", tmp_path, "svhn")] == ["svhn"]
    with pytest.raises(InputError, match="has no domain 'xyz'; there are mnist"):
        download_dataset("digits", tmp_path, "xyz")


def test_nowhere_to_be_had(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_digits(monkeypatch, server, b"")
    server.files.clear()
    with pytest.raises(DataError) as caught:
        download_dataset("digits", tmp_path)
    said = str(caught.value)
    for part in ("/m/digit_dataset.zip (404", "/home/digit_dataset.zip (404", "fedco2 data add digits PATH", "a note"):
        assert part in said


def test_an_archive_that_reaches_outside_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("../../../slipped", b"")
    publish_digits(monkeypatch, server, stream.getvalue())
    with pytest.raises(DataError, match="does not stay inside"):
        download_dataset("digits", tmp_path / "data")
    assert not list(tmp_path.rglob("slipped"))
    assert not list_stored_titles("digits", tmp_path / "data")


def test_a_file_that_two_sources_share_is_fetched_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = RemoteFile((f"{server.url}/lists.zip",), None)
    chosen = [DownloadSource((domain,), (shared,)) for domain in ("clipart", "sketch")]
    server.files["/lists.zip"] = BODY
    monkeypatch.setitem(DOWNLOAD_SOURCES, "domainnet", tuple(chosen))
    monkeypatch.setattr(getting, "import_dataset", lambda *arguments: [])
    assert download_dataset("domainnet", tmp_path) == []
    assert len(server.asked) == 1
    assert {path.name for path in tmp_path.iterdir()} == {CHECKSUMS_FILE}


@pytest.mark.parametrize("name", DOWNLOAD_SOURCES)
def test_every_data_set_has_homes_and_terms(name: str) -> None:
    from fedtrain.data.datasets import DATASETS

    domains = set(DATASETS[name].domains)
    for alone in (True, False):
        chosen = select_sources(name, domains, alone)
        assert {domain for source in chosen for domain in source.domains} == domains
        for remote in (remote for source in chosen for remote in source.files):
            assert all(re.fullmatch(r"https?://[^ ]+", url) for url in remote.urls)
            assert remote.checksum is None or re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", remote.checksum)
            assert len({url.rsplit("/", 1)[-1] for url in remote.urls}) == 1
    assert LICENCE_TERMS[name]
