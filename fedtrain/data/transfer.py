"""One HTTP request for a file or the rest of it."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from fedtrain.data.importing.progress import Progress
from fedtrain.data.readers.guard import CHUNK, summarise_error

TIMEOUT = 30.0
"""Seconds without a byte."""


class RefusedError(Exception):
    """It is no use to ask this place again."""


class CutError(Exception):
    """The connection failed on the way; another request may go on from there."""


class _Redirects(urllib.request.HTTPRedirectHandler):
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
            raise RefusedError(f"it redirects from {old} to {new}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def pull(url: str, part: Path, limit: int, progress: Progress) -> None:
    """Add to ``part`` what it lacks, or write it anew where the server does not know how to go on.

    Raises `RefusedError` or `CutError` for what the network does; trouble with the disk is an OSError.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise RefusedError("not an http or https address")
    have = part.stat().st_size if part.exists() else 0
    with _answer(url, have) as answer:
        if answer.status == 416:  # nothing lies beyond what we have: all is there, or it is another file
            if _total(answer, have) != have:
                part.unlink()
                raise CutError("what was here did not fit; start again")
            return
        start = have if answer.status == 206 and _begins(answer) == have else 0
        if answer.status == 206 and start != have:
            part.unlink()
            raise CutError("it sent another piece than asked for")
        total = _total(answer, start)
        if total is not None and total > limit:
            raise RefusedError(f"{total} bytes, more than the {limit} expected")
        with part.open("ab" if start else "wb") as file:
            done = start
            while piece := _read(answer):
                done += len(piece)
                if done > limit:
                    raise RefusedError(f"more than the {limit} bytes expected")
                file.write(piece)
                progress(part.name.removesuffix(".part"), done, total or 0)
    if total is not None and done != total:
        raise CutError(f"the connection was cut after {done} of {total} bytes")


def _answer(url: str, have: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "fedco2", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    opener = urllib.request.build_opener(_Redirects)
    try:
        answer: http.client.HTTPResponse = opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return error  # type: ignore[return-value]  # an answer as well
        error.close()
        raise RefusedError(f"{error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise RefusedError(str(error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CutError(summarise_error(error)) from error
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        answer.close()
        raise RefusedError("it packs what it sends")
    return answer


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(CHUNK)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CutError(summarise_error(error)) from error


def _begins(answer: http.client.HTTPResponse) -> int | None:
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _total(answer: http.client.HTTPResponse, start: int) -> int | None:
    """The size of the whole file, if the answer tells."""
    if match := re.fullmatch(r"bytes .*/(\d+)", answer.headers.get("Content-Range", "")):
        return int(match[1])
    length = answer.headers.get("Content-Length", "")
    return start + int(length) if length.isdigit() and answer.status != 416 else None
