"""One HTTP request for a file or the rest of it."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from fedtrain.data.progress import Progress
from fedtrain.data.readers.safe_read import CHUNK, summarise_error

TIMEOUT = 30.0
"""Seconds without a byte."""


class DownloadRefusedError(Exception):
    """It is no use to ask this place again."""


class ConnectionCutError(Exception):
    """The connection failed on the way; another request may go on from there."""


class _SafeRedirectHandler(urllib.request.HTTPRedirectHandler):
    """From HTTP to HTTP or HTTPS, never back to the unprotected one, and nowhere else."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The next request, if it may be made."""
        old, new = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if new not in ("http", "https") or (old == "https" and new == "http"):
            raise DownloadRefusedError(f"it redirects from {old} to {new}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def resume_download(url: str, part: Path, limit: int, progress: Progress) -> None:
    """Add to ``part`` what it lacks, or write it anew where the server does not know how to go on.

    Raises `DownloadRefusedError` or `ConnectionCutError` for what the network does; a full disk is an OSError.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise DownloadRefusedError("not an http or https address")
    have = part.stat().st_size if part.exists() else 0
    with _open_url(url, have) as answer:
        if answer.status == 416:  # nothing lies beyond what we have: all is there, or it is another file
            if _parse_total_size(answer, have) != have:
                part.unlink()
                raise ConnectionCutError("what was here did not fit; start again")
            return
        start = have if answer.status == 206 and _parse_range_start(answer) == have else 0
        if answer.status == 206 and start != have:
            part.unlink()
            raise ConnectionCutError("it sent another piece than asked for")
        total = _parse_total_size(answer, start)
        if total is not None and total > limit:
            raise DownloadRefusedError(f"{total} bytes, more than the {limit} expected")
        with part.open("ab" if start else "wb") as file:
            done = start
            while piece := _read_chunk(answer):
                done += len(piece)
                if done > limit:
                    raise DownloadRefusedError(f"more than the {limit} bytes expected")
                file.write(piece)
                progress(part.name.removesuffix(".part"), done, total or 0)
    if total is not None and done != total:
        raise ConnectionCutError(f"the connection was cut after {done} of {total} bytes")


def _open_url(url: str, have: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "fedco2", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    opener = urllib.request.build_opener(_SafeRedirectHandler)
    try:
        answer: http.client.HTTPResponse = opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return error  # type: ignore[return-value]  # an answer as well
        error.close()
        raise DownloadRefusedError(f"{error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise DownloadRefusedError(str(error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ConnectionCutError(summarise_error(error)) from error
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        answer.close()
        raise DownloadRefusedError("it packs what it sends")
    return answer


def _read_chunk(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(CHUNK)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ConnectionCutError(summarise_error(error)) from error


def _parse_range_start(answer: http.client.HTTPResponse) -> int | None:
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _parse_total_size(answer: http.client.HTTPResponse, start: int) -> int | None:
    """The size of the whole file, if the answer tells."""
    if match := re.fullmatch(r"bytes .*/(\d+)", answer.headers.get("Content-Range", "")):
        return int(match[1])
    length = answer.headers.get("Content-Length", "")
    return start + int(length) if length.isdigit() and answer.status != 416 else None
