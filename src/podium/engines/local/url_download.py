"""Download a model file from a URL given by the user, and continue a download that was interrupted.

A second file, the marker, is stored next to an unfinished file. It contains the URL and the server's version of the
content (`ETag` or `Last-Modified`). If the server sends no version, an interrupted download starts from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ...system.whole_file import replace_file
from ...values.errors import Mistake, OutsideFailed

if TYPE_CHECKING:
    from aiohttp import ClientResponse

SILENT_SECONDS = 60.0
"""How long a server can be silent before the download fails."""
CHUNK = 1024 * 1024


class _DownloadMark(Struct, frozen=True, kw_only=True):
    """The content of the marker file: the URL, and the server's version of the content, or "" if it sends none."""

    url: str
    version: str


async def download_url(
    url: str,
    file: Path,
    *,
    check_size: Callable[[int], None],
    show_progress: Callable[[int, int | None], None],
) -> None:
    """Download a URL to a file. If the file already contains the beginning of the content, only the rest is downloaded.

    `check_size` is called with the size of the whole content before it is downloaded, if the server sends the size.
    Raise OutsideFailed if the download fails; the part that was downloaded stays in the file. Raise Mistake if the
    URL is not an HTTP URL.
    """
    import aiohttp  # imported here for start-up time

    if urlsplit(url).scheme not in ("http", "https"):
        raise Mistake(f"{url} is not a URL that can be downloaded; use http or https")
    beginning, headers = _find_beginning(url, file)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=SILENT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True, auto_decompress=False) as client,
            client.get(url, headers={"Accept-Encoding": "identity", **headers}) as answer,
        ):
            if answer.status == 416 and beginning:
                return  # nothing is missing: the last download was interrupted after its last byte
            if answer.status not in (200, 206):
                raise OutsideFailed(f"{url} cannot be downloaded: the server returned {answer.status}")
            start = beginning if answer.status == 206 else 0
            await _write_content(answer, url, file, start, check_size=check_size, show_progress=show_progress)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OutsideFailed(
            f"the download of {url} failed: {error or type(error).__name__}; run the same command again to continue"
        ) from error


def forget_download(file: Path) -> None:
    """Remove an unfinished file and its marker file."""
    for path in (_mark_path(file), file):
        path.unlink(missing_ok=True)


def finish_download(file: Path) -> None:
    """Remove the marker file, which shows that a download is unfinished."""
    _mark_path(file).unlink(missing_ok=True)


async def _write_content(
    answer: ClientResponse,
    url: str,
    file: Path,
    start: int,
    *,
    check_size: Callable[[int], None],
    show_progress: Callable[[int, int | None], None],
) -> None:
    whole = None if answer.content_length is None else start + answer.content_length
    if whole is not None:
        check_size(whole)
    version = answer.headers.get("ETag", "")
    if not version or version.startswith("W/"):
        version = answer.headers.get("Last-Modified", "")
    replace_file(_mark_path(file), msgspec.json.encode(_DownloadMark(url=url, version=version)))
    with file.open("r+b" if start else "wb") as out:
        out.seek(start)
        out.truncate()
        async for data in answer.content.iter_chunked(CHUNK):
            out.write(data)
            show_progress(out.tell(), whole)
        size = out.tell()
    if whole is not None and size < whole:
        raise OutsideFailed(
            f"the download of {url} ended after {size} of {whole} bytes; run the same command again to continue"
        )


def _find_beginning(url: str, file: Path) -> tuple[int, dict[str, str]]:
    """Return how many bytes have already been downloaded, and the headers that request only the rest."""
    try:
        mark = msgspec.json.decode(_mark_path(file).read_bytes(), type=_DownloadMark)
        size = file.stat().st_size
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return 0, {}
    if mark.url != url or not mark.version or not size:
        return 0, {}
    # If the content has changed, the server ignores the range and sends everything.
    return size, {"Range": f"bytes={size}-", "If-Range": mark.version}


def _mark_path(file: Path) -> Path:
    return file.with_name(f"{file.name}.mark")
