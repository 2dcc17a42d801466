"""Replace files atomically: a reader sees either the old content or the new content. Flush files to disk."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..values.errors import Mistake
from .private_folder import make_private_folder


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically, following symbolic links. A new file is readable only by its owner.

    Raise Mistake if the file cannot be written.
    """
    with open_replacement(path) as file:
        file.write(data)


@contextmanager
def open_replacement(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends, and is deleted if the block fails.

    Symbolic links are followed, and a new file is readable only by its owner. Raise Mistake if it cannot be written.
    """
    from tempfile import mkstemp  # imported here for start-up time: most commands write no file

    real = path.resolve()
    try:
        make_private_folder(real.parent)
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o600
        handle, name = mkstemp(dir=real.parent, prefix=f".{real.name}.")
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror or error}; check its folder's permissions") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        Path(name).chmod(mode)
        Path(name).replace(real)
        flush_paths([real.parent])
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Mistake(f"{path} cannot be written: {error.strerror or error}") from error
        raise


def flush_paths(paths: Iterable[Path]) -> None:
    """Flush files, and the names in folders, so that they survive a power failure. Missing ones are skipped."""
    for path in paths:
        with suppress(OSError):  # it is gone, or the system cannot flush a folder
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


_WAIT_AND_WRITE = 1 | 2 | 4
"""The flags with which `sync_file_range` writes all of a file's data and waits until it is written."""


def write_out_files(paths: Iterable[Path]) -> None:
    """Write the content of files to disk and wait until it is written. Missing files and links are skipped.

    The files survive a power failure once another file in their file system has been flushed.
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    for path in paths:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
            try:
                size = ctypes.c_int64(0)
                if libc is None or libc.sync_file_range(handle, size, size, _WAIT_AND_WRITE) != 0:
                    os.fsync(handle)
            finally:
                os.close(handle)
